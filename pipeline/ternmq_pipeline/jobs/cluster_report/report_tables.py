"""Tables of a report on the state of a cluster at one moment, one class for each table. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_client.admin.descriptions import UnreachableBroker


@dataclass(frozen=True, slots=True)
class TopicRow:
    """Row of a topic: its messages and rates over all brokers."""

    topic: str
    queues: int
    messages: int
    """Number of readable messages."""

    bytes: int | None
    """Size of their records; None = a broker does not measure."""

    in_per_s: float
    """Messages stored per second, over the last minute."""

    in_24h: int
    """Messages stored in the last 24 hours, without deleted ones."""

    out_per_s: float
    out_24h: int
    """Messages read by all groups in the last 24 hours, counted since the start of each broker."""

    groups: int
    last_stored_at_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Row of a group and topic: lag and rates. The retry topic has a row of its own."""

    group: str
    topic: str
    members: int
    lag: int
    """Number of waiting messages."""

    lag_s: float
    """Age of the oldest next message of the queues, s."""

    out_per_s: float
    out_24h: int
    """Messages read in the last 24 hours. Brokers begin this and the next counts at their start."""

    sent_back_24h: int
    """Messages sent back for a retry in the last 24 hours."""

    dead_24h: int
    """Messages that became dead letters in the last 24 hours."""

    is_retry: bool
    is_slow: bool


@dataclass(frozen=True, slots=True)
class MemberRow:
    """Row of a live consumer, by its own report."""

    group: str
    client_id: str
    address: str
    queues: int | None
    """Number of owned queues. None, in any column = the consumer does not answer."""

    in_hand: int | None
    """Number of unfinished messages."""

    messages_per_s: float | None
    failures: int | None
    sent_back: int | None
    timed_out: int | None
    last_consumed_at_ms: int | None
    is_slow: bool
    """True = a queue of the consumer has had no progress for `slow_after_ms`."""


@dataclass(frozen=True, slots=True)
class DeadLettersRow:
    """Row of a group's dead letters."""

    group: str
    waiting: int
    kept: int
    last_died_at_ms: int | None


@dataclass(frozen=True, slots=True)
class HourRow:
    """Row of a topic and hour: number of stored messages, without deleted ones."""

    topic: str
    hour_at_ms: int
    messages: int


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """State of a cluster at one moment."""

    made_at_ms: int
    hours: int
    """Number of hours in `traffic`."""

    slow_after_ms: int
    """Least lag in time of a slow group, ms."""

    brokers: Sequence[str]
    topics: Sequence[TopicRow]
    groups: Sequence[GroupRow]
    members: Sequence[MemberRow]
    dead_letters: Sequence[DeadLettersRow]
    traffic: Sequence[HourRow]
    unreachable: Sequence[UnreachableBroker] = ()
    """Brokers without an answer, sorted by name. Their topics and groups are missing."""

    @property
    def slow(self) -> list[GroupRow]:
        """Slow groups, the slowest first."""
        return sorted((row for row in self.groups if row.is_slow), key=lambda row: -row.lag_s)


Row = TopicRow | GroupRow | MemberRow | DeadLettersRow | HourRow

TABLES: Final[dict[str, type[Row]]] = {
    "topics": TopicRow,
    "groups": GroupRow,
    "members": MemberRow,
    "dead_letters": DeadLettersRow,
    "traffic": HourRow,
}
"""Attributes of `ClusterReport` that are tables, with the classes of their rows."""


def rows_of(report: ClusterReport, table: str) -> Sequence[Row]:
    """Return the rows of the table named `table`, a key of `TABLES`."""
    rows: Sequence[Row] = getattr(report, table)
    return rows


HOUR_MS: Final = 3_600_000


def hour_starts(now_ms: int, hours: int) -> list[int]:
    """Return the begins of the last full hours in UTC and of the present hour, Unix ms."""
    present = now_ms - now_ms % HOUR_MS
    return [present - HOUR_MS * back for back in range(hours, -1, -1)]


def hourly(topic: str, starts: Sequence[int], totals: Sequence[int]) -> list[HourRow]:
    """Return the messages of a topic in each hour.

    Args:
        topic: Name of the topic.
        starts: Begins of successive hours.
        totals: Sums of the topic's offsets at each start and at present.
    """
    return [
        HourRow(topic, start, max(0, after - before))
        for start, before, after in zip(starts, totals[:-1], totals[1:], strict=True)
    ]
