"""Seeks of a pull consumer, and queries of offsets."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from ternmq_client.instance import ClientInstance
from ternmq_consumer.offsets.offset_lookup import OffsetLookup
from ternmq_consumer.offsets.seeks import QueueOffsets, Seek, Seeks, checked_offset
from ternmq_consumer.pull.pull_assignment import PullContext
from ternmq_consumer.pull.pull_queues import PullQueues
from ternmq_model.arguments import check_time_ms
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue


class SeekingPullConsumer(ABC):
    """Base of the pull consumer with its seeks.

    Args:
        client: Client with routes and connections.
        queues: Queues of the consumer.
    """

    def __init__(self, client: ClientInstance, queues: PullQueues) -> None:
        self._client = client
        self._queues = queues
        self._seeks = Seeks(self._go, self._fail)

    @abstractmethod
    def _fail(self, error: Exception) -> None:
        """Store `error` for the next poll to raise."""

    @property
    @abstractmethod
    def _context(self) -> PullContext:
        """Context of what reads the queues.

        Raises:
            ClosedError: The consumer is not open.
        """

    @abstractmethod
    def _is_new(self, queue: MessageQueue) -> bool:
        """Return whether `queue` has no start offset yet."""

    def position(self, queue: MessageQueue) -> QueueOffset | None:
        """Return the offset of the next message; None = no `poll` has resolved the begin yet.

        Raises:
            UsageError: The queue is not assigned.
        """
        return self._queues.get(queue).position

    def seek(self, queue: MessageQueue, offset: int) -> Seek[None]:
        """Seek `queue` to the message at `offset`, or to the first after it.

        The broker corrects an offset outside the queue to the nearest one inside. The next commit
        stores the offset for the group, also a lower one. The seek is complete when the call
        returns; awaiting the result is not needed.

        Raises:
            UsageError: The queue is not assigned, or the offset is negative.
            RuntimeError: The caller is not on the event loop, for example another thread.
        """
        wanted = checked_offset(queue, offset)
        done = asyncio.get_running_loop().create_future()
        fetched = self._queues.get(queue)
        context = self._context
        self._seeks.supersede(queue)
        if fetched.position is None:
            context.offsets.begin(queue, wanted, None)
        context.offsets.restart(queue, wanted)
        if self._is_new(queue):
            fetched.stop()
            fetched.place(wanted)
        else:
            fetched.start(context.links, wanted)
        done.set_result(None)
        return Seek(done)

    def seek_to_begin(self, *queues: MessageQueue) -> Seek[None]:
        """Seek these queues, or all assigned ones, to their oldest message.

        The seek begins at once, also without `await`: the next `poll` waits for its end. Queues
        that are given up meanwhile are left out.

        Raises:
            UsageError: A queue is not assigned. No position changes.
            TransportError: A broker does not answer. No position changes. The await of the seek
                raises the error, else the next `poll`.
        """
        sought = self._sought(queues)
        return self._begin(sought, lambda: self.begin_offsets(sought))

    def seek_to_end(self, *queues: MessageQueue) -> Seek[None]:
        """Seek these queues, or all assigned ones, behind their newest message.

        Await the seek before a send of messages that must be read. Otherwise see `seek_to_begin`.
        """
        sought = self._sought(queues)
        return self._begin(sought, lambda: self.end_offsets(sought))

    def seek_to_time(self, at_ms: int, *queues: MessageQueue) -> Seek[None]:
        """Seek to the first message stored at `at_ms` (Unix ms) or later, else to the end.

        See `seek_to_begin`. An illegal `at_ms` raises `UsageError`.
        """
        at_ms = check_time_ms("at_ms", at_ms)
        sought = self._sought(queues)
        times_ms = dict.fromkeys(sought, at_ms)
        return self._begin(sought, lambda: self.offsets_for_times(times_ms))

    def _begin(
        self, queues: Sequence[MessageQueue], find: Callable[[], Awaitable[QueueOffsets]]
    ) -> Seek[None]:
        assert self._context, "is open"
        return self._seeks.begin(self._client.tasks, queues, find)

    async def _go(self, offsets: Iterable[tuple[MessageQueue, QueueOffset]]) -> None:
        for queue, offset in offsets:
            if self._queues.find(queue) is not None:
                self.seek(queue, offset)

    async def begin_offsets(
        self, queues: Iterable[MessageQueue]
    ) -> dict[MessageQueue, QueueOffset]:
        """Return the offset of the oldest message of each queue.

        Raises:
            TopicNotFound: No NameServer knows the topic.
            TransportError: A broker does not answer.
        """
        return await self._offset_lookup.begins(await self._routed(queues))

    async def end_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueOffset]:
        """Return the offset that the next message of each queue will have.

        Raises:
            TopicNotFound: No NameServer knows the topic.
            TransportError: A broker does not answer.
        """
        return await self._offset_lookup.ends(await self._routed(queues))

    async def offsets_for_times(
        self, times_ms: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, QueueOffset]:
        """Return the offset of the first message stored at a time or later, else the queue's end.

        Args:
            times_ms: Time for each queue, Unix ms.

        Raises:
            TopicNotFound: No NameServer knows the topic.
            TransportError: A broker does not answer.
        """
        await self._routed(times_ms)
        return await self._offset_lookup.at_times(times_ms)

    async def _routed(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Return `queues` after their routes are loaded."""
        wanted = list(queues)
        for topic in dict.fromkeys(queue.topic for queue in wanted):
            await self._client.routes.route(topic)
        return wanted

    def _sought(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        for queue in queues:
            self._queues.get(queue)
        return queues or self._queues.names

    @property
    def _offset_lookup(self) -> OffsetLookup:
        return OffsetLookup(self._client, timeout_s=self._client.config.request_timeout_s)
