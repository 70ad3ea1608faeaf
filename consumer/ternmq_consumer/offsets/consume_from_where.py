"""Start offset of a consumer in a queue.

Source: RocketMQ `RebalancePushImpl.computePullFromWhere`.
"""

import asyncio
import enum
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from ternmq_consumer.broker_connections import ReaderConnections
from ternmq_consumer.config import ConsumeFrom
from ternmq_consumer.offsets.offset_lookup import OffsetLookup
from ternmq_consumer.offsets.offset_store import OffsetStore
from ternmq_model.clock import Clock
from ternmq_model.errors import TernError
from ternmq_model.names import RETRY_PREFIX
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue

logger = logging.getLogger(__name__)

TIME_DEFAULT_MS: Final = 30 * 60_000
"""Default of the start time for `TIMESTAMP`: this time before the start of the consumer, ms."""


class InitialPosition(enum.Enum):
    """Position at which a group begins in a queue that it never consumed."""

    BEGIN = enum.auto()
    END = enum.auto()
    TIME = enum.auto()


def initial_position(consume_from: ConsumeFrom, topic: str) -> InitialPosition:
    """Return the position at which a group begins in a queue of `topic` that it never consumed.

    Messages of a group's retry topic come from behind the group's start in their original topic, so
    `LAST_OFFSET` skips none of them. With `TIMESTAMP`, older messages of a retry topic belong to an
    earlier use of the group's name.
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
    """Policy for queues that a group never consumed: `ConsumeFrom` with its time."""

    consume_from: ConsumeFrom
    at_ms: int
    """Start time for `TIMESTAMP`, Unix milliseconds."""


def consume_from_policy(
    consume_from: ConsumeFrom, at_ms: int | None, clock: Clock
) -> ConsumeFromPolicy:
    """Return the policy of a consumer that starts now, with the default of the time."""
    default_ms = clock.wall_ms() - TIME_DEFAULT_MS
    return ConsumeFromPolicy(consume_from, default_ms if at_ms is None else at_ms)


class StartOffsets:
    """Start offsets of a consumer in its queues.

    Args:
        offsets: Store of the offsets, queried first. A broker may return a start offset for a new
            group: the begin of a young queue, or of every queue by the group's settings.
        first: Policy for queues that the group never consumed.
        timeout_s: Timeout of each request, s.
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
        """Return the start offset, and the group's offset at the broker, if any.

        Args:
            queue: Name of the queue.
            since_ms: Time from which no message may be skipped, Unix ms: the member has been there
                since, and the queue was added later or could not be reached. None = now.

        Raises:
            TransportError: The broker does not answer.
            RefusedError: The broker refuses the request.
        """
        queried = await self._offsets.query(queue)
        if queried is not None:
            return queried.offset, queried.offset if queried.is_kept else None
        position = initial_position(self._first.consume_from, queue.topic)
        if position is InitialPosition.TIME:
            return await self._offset_lookup.at(queue, self._first.at_ms), None
        if position is InitialPosition.END and since_ms is not None:
            return await self._offset_lookup.at(queue, since_ms), None
        ends = await self._offset_lookup.range(queue)
        return ends.end if position is InitialPosition.END else ends.begin, None

    async def begin(
        self,
        queues: Iterable[MessageQueue],
        since_ms: int | None,
        apply_resets: Callable[[], None],
    ) -> dict[MessageQueue, QueueOffset]:
        """Add queues to the offset store; return where each begins.

        The offset of a queue that is new to the group is committed before its first message is
        read: should this member leave before it has finished anything, the next one must not
        begin at a later end. A queue for which that fails is left out, and logged.

        Args:
            queues: Queues that the store does not have.
            since_ms: See `find`.
            apply_resets: Called once the store has the queues: applies the resets that came
                meanwhile.
        """
        async with asyncio.TaskGroup() as questions:
            asked = {
                queue: questions.create_task(
                    self._find_logged(queue, since_ms), name=f"start {queue}"
                )
                for queue in queues
            }
        found = {queue: start for queue, task in asked.items() if (start := task.result())}
        for queue, (offset, committed) in found.items():
            self._offsets.begin(queue, offset, committed)
        apply_resets()
        await self._offsets.commit(found)
        not_begun = [queue for queue in found if not self._offsets.has_begun(queue)]
        self._offsets.forget(not_begun)
        return {queue: found[queue][0] for queue in found if queue not in not_begun}

    async def _find_logged(
        self, queue: MessageQueue, since_ms: int | None
    ) -> tuple[QueueOffset, QueueOffset | None] | None:
        try:
            return await self.find(queue, since_ms)
        except TernError as error:
            logger.warning("queue not taken over queue=%s err=%s", queue, error)
            return None
