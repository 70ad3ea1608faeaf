"""Going elsewhere in the queues of a pull consumer, and what one can go by."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from ternmq_client.instance import ClientInstance
from ternmq_consumer.pull_group import PullParts
from ternmq_consumer.pull_queues import PullQueues
from ternmq_consumer.queue_ends import QueueEnds
from ternmq_model.errors import UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue


class SeekingPuller(ABC):
    """The part of a pull consumer that seeks.

    Args:
        client: Gives routes and connections.
        queues: What is assigned.
    """

    def __init__(self, client: ClientInstance, queues: PullQueues) -> None:
        self._client = client
        self._queues = queues

    @property
    @abstractmethod
    def _parts(self) -> PullParts:
        """What reading stands on.

        Raises:
            ClosedError: The consumer is not open.
        """

    @abstractmethod
    def _is_new(self, queue: MessageQueue) -> bool:
        """Tell whether the next poll begins to read `queue`, when it knows who serves it."""

    def position(self, queue: MessageQueue) -> QueueOffset | None:
        """Return the offset of the next message; None before the first `poll` has found it out.

        Raises:
            UsageError: The queue is not assigned.
        """
        return self._queues.get(queue).position

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Let the next message of `queue` be the one at `offset`, or the first after it.

        An offset before the first message or after the last one is corrected by the broker to
        the nearest that is. The next commit keeps it for the group, also when it is lower.

        Raises:
            UsageError: The queue is not assigned, or the offset is negative.
        """
        if offset < 0:
            raise UsageError(f"{queue}: offset {offset} is negative")
        fetched = self._queues.get(queue)
        parts = self._parts
        if fetched.position is None:
            parts.offsets.begin(queue, QueueOffset(offset), None)
        parts.offsets.restart(queue, QueueOffset(offset))
        if self._is_new(queue):
            fetched.stop()
            fetched.place(QueueOffset(offset))
        else:
            fetched.start(parts.links, QueueOffset(offset))

    async def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go to the oldest message of these queues; of all that are assigned if none is named.

        Raises:
            UsageError: A queue is not assigned. Nothing was sought.
            TransportError: A broker did not answer. Nothing was sought.
        """
        for queue, offset in (await self.begin_offsets(self._sought(queues))).items():
            self.seek(queue, offset)

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go behind the newest message of these queues; of all that are assigned if none is named.

        Raises as `seek_to_begin`.
        """
        for queue, offset in (await self.end_offsets(self._sought(queues))).items():
            self.seek(queue, offset)

    async def seek_to_time(self, at_ms: int, *queues: MessageQueue) -> None:
        """Go to the first message stored at `at_ms` or later, Unix milliseconds, else to the end.

        Raises as `seek_to_begin`.
        """
        times_ms = dict.fromkeys(self._sought(queues), at_ms)
        for queue, offset in (await self.offsets_for_times(times_ms)).items():
            self.seek(queue, offset)

    async def begin_offsets(
        self, queues: Iterable[MessageQueue]
    ) -> dict[MessageQueue, QueueOffset]:
        """Return the offset of the oldest message of each queue.

        Raises:
            TopicNotFound: Nobody has the topic.
            TransportError: A broker did not answer.
        """
        wanted = await self._routed(queues)
        return {queue: ends.begin for queue, ends in (await self._ends.ranges(wanted)).items()}

    async def end_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueOffset]:
        """Return the offset that the next message of each queue will have.

        Raises:
            TopicNotFound: Nobody has the topic.
            TransportError: A broker did not answer.
        """
        wanted = await self._routed(queues)
        return {queue: ends.end for queue, ends in (await self._ends.ranges(wanted)).items()}

    async def offsets_for_times(
        self, times_ms: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, QueueOffset]:
        """Return the offset of the first message stored at a time or later, else the queue's end.

        Args:
            times_ms: Unix milliseconds, by queue.

        Raises:
            TopicNotFound: Nobody has the topic.
            TransportError: A broker did not answer.
        """
        await self._routed(times_ms)
        return await self._ends.at_times(times_ms)

    async def _routed(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Return `queues`, with routes known that tell who serves them."""
        wanted = list(queues)
        for topic in dict.fromkeys(queue.topic for queue in wanted):
            await self._client.routes.route(topic)
        return wanted

    def _sought(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        for queue in queues:
            self._queues.get(queue)
        return queues or self._queues.names

    @property
    def _ends(self) -> QueueEnds:
        return QueueEnds(self._client, timeout_s=self._client.config.request_timeout_s)
