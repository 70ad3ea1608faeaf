"""Real topics of delayed, timed and half messages, recreated if a slave's table lacks one."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ternmq_broker.state.topics import TopicTable
from ternmq_model.clock import Clock
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import TopicConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RealTopics:
    """Finds the real topics of records. Owned by the broker's loop.

    The log of a slave equals its master's up to the last confirmed byte, but its tables may be a
    second older. After a promotion, a record of an earlier epoch may name a topic that the table
    lacks. Unless the topic was deleted since, it is recreated; otherwise the record would be lost.

    Args:
        topics: Table in which a topic is recreated.
        deletions: Returns the end of the log at the deletion of each topic.
        epoch_start: Log offset at which the bytes of the present master begin.
        clock: Clock for the version of the table.
        on_made: Called when a topic was recreated.
    """

    topics: TopicTable
    deletions: Callable[[], Mapping[str, PhysicalOffset]]
    epoch_start: PhysicalOffset
    clock: Clock
    on_made: Callable[[], None]

    def is_there(self, topic: str, stored_at: PhysicalOffset) -> bool:
        """Return whether `find` would find a topic, without recreating one.

        Args:
            topic: Name of the topic in the record.
            stored_at: Log offset of the waiting record.
        """
        if self.topics.get(topic) is not None:
            return True
        return self.deletions().get(topic, 0) <= stored_at < self.epoch_start

    def find(self, topic: str, queue_id: int, stored_at: PhysicalOffset) -> TopicConfig | None:
        """Return a topic, recreated if the table lacks it; None when it was deleted.

        Args:
            topic: Name of the topic in the record.
            queue_id: Queue of the record, which a recreated topic includes.
            stored_at: Log offset of the waiting record.

        Raises:
            IllegalName: The name is no legal topic name.
            RefusedError: The table is full.
        """
        config = self.topics.get(topic)
        if config is not None or stored_at >= self.epoch_start:
            return config
        if stored_at < self.deletions().get(topic, 0):
            return None
        made = TopicConfig(topic, queue_id + 1, queue_id + 1)
        self.topics.put(made, now_ms=self.clock.wall_ms())
        logger.warning(
            "topic recreated for a waiting record topic=%s queues=%d", topic, queue_id + 1
        )
        self.on_made()
        return made
