"""The clients for synchronous callers: one event loop in one thread, and thin faces over it.

All blocking clients of a process share one loop, which runs from the first use to the end of the
process. gRPC has one queue of events for all loops of a process, and does not bear loops that come
and go while others use it.
"""

import asyncio
import atexit
import functools
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from ternmq_model.errors import ClosedError

T = TypeVar("T")
ClientT = TypeVar("ClientT", bound=AbstractAsyncContextManager[Any])

_starting = threading.Lock()


class LoopThread:
    """An event loop in a thread of its own, from `start` to `close`. Any thread may use it.

    The thread is a daemon: a script that forgets to close still ends.
    """

    def __init__(self, name: str = "ternmq-loop") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._is_open = False

    def start(self) -> None:
        """Begin to run what `run` gives. Once only."""
        self._thread.start()
        self._is_open = True

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` on the loop and return its result, or raise what it raises.

        An interrupt of the waiting thread (Ctrl-C) cancels the coroutine.

        Raises:
            ClosedError: The loop does not run; so has the coroutine not.
        """
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin to run `coroutine` on the loop and return its future, which any thread may await.

        Raises:
            ClosedError: The loop does not run; so has the coroutine not.
        """
        if not self._is_open or threading.current_thread() is self._thread:
            coroutine.close()
            reason = "is not open" if not self._is_open else "cannot be used by its own loop"
            raise ClosedError(f"the blocking client {reason}")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Cancel what still runs, end the loop, wait for its thread. Safe to repeat."""
        if not self._is_open:
            if not self._loop.is_running():
                self._loop.close()
            return
        self._is_open = False
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())


def shared_loop_thread() -> LoopThread:
    """Return the loop thread of all blocking clients of this process, started at the first use.

    It ends with the process: what then still runs on it is cancelled.
    """
    with _starting:
        return _started_once()


@functools.cache
def _started_once() -> LoopThread:
    thread = LoopThread()
    thread.start()
    atexit.register(thread.close)
    return thread


class BlockingFace(Generic[ClientT]):
    """Base of the blocking clients: opens an async client on the loop thread of all of them.

    One task enters and leaves the async client, as that demands; calls of any thread run beside it.
    A subclass adds the verbs: `return self._run(self._client.send(message))`.

    Args:
        client: Not yet entered; this object owns it from now on.
    """

    def __init__(self, client: ClientT) -> None:
        self._client = client
        self._leaving: asyncio.Event | None = None
        self._keeper: Future[None] | None = None

    def __enter__(self) -> Self:
        entered: Future[None] = Future()
        self._keeper = shared_loop_thread().submit(self._keep(entered))
        try:
            entered.result()
        except BaseException:
            keeper, self._keeper = self._keeper, None
            keeper.cancel()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the async client. Safe to repeat.

        Raises:
            Exception: What leaving the async client raised; it is closed all the same.
        """
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            shared_loop_thread().run(self._leave())
            keeper.result()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` beside the client and return its result.

        Raises:
            ClosedError: The client is not open; the coroutine has not run.
        """
        if self._keeper is None:
            coroutine.close()
            raise ClosedError("the blocking client is not open: use it inside `with`")
        return shared_loop_thread().run(coroutine)

    async def _leave(self) -> None:
        assert self._leaving is not None, "was entered"
        self._leaving.set()

    async def _keep(self, entered: "Future[None]") -> None:
        self._leaving = asyncio.Event()
        try:
            async with self._client:
                entered.set_result(None)
                await self._leaving.wait()
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)
