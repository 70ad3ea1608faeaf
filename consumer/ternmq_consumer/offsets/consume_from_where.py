"""The offset at which a consumer begins in a queue.

Source: RocketMQ `RebalancePushImpl.computePullFromWhere`.
"""

import enum
from dataclasses import dataclass
from typing import Final

from ternmq_consumer.broker_connections import ReaderConnections
from ternmq_consumer.config import ConsumeFrom
from ternmq_consumer.offsets.offset_lookup import OffsetLookup
from ternmq_consumer.offsets.offset_store import OffsetStore
from ternmq_model.clock import Clock
from ternmq_model.names import RETRY_PREFIX
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue

TIME_DEFAULT_MS: Final = 30 * 60_000
"""Time before its start at which a consumer begins that begins at a time and was told none."""


class InitialPosition(enum.Enum):
    """Position at which a group begins in a queue that it never consumed."""

    BEGIN = enum.auto()
    END = enum.auto()
    TIME = enum.auto()


def initial_position(consume_from: ConsumeFrom, topic: str) -> InitialPosition:
    """Return the position at which a group begins in a queue of `topic` that it never consumed.

    What was sent back to a group is its own: it lies behind the place where the group began in the
    topic it came from, so of a retry topic `LAST_OFFSET` passes nothing over. With a time, what
    lies in a retry topic is of an earlier life of the group.
    """
    is_retry = topic.startswith(RETRY_PREFIX)
    match consume_from:
        case ConsumeFrom.FIRST_OFFSET:
            return InitialPosition.BEGIN
        case ConsumeFrom.LAST_OFFSET:
            return InitialPosition.BEGIN if is_retry else InitialPosition.END
        case ConsumeFrom.TIMESTAMP:
            return InitialPosition.END if is_retry else InitialPosition.TIME


@dataclass(frozen=True, slots=True)
class ConsumeFromPolicy:
    """Policy for the queues that a group never consumed: `ConsumeFrom`, with its time."""

    consume_from: ConsumeFrom
    at_ms: int
    """For `TIMESTAMP`: Unix milliseconds."""


def consume_from_policy(
    consume_from: ConsumeFrom, at_ms: int | None, clock: Clock
) -> ConsumeFromPolicy:
    """Return the policy of a consumer that starts now, with the default for the time."""
    default_ms = clock.wall_ms() - TIME_DEFAULT_MS
    return ConsumeFromPolicy(consume_from, default_ms if at_ms is None else at_ms)


class StartOffsets:
    """Offsets at which a consumer begins in its queues.

    Args:
        brokers: Gives the connections.
        offsets: Asked first. What a broker tells of a group that is new to it (the beginning of a
            young queue, or of every queue where the group's settings say so) counts alike.
        first: Decides for a queue that the group never consumed.
        timeout_s: For each request.
    """

    def __init__(
        self,
        brokers: ReaderConnections,
        offsets: OffsetStore,
        first: ConsumeFromPolicy,
        *,
        timeout_s: float,
    ) -> None:
        self._offset_lookup = OffsetLookup(brokers, timeout_s=timeout_s)
        self._offsets = offsets
        self._first = first

    async def find(
        self, queue: MessageQueue, since_ms: int | None = None
    ) -> tuple[QueueOffset, QueueOffset | None]:
        """Return where to begin, and what the broker has as the group's offset, if anything.

        Args:
            queue: Which one.
            since_ms: From when on nothing may be passed over, Unix milliseconds: the member has
                been there since, and the queue was added, or out of reach. None = from now on.

        Raises:
            TransportError: The broker did not answer.
            RefusedError: It said no.
        """
        told = await self._offsets.query(queue)
        if told is not None:
            return told.offset, told.offset if told.is_kept else None
        position = initial_position(self._first.consume_from, queue.topic)
        if position is InitialPosition.TIME:
            return await self._offset_lookup.at(queue, self._first.at_ms), None
        if position is InitialPosition.END and since_ms is not None:
            return await self._offset_lookup.at(queue, since_ms), None
        ends = await self._offset_lookup.range(queue)
        return ends.end if position is InitialPosition.END else ends.begin, None
