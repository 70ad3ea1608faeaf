"""The tables of a report, a class each: how a cluster stood at one moment. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_client.admin.descriptions import UnreachableBroker


@dataclass(frozen=True, slots=True)
class TopicRow:
    """Row of a topic: its contents and rates, over all brokers."""

    topic: str
    queues: int
    messages: int
    """Number of messages that can still be read."""

    bytes: int | None
    """Size of their records; None = a broker does not measure."""

    in_per_s: float
    """Over the last minute, as all rates."""

    in_24h: int
    """Stored in that time, as far as they are still kept."""

    out_per_s: float
    out_24h: int
    """Read by all groups together, as brokers count since they started."""

    groups: int
    last_stored_at_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Row of a group: its lag in one topic; its retries are a topic of their own."""

    group: str
    topic: str
    members: int
    lag: int
    """Messages that wait."""

    lag_s: float
    """Age of the message that waits longest among each queue's next one."""

    out_per_s: float
    out_24h: int
    """Count of brokers since they started: so this and those below."""

    sent_back_24h: int
    """Messages that were to be tried again."""

    dead_24h: int
    """Messages that the group gave up."""

    is_retry: bool
    is_slow: bool


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One live consumer, as it tells of itself."""

    group: str
    client_id: str
    address: str
    queues: int | None
    """Number of its queues. None, in any column: the consumer does not answer."""

    in_hand: int | None
    """Messages read and not finished."""

    messages_per_s: float | None
    failures: int | None
    sent_back: int | None
    timed_out: int | None
    last_consumed_at_ms: int | None
    is_slow: bool
    """The consumer holds messages of a queue without progress for `slow_after_ms`."""


@dataclass(frozen=True, slots=True)
class DeadLettersRow:
    """The dead letters of a group."""

    group: str
    waiting: int
    kept: int
    last_died_at_ms: int | None


@dataclass(frozen=True, slots=True)
class HourRow:
    """Row of an hour: messages that a topic got in it, as far as it still keeps them."""

    topic: str
    hour_at_ms: int
    messages: int


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """State of a cluster at one moment."""

    made_at_ms: int
    hours: int
    """Hours that `traffic` goes back."""

    slow_after_ms: int
    """Lag in time from which a group counts as slow, ms."""

    brokers: Sequence[str]
    topics: Sequence[TopicRow]
    groups: Sequence[GroupRow]
    members: Sequence[MemberRow]
    dead_letters: Sequence[DeadLettersRow]
    traffic: Sequence[HourRow]
    unreachable: Sequence[UnreachableBroker] = ()
    """Brokers that gave no answer, sorted by name: what they have is missing."""

    @property
    def slow(self) -> list[GroupRow]:
        """The groups that are slow, the slowest first."""
        return sorted((row for row in self.groups if row.is_slow), key=lambda row: -row.lag_s)


Row = TopicRow | GroupRow | MemberRow | DeadLettersRow | HourRow

TABLES: Final[dict[str, type[Row]]] = {
    "topics": TopicRow,
    "groups": GroupRow,
    "members": MemberRow,
    "dead_letters": DeadLettersRow,
    "traffic": HourRow,
}
"""Attributes of a `ClusterReport` that are tables, with their rows."""


def rows_of(report: ClusterReport, table: str) -> Sequence[Row]:
    """Return the rows of the table named `table`, a key of `TABLES`."""
    rows: Sequence[Row] = getattr(report, table)
    return rows


HOUR_MS: Final = 3_600_000


def hour_starts(now_ms: int, hours: int) -> list[int]:
    """Return the beginnings of the last full hours of UTC and of the one that is going on."""
    present = now_ms - now_ms % HOUR_MS
    return [present - HOUR_MS * back for back in range(hours, -1, -1)]


def hourly(topic: str, starts: Sequence[int], totals: Sequence[int]) -> list[HourRow]:
    """Return what a topic got in each hour.

    Args:
        topic: Which.
        starts: When the hours begin, each where the one before ends.
        totals: At each start how many messages the topic had got by then, as a sum of offsets,
            and one more for the present.
    """
    return [
        HourRow(topic, start, max(0, after - before))
        for start, before, after in zip(starts, totals[:-1], totals[1:], strict=True)
    ]
