"""Seeks of a push consumer."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence

from ternmq_client.instance import ClientInstance
from ternmq_consumer.offsets.offset_lookup import OffsetLookup
from ternmq_consumer.offsets.seeks import QueueOffsets, Seek, Seeks, checked_offset
from ternmq_consumer.push.push_assignment import PushAssignment
from ternmq_model.arguments import check_time_ms
from ternmq_model.errors import UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue

logger = logging.getLogger(__name__)


class SeekingPushConsumer(ABC):
    """The part of a push consumer that seeks.

    Every verb begins at once, whether it is awaited or not; what it returns may be awaited. A seek
    that fails and is not awaited is logged.

    Args:
        client: Gives routes and connections.
    """

    def __init__(self, client: ClientInstance) -> None:
        self._client = client
        self._seeks = Seeks(self._go, lambda error: logger.warning("seek failed error=%s", error))

    @property
    @abstractmethod
    def _owning(self) -> PushAssignment:
        """The queues of this member.

        Raises:
            ClosedError: The consumer is not open.
        """

    def seek(self, queue: MessageQueue, offset: int) -> Seek[bool]:
        """Seek `queue` to the message at `offset`, or to the first after it.

        What is in hand of the queue is dropped: a listener call that runs ends, and counts for
        nothing. The offset is committed for the group, also when it is lower than before, and
        commits of before count no more, whoever sends them. An offset outside the queue is
        corrected by the broker to its nearest end.

        Args:
            queue: One of `assignment()`. Another member's cannot be sought here.
            offset: 0 or more.

        Returns:
            Awaited: whether it is committed. If not, it will be with the next commits; the log says
            why.

        Raises:
            UsageError: The queue is not assigned to this member, or the offset is negative.
            ClosedError: The consumer is not open.
        """
        wanted = checked_offset(queue, offset)

        async def find() -> QueueOffsets:
            return {queue: wanted}

        return self._begin((queue,), find)

    def seek_to_begin(self, *queues: MessageQueue) -> Seek[bool]:
        """Go to the oldest message of these queues; of all that are assigned if none is named.

        A queue that is given up meanwhile is left out. Returns and raises as `seek`; awaited it
        also raises:

        Raises:
            TransportError: A broker did not answer. Nothing was sought.
            RefusedError: One said no. Nothing was sought.
        """
        sought = queues or self._owning.queues
        return self._begin(sought, lambda: self._offset_lookup.begins(sought))

    def seek_to_end(self, *queues: MessageQueue) -> Seek[bool]:
        """Go behind the newest message of these queues; of all that are assigned if none is named.

        Await it where what is sent next is to be read. Returns and raises as `seek_to_begin`.
        """
        sought = queues or self._owning.queues
        return self._begin(sought, lambda: self._offset_lookup.ends(sought))

    def seek_to_time(self, at_ms: int, *queues: MessageQueue) -> Seek[bool]:
        """Go to the first message stored at `at_ms` or later, Unix milliseconds.

        Where all are older, to the end of the queue. Returns and raises as `seek_to_begin`, and
        raises `UsageError` at once where `at_ms` is no such time.
        """
        at_ms = check_time_ms("at_ms", at_ms)
        sought = queues or self._owning.queues
        return self._begin(
            sought, lambda: self._offset_lookup.at_times(dict.fromkeys(sought, at_ms))
        )

    def _begin(
        self, queues: Sequence[MessageQueue], find: Callable[[], Awaitable[QueueOffsets]]
    ) -> Seek[bool]:
        assigned = self._owning.queues
        for queue in queues:
            if queue not in assigned:
                raise UsageError(f"{queue} is not assigned to this member; it cannot seek there")
        return self._seeks.begin(self._client.tasks, queues, find)

    async def _go(self, offsets: Iterable[tuple[MessageQueue, QueueOffset]]) -> bool:
        owning = self._owning
        return all([await owning.seek(*each) for each in offsets if each[0] in owning.queues])

    @property
    def _offset_lookup(self) -> OffsetLookup:
        return OffsetLookup(self._client, timeout_s=self._client.config.request_timeout_s)
