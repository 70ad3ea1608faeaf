"""Blocking clients for synchronous callers, over one event loop in one thread.

All blocking clients of a process share one loop, which runs from the first use to the end of the
process. gRPC has one queue of events for all loops of a process and fails if loops come and go
while others use it.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from functools import wraps
from inspect import iscoroutinefunction, signature
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, cast

from ternmq_model.errors import ClosedError
from ternmq_runtime.fork_safety import check_process, is_inherited

P = ParamSpec("P")
T = TypeVar("T")
ClientT = TypeVar("ClientT", bound=AbstractAsyncContextManager[Any])


_END_WAIT_S: Final = 10.0
_NOT_OPEN: Final = "the blocking client is not open: use it inside `with`"


class LoopThread:
    """Event loop in a thread of its own, from `start` to `close`. Any thread may use it.

    The thread is a daemon, so a script that does not call `close` still ends. A forked child has no
    such thread: there `run` and `submit` are refused, and `close` has no effect.
    """

    def __init__(self, name: str = "ternmq-loop") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._is_open = False
        self._process_id = 0

    def start(self) -> None:
        """Start the thread. Call it once."""
        self._thread.start()
        self._process_id = os.getpid()
        self._is_open = True

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, for calls that are safe in any thread."""
        return self._loop

    @property
    def is_inherited(self) -> bool:
        """True in a forked child of the process with the thread."""
        return is_inherited(self._process_id)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` on the loop and return its result, or raise its error.

        An interrupt of the waiting thread (Ctrl-C) cancels the coroutine.

        Raises:
            ClosedError: The loop does not run. The coroutine was not run.
        """
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start `coroutine` on the loop and return its future, for any thread.

        Raises:
            ClosedError: The loop does not run. The coroutine was not run.
        """
        if self.is_inherited:
            coroutine.close()
            check_process(self._process_id)
        if not self._is_open or threading.current_thread() is self._thread:
            coroutine.close()
            reason = "is not open" if not self._is_open else "cannot be used by its own loop"
            raise ClosedError(f"the blocking client {reason}")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Cancel running coroutines, end the loop, wait for its thread. Safe to repeat.

        A thread that has not ended after 10 s is abandoned: the process does not wait for it.
        """
        if self.is_inherited:
            return
        if not self._is_open:
            if not self._loop.is_running():
                self._loop.close()
            return
        self._is_open = False
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_WAIT_S)
        if not self._thread.is_alive():
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

    The thread ends with the process and cancels running coroutines. A forked child gets a thread of
    its own.
    """
    return _shared.thread()


class _SharedLoopThread:
    """Owner of the loop thread of all blocking clients. Any thread may use it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset the state in a forked child: its thread is missing, and its lock may be held."""
        self._starting = threading.Lock()
        self._started: LoopThread | None = None

    def thread(self) -> LoopThread:
        with self._starting:
            if self._started is None:
                self._started = LoopThread()
                self._started.start()
                atexit.register(self._started.close)
            return self._started


_shared = _SharedLoopThread()
os.register_at_fork(after_in_child=_shared.forget)


class BlockingClient(Generic[ClientT]):
    """Base of the blocking clients: it opens an async client on the shared loop thread.

    One task enters and leaves the async client, and calls of any thread run beside it. A subclass
    takes its methods from the async client: `send = blocking(Producer.send)`.

    In a child that is forked while the client is open, calls raise `ClosedError` at once, and
    closing has no effect: the client belongs to the parent. The child may open a client that was
    not open yet.

    Args:
        client: Async client that is not entered yet. This object owns it.
    """

    def __init__(self, client: ClientT) -> None:
        self._client = client
        self._leaving: asyncio.Event | None = None
        self._thread: LoopThread | None = None
        self._keeper: Future[None] | None = None

    def __enter__(self) -> Self:
        entered: Future[None] = Future()
        if self._keeper is None:
            self._thread = shared_loop_thread()
        keeper = self._opened_on.submit(self._keep(entered))
        try:
            entered.result()
        except BaseException:
            keeper.cancel()
            raise
        self._keeper = keeper
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
            Exception: Leaving the async client raised the error. The client is closed.
        """
        if self._keeper is None or self._opened_on.is_inherited:
            return
        keeper, self._keeper = self._keeper, None
        self._opened_on.run(self._leave())
        keeper.result()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run `coroutine` beside the client and return its result.

        Raises:
            ClosedError: The client is not open; the coroutine has not run.
        """
        if self._keeper is None:
            coroutine.close()
            raise ClosedError(_NOT_OPEN)
        return self._opened_on.run(coroutine)

    @property
    def _opened_on(self) -> LoopThread:
        if self._thread is None:
            raise ClosedError(_NOT_OPEN)
        return self._thread

    async def _leave(self) -> None:
        assert self._leaving is not None, "was entered"
        self._leaving.set()

    async def _keep(self, entered: "Future[None]") -> None:
        try:
            async with self._client:
                self._leaving = asyncio.Event()
                entered.set_result(None)
                await self._leaving.wait()
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)


def blocking(
    verb: Callable[Concatenate[Any, P], Awaitable[T]], *, returns: object = None
) -> Callable[Concatenate[BlockingClient[Any], P], T]:
    """Return the blocking form of the async method `verb`.

    Parameters, types and docstring are those of `verb`. An iterator among the arguments is read in
    the calling thread, since it may itself use the client.

    Args:
        verb: Function of the async client, such as a method of its class.
        returns: Type of the awaited result in the signature, if `verb` is a plain function that
            returns an awaitable. The signature of a coroutine function has that type already.
    """
    if iscoroutinefunction(verb):
        return _method(verb, verb)

    async def awaited(client: object, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await verb(client, *args, **kwargs)

    method = _method(verb, awaited)
    # `inspect.signature` and `help` would show the awaitable of the wrapped function.
    vars(method)["__signature__"] = signature(verb).replace(return_annotation=returns)
    method.__annotations__ = {**verb.__annotations__, "return": returns}
    return method


def on_loop(
    verb: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[BlockingClient[Any], P], T]:
    """Return the blocking form of the plain method `verb`, which only the loop may call."""

    async def called(client: object, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return verb(client, *args, **kwargs)

    return _method(verb, called)


def _method(
    verb: Callable[..., object], run: Callable[..., Coroutine[Any, Any, T]]
) -> Callable[..., T]:
    @wraps(verb)
    def method(self: BlockingClient[Any], /, *args: Any, **kwargs: Any) -> T:
        given = [_read(each) for each in args]
        named = {name: _read(each) for name, each in kwargs.items()}
        return self._run(run(self._client, *given, **named))  # pyright: ignore[reportPrivateUsage]

    return method


def _read(argument: object) -> object:
    # hasattr() takes a fifth of isinstance(argument, Iterator).
    return list(cast("Iterator[object]", argument)) if hasattr(argument, "__next__") else argument
