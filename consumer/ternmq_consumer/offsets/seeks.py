"""Running seeks of a push or pull consumer."""

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


def checked_offset(queue: MessageQueue, offset: int) -> QueueOffset:
    """Return a legal offset for a seek. A larger number gives the highest legal offset.

    Raises:
        UsageError: The offset is negative or no integer.
    """
    if not is_whole(offset) or offset < 0:
        raise UsageError(f"{queue}: offset {offset!r} is negative or no whole number")
    return QueueOffset(min(int(offset), OFFSET_MAX))
