"""Running seeks of a push or pull consumer."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from types import TracebackType
from typing import Any, Generic, TypeVar

from ternmq_client.instance import ClientInstance
from ternmq_consumer.offsets.offset_lookup import OffsetLookup
from ternmq_model.arguments import check_time_ms, is_whole
from ternmq_model.errors import ClosedError, TernError, UsageError
from ternmq_model.offsets import OFFSET_MAX, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_runtime.service import OwnedTasks

QueueOffsets = Mapping[MessageQueue, QueueOffset]
T = TypeVar("T")


class Seek(Coroutine[Any, Any, T]):
    """Running seek. It goes on also without `await`.

    Awaiting returns the result of the seek or raises its error. Cancelling the wait cancels the
    seek. `asyncio.create_task` accepts a seek like any coroutine.

    Attributes:
        is_awaited: True = a caller gets the result.
    """

    def __init__(self, ending: asyncio.Future[T | TernError]) -> None:
        self.is_awaited = False
        self._ending = ending
        self._waiting: Coroutine[Any, Any, T] | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        self.is_awaited = True
        return self._ended().__await__()

    def send(self, value: Any, /) -> Any:
        """Continue the wait. Called by the task of this coroutine."""
        return self._as_coroutine().send(value)

    def throw(
        self,
        error: Any,
        value: object = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Any:
        """End the wait by an error. Called by the task of this coroutine."""
        return self._as_coroutine().throw(error)

    def close(self) -> None:
        """End the wait. The seek goes on. Safe to repeat."""
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
    """Running seeks of one consumer. A later seek of a queue replaces an earlier one.

    Args:
        go: Function that applies the offsets of an iterable, one after the other. The iterable
            yields an offset when its turn comes.
        on_failed: Called with the error of a seek that is not awaited.
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
        find: Callable[[], Awaitable[QueueOffsets]],
    ) -> Seek[T]:
        """Begin a seek to the offsets of `find`, except for queues with a later seek.

        Raises:
            RuntimeError: The caller is not on the event loop.
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
        """Cancel the running seeks of `queue`."""
        self._newest.pop(queue, None)

    async def settled(self) -> None:
        """Wait until no seek is running. Cancelling does not affect the seeks."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))


class SeekingConsumer(ABC, Generic[T]):
    """Base of a consumer with the seeks that query brokers for an offset.

    Every seek begins at once, also without `await`. Queues that are given up meanwhile are left
    out.

    Args:
        client: Client with routes and connections.
    """

    def __init__(self, client: ClientInstance) -> None:
        self._client = client
        self._seeks = Seeks(self._go, self._fail)

    @abstractmethod
    def _sought(self, queues: Sequence[MessageQueue]) -> Sequence[MessageQueue]:
        """Return `queues` after a check, or all assigned queues where it is empty.

        Raises:
            UsageError: A queue is not assigned.
            ClosedError: The consumer is not open.
        """

    @abstractmethod
    async def _lookup(self, queues: Iterable[MessageQueue]) -> OffsetLookup:
        """Return a lookup that can ask the brokers of `queues`."""

    @abstractmethod
    async def _go(self, offsets: Iterable[tuple[MessageQueue, QueueOffset]]) -> T:
        """Go to these offsets in the queues that are still assigned."""

    @abstractmethod
    def _fail(self, error: TernError) -> None:
        """Report the error of a seek that no caller awaits."""

    def seek_to_begin(self, *queues: MessageQueue) -> Seek[T]:
        """Seek these queues, or all assigned ones, to their oldest message.

        The next `poll` of a pull consumer waits for the end of the seek. The result is that of
        `seek`.

        Raises:
            UsageError: A queue is not assigned. No position changes.
            ClosedError: The consumer is not open.
            TransportError: A broker does not answer. No position changes. The `await`, or the call
                of a blocking consumer, raises the error. Without `await`, a push consumer logs the
                error, and the next `poll` of a pull consumer raises it.
            RefusedError: A broker refuses the request, with the same effect.
        """
        sought = self._sought(queues)

        async def find() -> QueueOffsets:
            return await (await self._lookup(sought)).begins(sought)

        return self._begin(sought, find)

    def seek_to_end(self, *queues: MessageQueue) -> Seek[T]:
        """Seek these queues, or all assigned ones, behind their newest message.

        The seek must be complete before a send of messages that must be read: await the seek of an
        async consumer first. Result and errors are those of `seek_to_begin`.
        """
        sought = self._sought(queues)

        async def find() -> QueueOffsets:
            return await (await self._lookup(sought)).ends(sought)

        return self._begin(sought, find)

    def seek_to_time(self, at_ms: int, *queues: MessageQueue) -> Seek[T]:
        """Seek to the first message stored at `at_ms` (Unix ms) or later, else to the end.

        Result and errors are those of `seek_to_begin`. An illegal `at_ms` raises `UsageError` at
        once.
        """
        at_ms = check_time_ms("at_ms", at_ms)
        sought = self._sought(queues)

        async def find() -> QueueOffsets:
            return await (await self._lookup(sought)).at_times(dict.fromkeys(sought, at_ms))

        return self._begin(sought, find)

    def _begin(
        self, queues: Sequence[MessageQueue], find: Callable[[], Awaitable[QueueOffsets]]
    ) -> Seek[T]:
        return self._seeks.begin(self._client.tasks, queues, find)

    @property
    def _offset_lookup(self) -> OffsetLookup:
        return OffsetLookup(self._client, timeout_s=self._client.config.request_timeout_s)


def checked_offset(queue: MessageQueue, offset: int) -> QueueOffset:
    """Return a legal offset for a seek. A larger number gives the highest legal offset.

    Raises:
        UsageError: The offset is negative or no integer.
    """
    if not is_whole(offset) or offset < 0:
        raise UsageError(f"{queue}: offset {offset!r} is negative or no whole number")
    return QueueOffset(min(int(offset), OFFSET_MAX))
