"""Going elsewhere in a queue: as a push consumer's application asks, and as brokers tell."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

from ternmq_client.instance import ClientInstance
from ternmq_consumer.offsets.offset_lookup import OffsetLookup
from ternmq_consumer.offsets.remote_offset_store import RemoteOffsetStore
from ternmq_consumer.push.push_assignment import Assignment
from ternmq_model.arguments import check_time_ms, is_whole
from ternmq_model.errors import ClosedError, TernError, UsageError
from ternmq_model.offsets import OFFSET_MAX, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_runtime.service import OwnedTasks

logger = logging.getLogger(__name__)

Offsets = Mapping[MessageQueue, QueueOffset]
T = TypeVar("T")


class Seek(Coroutine[Any, Any, T]):
    """A seek that has begun, and goes on whether it is awaited or not.

    Awaiting it returns what the seek came to, or raises why it failed. Cancelling that wait cancels
    the seek. `asyncio.create_task` takes it as it takes every coroutine.

    Attributes:
        is_awaited: Somebody learns how it ends.
    """

    def __init__(self, ending: asyncio.Future[T | TernError]) -> None:
        self.is_awaited = False
        self._ending = ending
        self._waiting: Coroutine[Any, Any, T] | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        self.is_awaited = True
        return self._ended().__await__()

    def send(self, value: Any, /) -> Any:
        """Go on waiting: for the task that has it as its coroutine."""
        return self._as_coroutine().send(value)

    def throw(
        self,
        error: Any,
        value: object = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Any:
        """End waiting by an error: for the task that has it as its coroutine."""
        return self._as_coroutine().throw(error)

    def close(self) -> None:
        """Wait no more; the seek goes on. Safe to repeat."""
        if self._waiting is not None:
            self._waiting.close()

    def _as_coroutine(self) -> Coroutine[Any, Any, T]:
        self.is_awaited = True
        if self._waiting is None:
            self._waiting = self._ended()
        return self._waiting

    async def _ended(self) -> T:
        try:
            ended = await self._ending
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if waiting is not None and waiting.cancelling():
                raise
            raise ClosedError("the consumer was closed during a seek") from None
        if isinstance(ended, TernError):
            raise ended
        return ended


class Seeks(Generic[T]):
    """The seeks of one consumer that are under way. Of two of one queue the later one counts.

    Args:
        go: Goes to these offsets, one after the other: each is asked for when its turn has come.
        on_failed: Called with why a seek failed that nobody awaits.
    """

    def __init__(
        self,
        go: Callable[[Iterable[tuple[MessageQueue, QueueOffset]]], Awaitable[T]],
        on_failed: Callable[[TernError], None],
    ) -> None:
        self._go = go
        self._on_failed = on_failed
        self._newest: dict[MessageQueue, object] = {}
        self._tasks: dict[asyncio.Task[T | TernError], None] = {}

    def begin(
        self,
        tasks: OwnedTasks,
        queues: Iterable[MessageQueue],
        find: Callable[[], Awaitable[Offsets]],
    ) -> Seek[T]:
        """Begin to go where `find` says, except in queues that are sought again meanwhile.

        Raises:
            RuntimeError: It is called outside the event loop.
        """
        asyncio.get_running_loop()
        number = object()
        self._newest.update(dict.fromkeys(queues, number))

        async def run() -> T | TernError:
            try:
                found = await find()
                return await self._go(
                    each for each in found.items() if self._newest.get(each[0]) is number
                )
            except TernError as error:
                if not seek.is_awaited:
                    self._on_failed(error)
                return error

        task = tasks.spawn(run(), "seek")
        seek = Seek(task)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return seek

    def supersede(self, queue: MessageQueue) -> None:
        """Let seeks of `queue` that are under way come to nothing."""
        self._newest.pop(queue, None)

    async def settled(self) -> None:
        """Wait until no seek is under way. Cancelling leaves them alone."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))


def checked_offset(queue: MessageQueue, offset: int) -> QueueOffset:
    """Return an offset to seek; one that no queue can have is the highest that one can.

    Raises:
        UsageError: It is negative, or no whole number.
    """
    if not is_whole(offset) or offset < 0:
        raise UsageError(f"{queue}: offset {offset!r} is negative or no whole number")
    return QueueOffset(min(int(offset), OFFSET_MAX))


class SeekingConsumer(ABC):
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
    def _owning(self) -> Assignment:
        """The queues of this member.

        Raises:
            ClosedError: The consumer is not open.
        """

    def seek(self, queue: MessageQueue, offset: int) -> Seek[bool]:
        """Let the next message of `queue` be the one at `offset`, or the first after it.

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

        async def find() -> Offsets:
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
        self, queues: Sequence[MessageQueue], find: Callable[[], Awaitable[Offsets]]
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
    tasks: OwnedTasks, offsets: RemoteOffsetStore
) -> Callable[[groups.SessionReply, str], None]:
    """Return what has `offsets` look for resets at each broker whose Session is open anew."""

    def look(_welcome: groups.SessionReply, broker_name: str) -> None:
        tasks.spawn(offsets.look_for_resets(broker_name), f"look for resets at {broker_name}")

    return look
