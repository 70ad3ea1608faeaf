"""Queries of a report to a cluster, and the rows of its tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import (
    GroupDescription,
    QueueProgress,
    TopicDescription,
    UnreachableBroker,
)
from ternmq_model.errors import RefusedError, TopicNotFound, Unreachable
from ternmq_model.names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    is_system_group,
    is_system_topic,
)
from ternmq_pipeline.cluster.reader import ClusterReader
from ternmq_pipeline.jobs.cluster_report.queue_sizes import first_offsets, kept_bytes
from ternmq_pipeline.jobs.cluster_report.report_tables import (
    HOUR_MS,
    ClusterReport,
    DeadLettersRow,
    GroupRow,
    HourRow,
    MemberRow,
    TopicRow,
    hour_starts,
    hourly,
)
from ternmq_protos.v1.admin_pb2 import StatisticsItem
from ternmq_protos.v1.groups_pb2 import RunningState

_DAY: Final = 2
"""Index of the day among a counter's spans. The first span is a minute."""

_DAY_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class CounterRate:
    """Sum of a counter over all brokers."""

    per_s: float = 0.0
    """Rate over the last minute, 1/s."""

    day: int = 0
    """Sum over the last 24 hours."""


_NONE: Final = CounterRate()
CounterRates = Mapping[str, Mapping[str, CounterRate]]
"""Rates by a counter's name and key."""


async def query_report(
    admin: AdminClient,
    reader: ClusterReader,
    *,
    now_ms: int,
    hours: int,
    slow_after_ms: int,
) -> ClusterReport:
    """Return a report of all topics and groups except those of the system.

    Topics that are deleted during the queries are left out, and so are topics and groups of brokers
    that do not answer.

    Args:
        admin: Open client for administration.
        reader: Open reader of the same cluster.
        now_ms: Time of the report, Unix milliseconds.
        hours: Number of hours before `now_ms` with a count of messages each.
        slow_after_ms: Lag in time from which a group is slow, ms.

    Raises:
        TransportError: No NameServer or no broker answers, or a broker that answered before does
            not answer any more.
    """
    brokers = [data.broker_name for data in await admin.brokers()]
    if not brokers:
        return ClusterReport(now_ms, hours, slow_after_ms, (), (), (), (), (), ())
    unreachable: dict[str, UnreachableBroker] = {}

    def note(found: Iterable[UnreachableBroker]) -> None:
        for each in found:
            unreachable.setdefault(each.broker_name, each)

    statistics = await admin.statistics()
    note(statistics.unreachable)
    counted = counters(statistics)
    names = await admin.groups()
    note(names.unreachable)
    descriptions = await admin.describe_groups(
        [each for each in names if not is_system_group(each)]
    )
    note(descriptions.unreachable)
    topics: list[TopicRow] = []
    traffic: list[HourRow] = []
    for name in await admin.topics():
        if is_system_topic(name) or name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            continue
        try:
            found = await admin.describe_topic(name)
        except (TopicNotFound, Unreachable):
            continue
        note(found.unreachable)
        try:
            by_hour = await _traffic(reader, found, hour_starts(now_ms, hours))
            in_24h = _got(found) - await _got_by(reader, found, now_ms - _DAY_MS)
            size = await kept_bytes(reader, found.queues)
        except TopicNotFound:
            continue
        traffic += by_hour
        topics.append(topic_row(found, size, max(0, in_24h), counted, descriptions))
    letters = await admin.dead_letter_counts()
    note(letters.unreachable)
    return ClusterReport(
        now_ms,
        hours,
        slow_after_ms,
        brokers,
        topics,
        [row for each in descriptions for row in group_rows(each, counted, slow_after_ms)],
        await _members(admin, descriptions, now_ms, slow_after_ms),
        [
            DeadLettersRow(one.group, one.waiting, one.kept, one.last_died_at_ms or None)
            for one in letters
        ],
        traffic,
        [unreachable[name] for name in sorted(unreachable)],
    )


def counters(found: Sequence[tuple[str, StatisticsItem]]) -> CounterRates:
    """Return the sums over all brokers of the counters with rates."""
    sums: dict[str, dict[str, CounterRate]] = {}
    for _, item in found:
        if len(item.spans) > _DAY:
            before = sums.setdefault(item.name, {}).get(item.key, _NONE)
            minute, day = item.spans[0], item.spans[_DAY]
            sums[item.name][item.key] = CounterRate(
                before.per_s + minute.rate, before.day + day.sum
            )
    return sums


