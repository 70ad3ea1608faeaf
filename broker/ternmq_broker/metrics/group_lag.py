"""Metrics of how far groups are behind, in messages and in time."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.metrics.families import (
    INFLIGHT,
    LAG,
    LAG_LATENCY,
    OLDEST_UNACKNOWLEDGED,
    QUEUE_LAG_SECONDS,
    QUEUEING_LATENCY,
    READY,
)
from ternmq_broker.metrics.traffic import flag, is_system
from ternmq_model.names import RETRY_PREFIX
from ternmq_model.offsets import QueueOffset
from ternmq_runtime.metrics.port import Scrape
from ternmq_runtime.metrics.scrape import LabelValues

_QUEUES_AT_A_TIME: Final = 128
"""Limit on the time that one search takes the loop, to prepare it: 10 µs for each queue."""

_Place = tuple[str, int, QueueOffset]
"""Topic, queue id and offset of a message."""


class QueueLag(NamedTuple):
    """Position of a group in one queue with messages behind it."""

    queue_id: int
    next_unacknowledged: QueueOffset
    """First message that is not committed, and not deleted."""

    next_ready: QueueOffset
    """First message that the group did not get yet; the end of the queue without one."""

    end: QueueOffset


class LagMetrics:
    """Lags of all groups of one broker. Owned by the broker's loop.

    A message of which the store time is known is not looked up at the next scrape.
    """

    def __init__(self, env: BrokerEnvironment) -> None:
        self._env = env
        self._times_ms: dict[_Place, int] = {}
        """Store times of messages; 0 = not known."""
        self._deletions = env.store.deletions

    async def collect(self, scrape: Scrape, node: LabelValues) -> None:
        """Add the lags of all groups that committed an offset.

        Raises:
            RefusedError: The disk cannot be read.
        """
        found: list[tuple[str, str, list[int], list[QueueLag]]] = []
        before, self._times_ms = self._times_ms, {}
        # Each deletion makes a new table; a place may have another message now.
        if self._deletions is not self._env.store.deletions:
            before, self._deletions = {}, self._env.store.deletions
        missing: list[_Place] = []
        for topic, group, queues in self._env.tables.offsets.kept():
            lags: list[QueueLag] = []
            queue_ids, offsets = list(queues), list(queues.items())
            for queue_id, committed in offsets:  # up to 16,384, with 70 us each
                lag = self._lag_of(group, topic, queue_id, committed)
                if lag is not None:
                    lags.append(lag)
                    missing += self._unknown(topic, lag, before)
                await scrape.rest()
            found.append((topic, group, queue_ids, lags))
        await self._look_up(missing)
        for topic, group, queue_ids, lags in found:
            await self._add(scrape, node, group, topic, queue_ids, lags)

    def _lag_of(
        self, group: str, topic: str, queue_id: int, committed: QueueOffset
    ) -> QueueLag | None:
        """Return the position of a group; None without messages behind it."""
        first, end = self._env.store.queue_range(topic, queue_id)
        begin = max(committed, first)
        if begin >= end:
            return None
        reader = self._env.statistics.readers.get((group, topic, queue_id))
        pulled = begin if reader is None else QueueOffset(min(max(reader.next_offset, begin), end))
        return QueueLag(queue_id, begin, pulled, end)

    def _unknown(self, topic: str, lag: QueueLag, before: dict[_Place, int]) -> Iterator[_Place]:
        """Yield the messages of a lag whose store times are not known without the disk."""
        times_ms, stored_at_ms = self._times_ms, self._env.store.searches.time_in_memory
        for offset in (lag.next_unacknowledged, lag.next_ready):
            place = (topic, lag.queue_id, offset)
            if offset < lag.end and place not in times_ms:
                at_ms = times_ms[place] = before.get(place) or stored_at_ms(*place)
                if not at_ms:
                    yield place

    async def _look_up(self, missing: Sequence[_Place]) -> None:
        store, times_ms = self._env.store, self._times_ms
        for begin in range(0, len(missing), _QUEUES_AT_A_TIME):
            part = missing[begin : begin + _QUEUES_AT_A_TIME]
            queries = [(topic, queue_id, (offset,)) for topic, queue_id, offset in part]
            stored = await self._env.reader.run(store.searches.times_at(queries).run)
            for place, at_ms in zip(part, stored, strict=True):
                times_ms[place] = at_ms[0] if at_ms else 0

    async def _add(
        self,
        scrape: Scrape,
        node: LabelValues,
        group: str,
        topic: str,
        queue_ids: list[int],
        lags: list[QueueLag],
    ) -> None:
        now_ms = self._env.clock.wall_ms()
        messages = inflight = lag_ms = queueing_ms = unacknowledged_ms = 0
        ages_ms: dict[int, int] = {}
        for queue_id, begin, ready, end in lags:
            age_ms = self._age_ms((topic, queue_id, begin), now_ms)
            ages_ms[queue_id] = age_ms
            messages += end - begin
            inflight += ready - begin
            lag_ms = max(lag_ms, age_ms)
            if ready > begin:
                unacknowledged_ms = max(unacknowledged_ms, age_ms)
            if ready < end:
                queueing_ms = max(queueing_ms, self._age_ms((topic, queue_id, ready), now_ms))
        is_retry = flag(topic.startswith(RETRY_PREFIX))
        system = is_system(group, topic)
        values = (*node, group, topic, is_retry, system)
        scrape.add(LAG, values, messages)
        scrape.add(LAG_LATENCY, values, lag_ms)
        scrape.add(INFLIGHT, values, inflight)
        scrape.add(READY, values, messages - inflight)
        scrape.add(QUEUEING_LATENCY, values, queueing_ms)
        scrape.add(OLDEST_UNACKNOWLEDGED, (*node, group, topic, system), unacknowledged_ms / 1000)
        for queue_id in queue_ids:
            age_s = ages_ms.get(queue_id, 0) / 1000
            scrape.add(QUEUE_LAG_SECONDS, (*node, group, topic, str(queue_id), system), age_s)
            await scrape.rest()

    def _age_ms(self, place: _Place, now_ms: int) -> int:
        """Return the age of a message; 0 when its store time is not known."""
        return max(0, now_ms - (self._times_ms.get(place) or now_ms))
