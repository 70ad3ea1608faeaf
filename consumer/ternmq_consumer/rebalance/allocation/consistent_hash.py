"""Shares by consistent hashing: they change little when members come and go. Pure."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import md5
from typing import Final

from ternmq_model.errors import ConfigError
from ternmq_model.queue import MessageQueue

VIRTUAL_NODES: Final = 10
"""Default number of a member's points on the ring."""

VIRTUAL_NODES_MAX: Final = 10_000


def hash_of(text: str) -> int:
    """Return the first four bytes of the MD5 of `text`, as an unsigned number.

    The hash is not for security: members in every language must compute equal points.

    Source: RocketMQ `ConsistentHashRouter.MD5Hash`.
    """
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def name_of(queue: MessageQueue) -> str:
    """Return the text of a queue in RocketMQ, which is hashed.

    Source: RocketMQ `MessageQueue.toString`.
    """
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


class AllocateByConsistentHash:
    """Strategy that puts members on a ring and gives each queue to the next member on it.

    When one of n members leaves, only its queues move, about the n-th part. Shares differ in size,
    and some may be empty.

    Args:
        virtual_nodes: Points of each member on the ring, 1 to 10,000. More points make shares more
            equal and their computation slower.
        hash_text: Function that returns the point of a text on the ring.

    Raises:
        ConfigError: `virtual_nodes` is out of its range.

    Source:
        RocketMQ `AllocateMessageQueueConsistentHash`, `ConsistentHashRouter`.
    """

    def __init__(
        self, virtual_nodes: int = VIRTUAL_NODES, *, hash_text: Callable[[str], int] = hash_of
    ) -> None:
        if not 1 <= virtual_nodes <= VIRTUAL_NODES_MAX:
            rule = f"must be 1 to {VIRTUAL_NODES_MAX}"
            raise ConfigError("consumer.allocate.virtual_nodes", virtual_nodes, rule)
        self._virtual_nodes = virtual_nodes
        self._hash_text = hash_text
        self._ring_of = lru_cache(maxsize=4)(self._make_ring)

    def __call__(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> Sequence[MessageQueue]:
        """Return the queues in front of `member` on the ring. See `AllocationStrategy`."""
        if member not in members:
            return []
        points, owners = self._ring_of(tuple(members))
        hash_text = self._hash_text
        return [
            queue
            for queue in queues
            if owners[bisect_left(points, hash_text(name_of(queue))) % len(points)] == member
        ]

    def _make_ring(self, members: tuple[str, ...]) -> tuple[list[int], list[str]]:
        """Return the ring's points, sorted, and the member of each.

        If two members have equal points, the later one gets the point.
        """
        ring = {
            self._hash_text(f"{member}-{number}"): member
            for member in members
            for number in range(self._virtual_nodes)
        }
        points = sorted(ring)
        return points, [ring[point] for point in points]