def topic_row(
    found: TopicDescription,
    size: int | None,
    in_24h: int,
    counted: CounterRates,
    descriptions: Sequence[GroupDescription],
) -> TopicRow:
    """Return the row of a topic."""
    name = found.topic
    readers = [
        each.group for each in descriptions if any(one.queue.topic == name for one in each.progress)
    ]
    read = [_rate(counted, "GROUP_GET_NUMS", f"{name}@{group}") for group in readers]
    return TopicRow(
        topic=name,
        queues=len(found.queues),
        messages=sum(one.max_offset - one.min_offset for one in found.queues),
        bytes=size,
        in_per_s=_rate(counted, "TOPIC_PUT_NUMS", name).per_s,
        in_24h=in_24h,
        out_per_s=sum(each.per_s for each in read),
        out_24h=sum(each.day for each in read),
        groups=len(readers),
        last_stored_at_ms=max((one.last_stored_at_ms for one in found.queues), default=0) or None,
    )


def group_rows(
    found: GroupDescription, counted: CounterRates, slow_after_ms: int
) -> list[GroupRow]:
    """Return a row for each topic of a group, the retry topic included."""
    by_topic: dict[str, list[QueueProgress]] = {}
    for one in found.progress:
        by_topic.setdefault(one.queue.topic, []).append(one)
    rows: list[GroupRow] = []
    for topic, progress in sorted(by_topic.items()):
        key = f"{topic}@{found.group}"
        got = _rate(counted, "GROUP_GET_NUMS", key)
        lag = sum(max(0, one.lag) for one in progress)
        lag_ms = max((one.lag_ms for one in progress if one.lag > 0), default=0)
        rows.append(
            GroupRow(
                group=found.group,
                topic=topic,
                members=len(found.members),
                lag=lag,
                lag_s=lag_ms / 1000,
                out_per_s=got.per_s,
                out_24h=got.day,
                sent_back_24h=_rate(counted, "SNDBCK_PUT_NUMS", key).day,
                dead_24h=_rate(counted, "DLQ_PUT_NUMS", key).day,
                is_retry=topic.startswith(RETRY_PREFIX),
                is_slow=lag > 0 and lag_ms >= slow_after_ms,
            )
        )
    return rows


def member_row(
    group: str,
    client_id: str,
    address: str,
    state: RunningState | None,
    *,
    now_ms: int,
    slow_after_ms: int,
) -> MemberRow:
    """Return the row of a consumer. Without `state` the consumer does not answer."""
    if state is None:
        return MemberRow(
            group, client_id, address, None, None, None, None, None, None, None, is_slow=False
        )
    stuck = [
        one
        for one in state.queues
        if one.messages and now_ms - max(one.consumed_at_ms, one.pulled_at_ms) >= slow_after_ms
    ]
    rate = state.facts.get("messages_per_s")
    return MemberRow(
        group=group,
        client_id=client_id,
        address=address,
        queues=len(state.queues),
        in_hand=sum(one.messages for one in state.queues),
        messages_per_s=None if rate is None else float(rate),
        failures=_fact(state, "failures"),
        sent_back=_fact(state, "sent_back"),
        timed_out=_fact(state, "timed_out"),
        last_consumed_at_ms=max((one.consumed_at_ms for one in state.queues), default=0) or None,
        is_slow=bool(stuck),
    )


def _fact(state: RunningState, name: str) -> int | None:
    text = state.facts.get(name, "")
    return int(text) if text.isdecimal() else None


def _rate(counted: CounterRates, name: str, key: str) -> CounterRate:
    return counted.get(name, {}).get(key, _NONE)


async def _members(
    admin: AdminClient,
    descriptions: Sequence[GroupDescription],
    now_ms: int,
    slow_after_ms: int,
) -> list[MemberRow]:
    rows: list[MemberRow] = []
    for found in descriptions:
        for member in found.members:
            try:
                state = await admin.consumer_state(found.group, member.client_id)
            except (RefusedError, Unreachable):
                state = None
            row = member_row(
                found.group,
                member.client_id,
                member.address,
                state,
                now_ms=now_ms,
                slow_after_ms=slow_after_ms,
            )
            rows.append(row)
    return rows


async def _traffic(
    reader: ClusterReader, found: TopicDescription, starts: Sequence[int]
) -> list[HourRow]:
    """Return the messages of each hour: differences of the offsets at which hours begin."""
    totals = [await _got_by(reader, found, start) for start in starts]
    return hourly(found.topic, starts, [*totals, _got(found)])


async def _got_by(reader: ClusterReader, found: TopicDescription, at_ms: int) -> int:
    """Return the number of messages that a topic had at a time, expired ones included.

    The number is a sum of queue offsets, which brokers find by a binary search without reading a
    message. Queues without a newer message need no query.
    """
    asked = {one.queue: at_ms for one in found.queues if one.last_stored_at_ms >= at_ms}
    at = await first_offsets(reader, asked)
    return sum(at.get(one.queue, one.max_offset) for one in found.queues)


def _got(found: TopicDescription) -> int:
    return sum(one.max_offset for one in found.queues)
