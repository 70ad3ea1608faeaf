"""Seeks of a push consumer."""

import logging
from abc import abstractmethod
from collections.abc import Iterable, Sequence

from ternmq_consumer.offsets.offset_lookup import OffsetLookup
from ternmq_consumer.offsets.seeks import QueueOffsets, Seek, SeekingConsumer, checked_offset
from ternmq_consumer.push.push_assignment import PushAssignment
from ternmq_model.errors import TernError, UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue

logger = logging.getLogger(__name__)


class SeekingPushConsumer(SeekingConsumer[bool]):
    """Base of the push consumer with its seeks.

    A failed seek that is not awaited is logged.
    """

    @property
    @abstractmethod
    def _owning(self) -> PushAssignment:
        """Queues of this member.

        Raises:
            ClosedError: The consumer is not open.
        """

    def seek(self, queue: MessageQueue, offset: int) -> Seek[bool]:
        """Seek `queue` to the message at `offset`, or to the first after it.

        Unfinished messages of the queue are dropped: a running listener call ends, and its result
        is ignored. The offset, also a lower one, is committed for the group, and later commits of
        earlier positions have no effect. The broker corrects an offset outside the queue to the
        nearest end.

        Args:
            queue: Queue of `assignment()`.
            offset: Offset, at least 0.

        Returns:
            Awaitable. True = the offset is committed. After False the next commits include it; the
            log has the reason.

        Raises:
            UsageError: The queue is not assigned to this member, or the offset is negative.
            ClosedError: The consumer is not open.
        """
        wanted = checked_offset(queue, offset)

        async def find() -> QueueOffsets:
            return {queue: wanted}

        return self._begin(self._sought((queue,)), find)

    def _sought(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        assigned = self._owning.queues
        for queue in queues:
            if queue not in assigned:
                raise UsageError(f"{queue} is not assigned to this member; it cannot seek there")
        return queues or assigned

    async def _lookup(self, queues: Iterable[MessageQueue]) -> OffsetLookup:
        return self._offset_lookup

    async def _go(self, offsets: Iterable[tuple[MessageQueue, QueueOffset]]) -> bool:
        owning = self._owning
        return all([await owning.seek(*each) for each in offsets if each[0] in owning.queues])

    def _fail(self, error: TernError) -> None:
        logger.warning("seek failed err=%s", error)
