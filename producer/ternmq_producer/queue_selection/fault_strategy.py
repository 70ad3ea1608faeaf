"""Fault strategy: the choice of queues while some brokers are out of reach or slow.

Source: RocketMQ `MQFaultStrategy`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.queue import MessageQueue
from ternmq_producer.config import ProducerConfig
from ternmq_producer.queue_selection.latency_fault import FAULT_RULES, LatencyFaultTolerance
from ternmq_producer.queue_selection.topic_publish_info import TopicPublishInfo
from ternmq_producer.send_statistics import BrokerSends
from ternmq_producer.send_stream.broker_link import BrokerLink
from ternmq_remoting.environment import Environment

if TYPE_CHECKING:
    from ternmq_runtime.timers import TimerHandle


class FaultStrategy:
    """Brokers that a producer avoids at present. Sets `is_avoided` of its links.

    A broker out of reach is always avoided for the moment; slow and failed brokers are avoided by
    the fault table, when it is switched on. An avoided broker is used when there is no other.

    Args:
        config: Settings of the producer.
        env: Clock and timers of the isolations.
        links: Links of the producer by broker name.
    """

    def __init__(
        self, config: ProducerConfig, env: Environment, links: Mapping[str, BrokerLink]
    ) -> None:
        self._clock = env.clock
        self._timers = env.timers
        self._links = links
        self._faults = (
            LatencyFaultTolerance(FAULT_RULES[config.latency_fault_rule])
            if config.latency_fault_tolerance
            else None
        )
        self._avoiding: dict[str, TimerHandle] = {}

    def close(self) -> None:
        """Cancel the timers."""
        for timer in self._avoiding.values():
            timer.cancel()
        self._avoiding.clear()

    def answered(self, link: BrokerLink, latency_ms: int) -> None:
        """Record the time from writing a batch to its answer."""
        if self._faults is not None:
            self._faults.answered(link.broker_name, latency_ms, now_ms=self._clock.monotonic_ms())
            self.rested(link)

    def failed(self, link: BrokerLink) -> None:
        """Record that a broker was out of reach, or refused a batch for a reason of its own."""
        if self._faults is not None:
            self._faults.failed(link.broker_name, now_ms=self._clock.monotonic_ms())
        self.rested(link)

    def rested(self, link: BrokerLink) -> None:
        """Set whether a broker is avoided, and the timer for the end of its isolation."""
        name = link.broker_name
        isolated_ms = self.isolated_ms(name)
        link.is_avoided = link.is_down or link.is_leaving or isolated_ms > 0
        timer = self._avoiding.pop(name, None)
        if timer is not None:
            timer.cancel()
        if isolated_ms:
            self._avoiding[name] = self._timers.call_later(isolated_ms / 1000, self.rested, link)

    def isolated_ms(self, broker_name: str) -> int:
        """Return the rest of a broker's isolation for its latency or failure, ms."""
        if self._faults is None:
            return 0
        return self._faults.isolated_ms(broker_name, now_ms=self._clock.monotonic_ms())

    def sends(self) -> dict[str, BrokerSends]:
        """Return the counters, the isolation and the reachability of each broker."""
        return {
            name: BrokerSends(
                stored=link.counts.stored,
                failures=link.counts.failures,
                retries=link.counts.retries,
                latency_ms=link.counts.latency_ms,
                isolated_ms=self.isolated_ms(name),
                is_reachable=not link.is_away,
            )
            for name, link in sorted(self._links.items())
        }

    def next_but(self, publish_info: TopicPublishInfo, avoid: str) -> int:
        """Return the next queue of the round for a retry, best one of another broker in order."""
        index = publish_info.next_where(lambda queue: self._is_better(queue, avoid))
        if publish_info.links[index].is_avoided or publish_info.queues[index].broker_name == avoid:
            index = publish_info.next_where(lambda queue: queue.broker_name != avoid)
        return index

    def _is_better(self, queue: MessageQueue, avoid: str) -> bool:
        link = self._links.get(queue.broker_name)
        return queue.broker_name != avoid and (link is None or not link.is_avoided)

    def next_index(self, publish_info: TopicPublishInfo) -> int:
        """Return the next queue of the round, best one whose broker is not avoided."""
        index = publish_info.next()
        if not publish_info.links[index].is_avoided:
            return index
        index = publish_info.next_where(lambda queue: self._is_better(queue, ""))
        if self._faults is not None and publish_info.links[index].is_avoided:
            names = [link.broker_name for link in publish_info.links if not link.is_down]
            if names:
                now_ms = self._clock.monotonic_ms()
                name = self._faults.pick_one_at_least(names, now_ms=now_ms)
                index = publish_info.next_where(lambda queue: queue.broker_name == name)
        return index

    def turns(self, publish_info: TopicPublishInfo, count: int) -> Ints:
        """Return the indices of the queues of the next `count` messages of a round.

        Queues of avoided brokers are left out, if there are others.
        """
        first = self.next_index(publish_info)
        publish_info.skip(count - 1)
        queues = publish_info.queues
        turns = [*range(first, len(queues)), *range(first)]
        if any(link.is_avoided for link in self._links.values()):
            turns = [turn for turn in turns if self._is_better(queues[turn], "")] or turns
        return np.resize(np.array(turns), count)
