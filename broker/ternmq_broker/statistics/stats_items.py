"""Counters as items under RocketMQ's names. Pure.

Source: RocketMQ `BrokerStatsManager`, `Stats`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ternmq_broker.statistics.broker_statistics import BrokerStatistics
from ternmq_broker.statistics.counters import SPANS, Counter, CounterIncrease, CounterValues


class SpanValue(NamedTuple):
    """A counter over one span."""

    seconds: float
    sum: int
    rate: float
    """Rate per second."""

    average: float
    """Average of one call; 0 without calls."""


class StatsItem(NamedTuple):
    """One counter."""

    name: str
    key: str
    total: int
    spans: Sequence[SpanValue]
    """Values over a minute, an hour and a day; empty for items without sums."""


class _Metric(NamedTuple):
    """A name of RocketMQ, and the sum that it stands for."""

    name: str
    field: str
    """Field of `CounterValues`."""


_QUEUE_PUT: Final = (_Metric("QUEUE_PUT_NUMS", "messages"), _Metric("QUEUE_PUT_SIZE", "bytes"))
_QUEUE_GET: Final = (_Metric("QUEUE_GET_NUMS", "messages"), _Metric("QUEUE_GET_SIZE", "bytes"))
_TOPIC_PUT: Final = (
    _Metric("TOPIC_PUT_NUMS", "messages"),
    _Metric("TOPIC_PUT_SIZE", "bytes"),
    _Metric("TOPIC_PUT_LATENCY", "ms"),
)
_GROUP_GET: Final = (
    _Metric("GROUP_GET_NUMS", "messages"),
    _Metric("GROUP_GET_SIZE", "bytes"),
    _Metric("GROUP_GET_LATENCY", "ms"),
    _Metric("GROUP_GET_FROM_DISK_NUMS", "disk_messages"),
    _Metric("GROUP_GET_FROM_DISK_SIZE", "disk_bytes"),
)
_SENT_BACK: Final = (_Metric("SNDBCK_PUT_NUMS", "messages"),)
_DEAD: Final = (_Metric("DLQ_PUT_NUMS", "messages"), _Metric("SNDBCK2DLQ_TIMES", "calls"))
_BROKER_PUT: Final = (_Metric("BROKER_PUT_NUMS", "messages"),)
_BROKER_GET: Final = (
    _Metric("BROKER_GET_NUMS", "messages"),
    _Metric("BROKER_GET_FROM_DISK_NUMS", "disk_messages"),
    _Metric("BROKER_GET_FROM_DISK_SIZE", "disk_bytes"),
)
_USER_PUT: Final = (_Metric("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "messages"),)
_USER_GET: Final = (_Metric("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "messages"),)

FALL_SIZE: Final = "GROUP_GET_FALL_SIZE"
FALL_TIME: Final = "GROUP_GET_FALL_TIME"

NAMES: Final = frozenset(
    metric.name
    for metrics in (
        _QUEUE_PUT,
        _QUEUE_GET,
        _TOPIC_PUT,
        _GROUP_GET,
        _SENT_BACK,
        _DEAD,
        _BROKER_PUT,
        _BROKER_GET,
        _USER_PUT,
        _USER_GET,
    )
    for metric in metrics
) | {FALL_SIZE, FALL_TIME}
"""Names of all items."""


class StatisticsReport:
    """Items of all counters at one time, produced step by step.

    Args:
        statistics: Counters of the broker.
        cluster: Key of the sums of the broker.
        now_ms: Monotonic clock.
        name: Name of the items; empty = all.
        key: Key of the items; empty = all.
    """

    def __init__(
        self,
        statistics: BrokerStatistics,
        *,
        cluster: str,
        now_ms: int,
        name: str = "",
        key: str = "",
    ) -> None:
        self._statistics = statistics
        self._cluster = cluster
        self._now_ms = now_ms
        self._name = name
        self._key = key
        self._begun = [statistics.begun_at_ms(place) for place in range(len(SPANS))]

    def items(self) -> Iterator[StatsItem | None]:
        """Yield the items, unordered, with None between some of them as points to pause.

        Counters and keys may change during a pause.
        """
        counted = self._statistics
        topics: dict[str, list[Counter]] = {}
        for (topic, queue_id), counter in list(counted.queues.items()):
            topics.setdefault(topic, []).append(counter)
            yield from self._items(_QUEUE_PUT, f"{topic}@{queue_id}", [counter])
        for topic, counters in topics.items():
            yield from self._items(_TOPIC_PUT, topic, counters)
        groups: dict[str, list[Counter]] = {}
        for (group, topic, queue_id), counter in list(counted.readers.items()):
            groups.setdefault(f"{topic}@{group}", []).append(counter)
            yield from self._items(_QUEUE_GET, f"{topic}@{queue_id}@{group}", [counter])
        for key, counters in groups.items():
            yield from self._items(_GROUP_GET, key, counters)
            yield from self._fallen(key, counters)
        for metrics, table in ((_SENT_BACK, counted.sent_back), (_DEAD, counted.dead_letters)):
            for (topic, group), counter in list(table.items()):
                yield from self._items(metrics, f"{topic}@{group}", [counter])
        yield from self._items(_BROKER_PUT, self._cluster, [counted.puts])
        yield from self._items(_BROKER_GET, self._cluster, [counted.gets])
        puts, gets = (counted.puts, counted.system_puts), (counted.gets, counted.system_gets)
        yield from self._items(_USER_PUT, self._cluster, puts[:1], less=puts[1])
        yield from self._items(_USER_GET, self._cluster, gets[:1], less=gets[1])

    def _items(
        self,
        metrics: Iterable[_Metric],
        key: str,
        counters: Sequence[Counter],
        *,
        less: Counter | None = None,
    ) -> Iterator[StatsItem | None]:
        yield None
        selected = [metric for metric in metrics if self._name in ("", metric.name)]
        if not selected or self._key not in ("", key):
            return
        total = CounterValues()
        for counter in counters:
            total = total.plus(counter.sums)
        spans = [self._added(place, counters) for place in range(len(SPANS))]
        if less is not None:
            total = total.less(less.sums)
            spans = [
                CounterIncrease(span.ms, span.sums.less(self._added(place, [less]).sums))
                for place, span in enumerate(spans)
            ]
        for metric in selected:
            yield StatsItem(
                metric.name,
                key,
                getattr(total, metric.field),
                [_span(each, metric.field) for each in spans],
            )

    def _added(self, place: int, counters: Sequence[Counter]) -> CounterIncrease:
        """Return the increase of several counters over a span."""
        longest, sums = 0, CounterValues()
        for counter in counters:
            added = counter.added(place, now_ms=self._now_ms, begun_at_ms=self._begun[place])
            longest = max(longest, added.ms)
            sums = sums.plus(added.sums)
        return CounterIncrease(longest, sums)

    def _fallen(self, key: str, counters: Sequence[Counter]) -> Iterator[StatsItem]:
        """Yield the largest lag of a group over its queues, at its last reads."""
        if self._key in ("", key):
            behind = max(counter.behind_bytes for counter in counters)
            for name, value in (
                (FALL_SIZE, behind),
                (FALL_TIME, max(counter.behind_ms for counter in counters)),
            ):
                if self._name in ("", name):
                    yield StatsItem(name, key, value, ())


def _span(added: CounterIncrease, field: str) -> SpanValue:
    seconds, total = added.ms / 1000, getattr(added.sums, field)
    return SpanValue(
        seconds,
        total,
        total / seconds if seconds else 0.0,
        total / added.sums.calls if added.sums.calls else 0.0,
    )
