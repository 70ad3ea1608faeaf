"""Seeks of a pull consumer, and queries of offsets."""

import asyncio
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from ternmq_client.instance import ClientInstance
from ternmq_consumer.offsets.offset_lookup import OffsetLookup
from ternmq_consumer.offsets.seeks import Seek, SeekingConsumer, checked_offset
from ternmq_consumer.pull.pull_assignment import PullContext
from ternmq_consumer.pull.pull_queues import PullQueues
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue


class SeekingPullConsumer(SeekingConsumer[None]):
    """Base of the pull consumer with its seeks.

    Args:
        client: Client with routes and connections.
        queues: Queues of the consumer.
    """

    def __init__(self, client: ClientInstance, queues: PullQueues) -> None:
        super().__init__(client)
        self._queues = queues

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
        returns, also without `await`.

        Raises:
            UsageError: The queue is not assigned, or the offset is negative.
            RuntimeError: An async consumer was called outside its event loop, for example by
                another thread.
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
        wanted = list(queues)
        return await (await self._lookup(wanted)).begins(wanted)

    async def end_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueOffset]:
        """Return the offset that the next message of each queue will have.

        Raises:
            TopicNotFound: No NameServer knows the topic.
            TransportError: A broker does not answer.
        """
        wanted = list(queues)
        return await (await self._lookup(wanted)).ends(wanted)

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
        return await (await self._lookup(times_ms)).at_times(times_ms)

    async def _lookup(self, queues: Iterable[MessageQueue]) -> OffsetLookup:
        for topic in dict.fromkeys(queue.topic for queue in queues):
            await self._client.routes.route(topic)
        return self._offset_lookup

    def _sought(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        _ = self._context  # raises where the consumer is not open
        for queue in queues:
            self._queues.get(queue)
        return queues or self._queues.names
