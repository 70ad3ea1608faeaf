"""Queries of a report to a cluster, and the rows of its tables."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import (
    GroupDescription,
    QueueProgress,
    QueueStatus,
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
from ternmq_model.queue import MessageQueue
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

MeasureQueues = Callable[[Sequence[QueueStatus]], Awaitable[int | None]]
"""Coroutine function that returns the total bytes of queues; None = a broker does not measure."""

OffsetsAt = Callable[[Mapping[MessageQueue, int]], Awaitable[Mapping[MessageQueue, int]]]
"""Coroutine function of times by queue. It returns the offset of each queue's first message stored
at its time or later, else its end."""

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
    measure: MeasureQueues,
    offsets_at: OffsetsAt,
    *,
    now_ms: int,
    hours: int,
    slow_after_ms: int,
) -> ClusterReport:
    """Return a report of all topics and groups, without those of the system.

    Topics and groups that are deleted meanwhile, or that only brokers without an answer have, are
    missing in the report.

    Args:
        admin: Open client.
        measure: Function that returns the bytes of queues.
        offsets_at: Function that returns offsets by time.
        now_ms: Present time, Unix ms.
        hours: Number of hours of the traffic.
        slow_after_ms: Least lag in time of a slow group, ms.

    Raises:
        TransportError: No NameServer or no broker answers, or a broker stops answering.
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
            by_hour = await _traffic(offsets_at, found, hour_starts(now_ms, hours))
            in_24h = _got(found) - await _got_by(offsets_at, found, now_ms - _DAY_MS)
            kept_bytes = await measure(found.queues)
        except TopicNotFound:
            continue
        traffic += by_hour
        topics.append(topic_row(found, kept_bytes, max(0, in_24h), counted, descriptions))
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
    kept_bytes: int | None,
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
        bytes=kept_bytes,
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
    told = state.facts.get(name, "")
    return int(told) if told.isdecimal() else None


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
    offsets_at: OffsetsAt, found: TopicDescription, starts: Sequence[int]
) -> list[HourRow]:
    """Return a topic's messages in each hour: differences of the offsets at the hours' begins."""
    totals = [await _got_by(offsets_at, found, start) for start in starts]
    return hourly(found.topic, starts, [*totals, _got(found)])


async def _got_by(offsets_at: OffsetsAt, found: TopicDescription, at_ms: int) -> int:
    """Return the number of a topic's messages stored before a time: a sum of offsets.

    The number includes deleted messages. Brokers find offsets by bisection, without reading
    messages. Queues without later messages need no request.
    """
    asked = {one.queue: at_ms for one in found.queues if one.last_stored_at_ms >= at_ms}
    at: Mapping[MessageQueue, int] = await offsets_at(asked) if asked else {}
    return sum(at.get(one.queue, one.max_offset) for one in found.queues)


def _got(found: TopicDescription) -> int:
    return sum(one.max_offset for one in found.queues)
