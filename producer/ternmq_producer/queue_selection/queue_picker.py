"""Round robin over the queues of a topic, and the queue of a sharding key. Pure."""

from collections.abc import Callable, Sequence
from typing import Final

from ternmq_model.properties import java_hash
from ternmq_model.queue import MessageQueue

KEYS_REMEMBERED_MAX: Final = 65_536
"""Hashes of sharding keys that are kept; hashing one takes as long as encoding its message."""


class QueuePicker:
    """Chooses among the queues of one topic's route. Owned by a producer.

    Args:
        queues: At least one; sorted, so that all producers map a key to the same queue.
        start: Where the round begins. Random, or all producers would begin at the first broker.
    """

    def __init__(self, queues: Sequence[MessageQueue], *, start: int) -> None:
        self.queues = tuple(queues)
        self.count = len(self.queues)
        self.next_index = start % self.count
        """Index where the round goes on. The fast paths of a producer move it themselves."""

        self._index_by_key: dict[str, int] = {}

    def next(self) -> int:
        """Return the index of the next queue of the round."""
        index = self.next_index
        self.next_index = index + 1 if index + 1 < self.count else 0
        return index

    def next_where(self, is_fit: Callable[[MessageQueue], bool]) -> int:
        """Return the index of the next queue of the round that is fit, or of the next if none is.

        Source:
            RocketMQ `TopicPublishInfo.selectOneMessageQueue`.
        """
        for _ in range(self.count):
            index = self.next()
            if is_fit(self.queues[index]):
                return index
        return self.next()

    def skip(self, count: int) -> int:
        """Return the index of the next queue, and move the round on by `count` messages."""
        index = self.next_index
        self.next_index = (index + count) % self.count
        return index

    def index_of_key(self, sharding_key: str) -> int:
        """Return the index of the queue that messages with `sharding_key` go to.

        Source:
            RocketMQ `SelectMessageQueueByHash`.
        """
        index = self._index_by_key.get(sharding_key)
        if index is None:
            if len(self._index_by_key) >= KEYS_REMEMBERED_MAX:
                self._index_by_key.clear()
            index = abs(java_hash(sharding_key)) % self.count
            self._index_by_key[sharding_key] = index
        return index
