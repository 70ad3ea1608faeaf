"""Handlers of SIGTERM and SIGINT for services and applications, and `run`, which ends on them."""

import asyncio
import inspect
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

from ternmq_model.arguments import check_function
from ternmq_model.errors import UsageError
from ternmq_runtime.fork_safety import is_inherited

T = TypeVar("T")

_HEARD: Final = (signal.SIGINT, signal.SIGTERM)
_EXIT_CODE_BASE: Final = 128
"""Base of a shell's exit codes for killed processes: 128 plus the signal's number."""
_NUMBERS_AT_ONCE: Final = 4096
"""Numbers of signals, a byte each, that a loop takes when it wakes."""


def run(
    main: Coroutine[Any, Any, T] | Callable[[], Coroutine[Any, Any, T]],
    *,
    debug: bool | None = None,
) -> T:
    """Run `main` in an event loop of its own, as `asyncio.run` does, and end in order on a signal.

    The first SIGTERM or SIGINT (Ctrl-C) cancels `main`, so its `async with` blocks are left:
    consumers finish running listener calls, within `close_wait_s` (10 s), and commit; producers
    wait for answers, within `send_timeout_s` (3 s). A second signal, or a signal after the end of
    `main`, ends the process at once without further commits. A task that goes on after its
    cancellation, such as an `async def` listener that catches `CancelledError`, keeps the process
    until the second signal.

    While `main` runs, this function replaces other handlers of both signals. In a thread other than
    the main one it receives no signals and equals `asyncio.run`.

    Args:
        main: Coroutine, or coroutine function without arguments.
        debug: Debug mode of the event loop; None = by the environment.

    Returns:
        Result of `main`, also if it caught the cancellation.

    Raises:
        SystemExit: A signal ended `main`. The exit code is 143 after SIGTERM and 130 after SIGINT,
            the codes of shells for killed processes. No traceback is shown.
        Exception: `main` raised the error, also while its blocks were left.
        UsageError: `main` has another type, or an event loop runs in this thread, as in Jupyter:
            use `await main()` there. Nothing was run.
    """
    running = _Running(_coroutine_of(main))
    with signals_heard(running.on_signal) as wake_by_signals:
        try:
            return asyncio.run(running.until_done(wake_by_signals), debug=debug)
        except asyncio.CancelledError:
            if running.ended_by is None:
                raise
    raise SystemExit(_EXIT_CODE_BASE + running.ended_by)


def _coroutine_of(
    main: Coroutine[Any, Any, T] | Callable[[], Coroutine[Any, Any, T]],
) -> Coroutine[Any, Any, T]:
    """Return the coroutine that `run` runs.

    Raises:
        UsageError: `main` cannot run. No coroutine is left open.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # no loop runs, as required
        pass
    else:
        if inspect.iscoroutine(main):
            main.close()
        raise UsageError(
            "ternmq.run: an event loop runs in this thread already, as in Jupyter and in "
            "coroutines: write `await main()` instead"
        )
    if not inspect.iscoroutine(main):
        check_function("main", main, 0)
        made = main() if callable(main) else None
        if not inspect.iscoroutine(made):
            raise UsageError(f"main={main!r} must be an `async def`, or what a call of it returned")
        return made
    return main


@contextmanager
def signals_heard(
    on_signal: Callable[[signal.Signals], object],
) -> Generator[Callable[[asyncio.AbstractEventLoop], None]]:
    """Call `on_signal` with each SIGINT and SIGTERM while the block runs.

    The call comes between two instructions of the main thread. In other threads the block receives
    no signals. A child forked inside the block ends by such a signal.

    Yields:
        Function that lets signals wake an event loop of this thread. A loop without it sleeps on
        when a signal comes just before its wait.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda loop: None
        return
    process_id = os.getpid()

    def hear(number: int, _frame: object) -> None:
        received = signal.Signals(number)
        if is_inherited(process_id):
            _end_by(received)
        on_signal(received)

    before = {number: signal.signal(number, hear) for number in _HEARD}
    try:
        with _waking() as wake_by_signals:
            yield wake_by_signals
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def _waking() -> Generator[Callable[[asyncio.AbstractEventLoop], None]]:
    """Yield a function that lets signals wake a loop until the block is left."""
    woken: list[asyncio.AbstractEventLoop] = []
    received, sent = socket.socketpair()

    def wake_by_signals(loop: asyncio.AbstractEventLoop) -> None:
        loop.add_reader(received, received.recv, _NUMBERS_AT_ONCE)
        woken.append(loop)

    with received, sent:
        received.setblocking(False)
        sent.setblocking(False)
        before = signal.set_wakeup_fd(sent.fileno(), warn_on_full_buffer=False)
        try:
            yield wake_by_signals
        finally:
            signal.set_wakeup_fd(before)
            for loop in woken:
                if not loop.is_closed():
                    loop.remove_reader(received)


class _Running(Generic[T]):
    """Running `main`. Its signal handler and its coroutine run in the main thread.

    Attributes:
        ended_by: First signal; None = none.
    """

    def __init__(self, main: Coroutine[Any, Any, T]) -> None:
        self._main = main
        self._cancel: Callable[[], object] | None = None
        self._is_over = False
        self.ended_by: signal.Signals | None = None

    async def until_done(self, wake_by_signals: Callable[[asyncio.AbstractEventLoop], None]) -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "runs in a task"
        wake_by_signals(loop)
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if self.ended_by is not None:
            self._cancel()
        try:
            return await self._main
        finally:
            self._is_over = True

    def on_signal(self, received: signal.Signals) -> None:
        if self._is_over or self.ended_by is not None:
            _end_by(received)
        self.ended_by = received
        if self._cancel is not None:
            self._cancel()


def _end_by(received: signal.Signals) -> None:
    """End this process by the default action of a signal."""
    signal.signal(received, signal.SIG_DFL)
    signal.raise_signal(received)
    # Process 1, such as the main process of a container, gets no signal without a handler.
    os._exit(_EXIT_CODE_BASE + received)
