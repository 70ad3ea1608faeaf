"""Going elsewhere in a queue: as a push consumer's application asks, and as brokers tell."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from ternmq_consumer.assignment import Assignment
from ternmq_consumer.offset_store import OffsetStore
from ternmq_consumer.queue_ends import QueueEnds
from ternmq_model.errors import UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_runtime.service import OwnedTasks


class SeekingConsumer(ABC):
    """The part of a push consumer that seeks."""

    @property
    @abstractmethod
    def _owning(self) -> Assignment:
        """The queues of this member.

        Raises:
            ClosedError: The consumer is not open.
        """

    @property
    @abstractmethod
    def _ends(self) -> QueueEnds:
        """Tells where queues end."""

    async def seek(self, queue: MessageQueue, offset: int) -> bool:
        """Let the next message of `queue` be the one at `offset`, or the first after it.

        What is in hand of the queue is dropped: a listener call that runs ends, and counts for
        nothing. The offset is committed for the group, also when it is lower than before, and
        commits of before count no more, whoever sends them. An offset outside the queue is
        corrected by the broker to its nearest end.

        Args:
            queue: One of `assignment()`. Another member's cannot be sought here.
            offset: 0 or more.

        Returns:
            Whether it is committed. If not, it will be with the next commits; the log says why.

        Raises:
            UsageError: The queue is not assigned to this member, or the offset is negative.
            ClosedError: The consumer is not open.
        """
        if offset < 0:
            raise UsageError(f"{queue}: offset {offset} is negative")
        return await self._owning.seek(queue, QueueOffset(offset))

    async def seek_to_begin(self, *queues: MessageQueue) -> bool:
        """Go to the oldest message of these queues; of all that are assigned if none is named.

        Returns and raises as `seek`, and:

        Raises:
            TransportError: A broker did not answer. Nothing was sought.
            RefusedError: One said no. Nothing was sought.
        """
        ranges = await self._ends.ranges(self._sought(queues))
        return await self._seek_all({queue: ends.begin for queue, ends in ranges.items()})

    async def seek_to_end(self, *queues: MessageQueue) -> bool:
        """Go behind the newest message of these queues; of all that are assigned if none is named.

        Returns and raises as `seek_to_begin`.
        """
        ranges = await self._ends.ranges(self._sought(queues))
        return await self._seek_all({queue: ends.end for queue, ends in ranges.items()})

    async def seek_to_time(self, at_ms: int, *queues: MessageQueue) -> bool:
        """Go to the first message stored at `at_ms` or later, Unix milliseconds.

        Where all are older, to the end of the queue. Returns and raises as `seek_to_begin`.
        """
        times_ms = dict.fromkeys(self._sought(queues), at_ms)
        return await self._seek_all(await self._ends.at_times(times_ms))

    def _sought(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        assigned = self._owning.queues
        for queue in queues:
            if queue not in assigned:
                raise UsageError(f"{queue} is not assigned to this member; it cannot seek there")
        return queues or assigned

    async def _seek_all(self, offsets: Mapping[MessageQueue, QueueOffset]) -> bool:
        are_committed = [await self.seek(queue, offset) for queue, offset in offsets.items()]
        return all(are_committed)


def resets_of(
    group: str, reset: Callable[[MessageQueue, QueueOffset, int], None]
) -> Callable[[groups.SessionReply, str], None]:
    """Return what takes a broker's `offsets_reset` and tells `reset` of each queue of `group`."""

    def take(reply: groups.SessionReply, broker_name: str) -> None:
        told = reply.offsets_reset
        if told.group == group:
            for each in told.offsets:
                queue = MessageQueue(each.topic, broker_name, each.queue_id)
                reset(queue, QueueOffset(each.offset), each.version)

    return take


def looks_for_resets(
    tasks: OwnedTasks, offsets: OffsetStore
) -> Callable[[groups.SessionReply, str], None]:
    """Return what has `offsets` look for resets at each broker whose Session is open anew."""

    def look(_welcome: groups.SessionReply, broker_name: str) -> None:
        tasks.spawn(offsets.look_for_resets(broker_name), f"look for resets at {broker_name}")

    return look
