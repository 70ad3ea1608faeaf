"""Seeks that are under way, whichever kind of consumer has begun them."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, TypeVar

from ternmq_model.arguments import is_whole
from ternmq_model.errors import ClosedError, TernError, UsageError
from ternmq_model.offsets import OFFSET_MAX, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_runtime.service import OwnedTasks

QueueOffsets = Mapping[MessageQueue, QueueOffset]
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
        find: Callable[[], Awaitable[QueueOffsets]],
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
        """Cancel the seeks of `queue` that are under way."""
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
