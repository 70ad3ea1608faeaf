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
    """Base of the push consumer with its seeks.

    Every seek begins at once, also without `await`. A failed seek that is not awaited is logged.

    Args:
        client: Client with routes and connections.
    """

    def __init__(self, client: ClientInstance) -> None:
        self._client = client
        self._seeks = Seeks(self._go, lambda error: logger.warning("seek failed error=%s", error))

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

        return self._begin((queue,), find)

    def seek_to_begin(self, *queues: MessageQueue) -> Seek[bool]:
        """Seek these queues, or all assigned ones, to their oldest message.

        Queues that are given up meanwhile are left out. The result and the other errors are those
        of `seek`.

        Raises:
            TransportError: A broker does not answer. No position changes.
            RefusedError: A broker refuses the request. No position changes.
        """
        sought = queues or self._owning.queues
        return self._begin(sought, lambda: self._offset_lookup.begins(sought))

    def seek_to_end(self, *queues: MessageQueue) -> Seek[bool]:
        """Seek these queues, or all assigned ones, behind their newest message.

        Await the seek before a send of messages that must be read. Result and errors are those of
        `seek_to_begin`.
        """
        sought = queues or self._owning.queues
        return self._begin(sought, lambda: self._offset_lookup.ends(sought))

    def seek_to_time(self, at_ms: int, *queues: MessageQueue) -> Seek[bool]:
        """Seek to the first message stored at `at_ms` (Unix ms) or later, else to the end.

        Result and errors are those of `seek_to_begin`. An illegal `at_ms` raises `UsageError` at
        once.
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
