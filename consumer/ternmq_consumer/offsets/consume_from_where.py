"""Where consuming a queue begins.

Source: RocketMQ `RebalancePushImpl.computePullFromWhere`.
"""

import enum
from dataclasses import dataclass
from typing import Final

from ternmq_consumer.broker_connections import ReaderConnections
from ternmq_consumer.config import ConsumeFrom
from ternmq_consumer.offsets.offset_lookup import QueueEnds
from ternmq_consumer.offsets.offset_store import ConsumedOffsets
from ternmq_model.clock import Clock
from ternmq_model.names import RETRY_PREFIX
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue

TIME_DEFAULT_MS: Final = 30 * 60_000
"""How long before its start a consumer begins that begins at a time and was told none."""


class Place(enum.Enum):
    """A place in a queue."""

    BEGIN = enum.auto()
    END = enum.auto()
    TIME = enum.auto()


def first_place(consume_from: ConsumeFrom, topic: str) -> Place:
    """Return where a group begins in a queue of `topic` that it never consumed.

    What was sent back to a group is its own: it lies behind the place where the group began in the
    topic it came from, so of a retry topic `LAST_OFFSET` passes nothing over. With a time, what
    lies in a retry topic is of an earlier life of the group.
    """
    is_retry = topic.startswith(RETRY_PREFIX)
    match consume_from:
        case ConsumeFrom.FIRST_OFFSET:
            return Place.BEGIN
        case ConsumeFrom.LAST_OFFSET:
            return Place.BEGIN if is_retry else Place.END
        case ConsumeFrom.TIMESTAMP:
            return Place.END if is_retry else Place.TIME


@dataclass(frozen=True, slots=True)
class FirstStart:
    """Where a group begins that never consumed a queue."""

    consume_from: ConsumeFrom
    at_ms: int
    """For `TIMESTAMP`: Unix milliseconds."""


def first_start(consume_from: ConsumeFrom, at_ms: int | None, clock: Clock) -> FirstStart:
    """Return what a consumer that starts now was told, with the default for the time."""
    default_ms = clock.wall_ms() - TIME_DEFAULT_MS
    return FirstStart(consume_from, default_ms if at_ms is None else at_ms)


class StartingPoints:
    """Where a consumer begins in its queues.

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
        offsets: ConsumedOffsets,
        first: FirstStart,
        *,
        timeout_s: float,
    ) -> None:
        self._ends = QueueEnds(brokers, timeout_s=timeout_s)
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
        place = first_place(self._first.consume_from, queue.topic)
        if place is Place.TIME:
            return await self._ends.at(queue, self._first.at_ms), None
        if place is Place.END and since_ms is not None:
            return await self._ends.at(queue, since_ms), None
        ends = await self._ends.range(queue)
        return ends.end if place is Place.END else ends.begin, None
