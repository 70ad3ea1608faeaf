"""Lifecycle of tasks: every task that a block starts ends with the block.

`JobRunner` repeats bounded steps, `OwnedTasks` owns tasks that come and go, and
`run_until_signalled` runs a server process. All three follow two rules:

* No task outlives its `async with`, except an application's code run by `run_or_abandon`.
* A crash of a task cancels the body of the block, which then raises an `ExceptionGroup`. An
  exception of the body alone is raised as it is, so that callers can catch it by its class.

One task must enter and leave a block. Prior art: Trio's nurseries, nsq's wait groups.
"""

import asyncio
import gc
import logging
import math
import signal
import sys
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar, runtime_checkable

from ternmq_model.errors import ClosedError
from ternmq_runtime.fd_limit import raise_fd_limit
from ternmq_runtime.signals import signals_heard
from ternmq_runtime.timers import LOOP_TIMERS, Timers, Wait

T = TypeVar("T")

logger = logging.getLogger(__name__)

_SWITCH_INTERVAL_S: Final = 0.0005
"""Interval after which a running thread yields to a waiting one, s. A thread of the blocking
pool waits for it twice in a sync. With Python's own 5 ms this is most of the time of a send while a
reader's filter keeps the loop busy."""

_COLLECT_AFTER: Final = (50_000, 10, 10)
"""Thresholds of Python's garbage collector: new objects before a collection of the young ones, and
each tenth collection includes older ones. With Python's own 700 a broker with 200,000 open
transactions had a full collection each second, of up to 100 ms; few objects here form cycles."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Job:
    """Bounded piece of background work that a `JobRunner` repeats.

    Attributes:
        name: Name of the task, unique within the runner.
        interval_s: Pause after a step without further work, s, or a function that returns the pause
            after each such step; `math.inf` = the job runs once at the start and when it is woken.
        step: Coroutine function of one bounded unit. It returns True if more work is ready. It may
            be cancelled at any `await` when the block is left by an exception; a clean leave waits
            for it.
        wait: Purpose of the pauses: `PERIODIC`, or `RENEWAL` for jobs that keep a lease.
        due_in_s: Function that returns the time until the step has something to do as far as the
            job knows, s; `math.inf` = nothing is planned. None = the job never knows.
        woken: Event that is set while a step is due before the end of the interval.
    """

    name: str
    interval_s: float | Callable[[], float]
    step: Callable[[], Awaitable[bool]]
    wait: Wait = Wait.PERIODIC
    due_in_s: Callable[[], float] | None = None
    woken: asyncio.Event = field(init=False, repr=False, default_factory=asyncio.Event)

    def wake(self) -> None:
        """Run the step now instead of at the end of the interval. Never waits.

        A call during a step runs the step once more. Many calls before a step count once. A call
        before the runner starts has no effect, since every job begins with a step.
        """
        self.woken.set()


class OwnedTasks:
    """Owner of tasks that come and go inside `async with`. No task outlives the block.

    A task that raises cancels the body and all other tasks, and the block raises an
    `ExceptionGroup`. Leaving cancels and awaits running tasks.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._cancels_before = 0
        # In the order of spawning, in which they are cancelled too: a set would make simulations
        # differ from run to run.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._cancels_before = _cancels()
        await self._group.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_open = False
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await _leave(self._group, tasks, exc, cancels_before=self._cancels_before)

    def __len__(self) -> int:
        """Return the number of running tasks."""
        return len(self._tasks)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start `coroutine` as a task of this block and return the task.

        Cancelling the task does not affect other tasks.

        Raises:
            ClosedError: The block is not entered, or is being left. No task was started.
        """
        if not self._is_open:
            coroutine.close()
            raise ClosedError(f"task {name!r} was spawned outside the block that would own it")
        try:
            task = self._group.create_task(coroutine, name=name)
        except RuntimeError as error:  # a sibling has failed: the group takes no more
            coroutine.close()
            raise ClosedError(f"task {name!r} was spawned while its block fails") from error
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task


class JobRunner:
    """Runner of jobs inside `async with`. No task outlives the block.

    If a job raises, the body of the block and the other jobs are cancelled, and the block raises an
    `ExceptionGroup`. A clean leave begins no new step and waits for running ones.

    Args:
        jobs: Jobs with different names.
        timers: Timers of the pauses.

    Raises:
        ValueError: Two jobs have equal names.
    """

    def __init__(self, *jobs: Job, timers: Timers = LOOP_TIMERS) -> None:
        if len({job.name for job in jobs}) < len(jobs):
            raise ValueError(f"two jobs have one name: {sorted(job.name for job in jobs)}")
        self._jobs = jobs
        self._timers = timers
        self._group = asyncio.TaskGroup()
        self._cancels_before = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    async def __aenter__(self) -> Self:
        self._cancels_before = _cancels()
        await self._group.__aenter__()
        self._tasks = [
            self._group.create_task(self._repeat(job), name=job.name) for job in self._jobs
        ]
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping = True
        for job in self._jobs:
            job.wake()
        if exc is not None:  # the group would do it too, but in an order that differs between runs
            for task in self._tasks:
                task.cancel()
        await _leave(self._group, self._tasks, exc, cancels_before=self._cancels_before)

    async def _repeat(self, job: Job) -> None:
        """Run `job` until the block is left. An exception escapes: the owner decides."""
        while not self._stopping:
            job.woken.clear()
            if await job.step():
                await asyncio.sleep(0)  # requests go first
            elif not self._stopping:
                await self._pause(job)

    async def _pause(self, job: Job) -> None:
        """Wait until `job` is woken, at the latest by the end of its interval.

        A timer that wakes the job costs less than a timeout that cancels the wait (5 against 7 µs).
        The difference matters for jobs with intervals of milliseconds.
        """
        interval_s = job.interval_s
        pause_s = interval_s() if callable(interval_s) else interval_s
        if math.isinf(pause_s):
            await job.woken.wait()
            return
        timer = self._timers.call_later(
            pause_s, job.woken.set, wait=job.wait, due_in_s=job.due_in_s
        )
        try:
            await job.woken.wait()
        finally:
            timer.cancel()


async def _leave(
    group: asyncio.TaskGroup,
    tasks: Collection[asyncio.Task[Any]],
    exc: BaseException | None,
    *,
    cancels_before: int,
) -> None:
    """Leave `group` and unwrap an exception that only the body raised.

    The tasks are awaited first: up to Python 3.12, a task that fails while the group is left marks
    the owner as cancelled, and the owner would raise that instead of the error.

    Args:
        group: Entered group.
        tasks: Running tasks of the group.
        exc: Exception of the body.
        cancels_before: Result of `_cancels` at the entry of the group.
    """
    if not isinstance(exc, asyncio.CancelledError):
        # The body went on after its cancellation, if there was one: that is not lost. Neither is
        # the group's own, which it takes back while it is left (Python 3.11 and 3.12).
        cancels_before = _cancels() - bool(getattr(group, "_parent_cancel_requested", False))
    left_by = exc
    try:
        if tasks:
            await asyncio.wait(tasks)
    except asyncio.CancelledError as cancelled:
        left_by = exc or cancelled
    try:
        if left_by is None:
            await group.__aexit__(None, None, None)
        else:
            await group.__aexit__(type(left_by), left_by, left_by.__traceback__)
    except BaseExceptionGroup as failures:
        _raise_lost_cancel(cancels_before)
        if failures.exceptions != (exc,):
            raise
    except asyncio.CancelledError as cancelled:
        if cancelled is not exc:
            raise
        # It goes on by itself. Raised once more, an `AsyncExitStack` would make it its own context,
        # and then walk that chain without end.
        return
    _raise_lost_cancel(cancels_before)
    # Not a swallowed exception: one that came in and is not raised again here goes on by itself.


async def run_or_abandon(
    works: Mapping[str, Callable[[], Coroutine[Any, Any, None]]],
    *,
    wait_s: float,
    on_abandoned: Callable[[], None],
) -> None:
    """Run works concurrently until all end. A failure or a cancellation cancels all of them.

    Args:
        works: Works by the names of their tasks, at least one.
        wait_s: Longest wait for cancelled works, s. Works that go on are abandoned: a task that
            catches its cancellation cannot be ended, and its event loop waits for it.
        on_abandoned: Called when works are abandoned.

    Raises:
        BaseException: A work raised the error.
    """
    tasks = [asyncio.create_task(work(), name=name) for name, work in works.items()]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        _, going_on = await asyncio.wait(tasks, timeout=wait_s)
        if going_on:
            on_abandoned()
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()


def _cancels() -> int:
    """Return the number of pending cancellations of the running task."""
    task = asyncio.current_task()
    assert task is not None, "runs in a task"
    return task.cancelling()


def _raise_lost_cancel(cancels_before: int) -> None:
    """Raise a cancellation of this task that came while it left a failing group.

    Up to Python 3.12 an aborted group takes such a cancellation for its own and drops it: a caller
    that catches the group's error and tries again would never end.

    Args:
        cancels_before: Number of cancellations before the group was left.
    """
    if _cancels() > cancels_before:
        raise asyncio.CancelledError


@runtime_checkable
class CanFail(Protocol):
    """Service with failures that its `async with` block does not raise."""

    async def failed(self) -> object:
        """Wait until the service fails and raise its error. Cancelling is safe."""
        ...


@runtime_checkable
class CanWait(Protocol):
    """Service whose start may wait for other services without a limit."""

    def stop_waiting(self) -> None:
        """End the wait of the start, so that entering returns soon. Safe to repeat."""
        ...


async def run_until_signalled(
    service: AbstractAsyncContextManager[object],
    *,
    on_ready: Callable[[], None] | None = None,
    stopping: asyncio.Event | None = None,
) -> int:
    """Enter `service`, wait for SIGINT or SIGTERM, leave it, and return the exit code.

    The first signal leaves the block in order. During the start it ends the wait of a `CanWait` and
    leaves the block right after the start. A second signal cancels the service without waiting.
    Only the main thread receives signals; elsewhere set `stopping`. The call also raises the limit
    of open files, shortens the turns of threads and makes collections of cyclic garbage rarer.

    Args:
        service: Service, which serves while its block is open. A method `async def failed()` (see
            `CanFail`) is watched too.
        on_ready: Called once when the service serves, except after an early stop.
        stopping: Event with the effect of the first signal.

    Returns:
        0 after an orderly end. 1 after a failure of the service, which is logged as an error with
        its traceback, or after a second signal.

    Raises:
        Exception: The start of the service, or `on_ready`, raised the error. The service is closed.
    """
    raise_fd_limit()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.set_threshold(*_COLLECT_AFTER)
    stop = asyncio.Event() if stopping is None else stopping
    has_started = False
    async with _signals_heard(stop) as hurry:
        try:
            async with _heeding(stop, service), service:
                if on_ready is not None and not stop.is_set():
                    on_ready()
                has_started = True
                async with OwnedTasks() as watchers:
                    if isinstance(service, CanFail):
                        watchers.spawn(service.failed(), "watch-for-failure")
                    await stop.wait()
                logger.info("service stopping")
        except asyncio.CancelledError:
            if not hurry.calls:
                raise
            hurry.forget()
            logger.warning("service stopped early after a second signal")
            return 1
        except Exception:
            if not has_started and not hurry.calls:
                raise
            hurry.forget()
            logger.exception("service failed")
            return 1
    logger.info("service stopped")
    return 0


@asynccontextmanager
async def _heeding(stop: asyncio.Event, service: object) -> AsyncGenerator[None, None]:
    """End the wait of `service` when `stop` is set, while the block runs."""

    async def heed(waiting: CanWait) -> None:
        await stop.wait()
        waiting.stop_waiting()

    async with OwnedTasks() as tasks:
        if isinstance(service, CanWait):
            tasks.spawn(heed(service), "heed-stop")
        yield


@contextmanager
def collecting_rarely() -> Generator[None]:
    """Collect cyclic garbage of this process as rarely as that of a service, in the block."""
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Hurry:
    """Cancellation of the task that runs the service. It is taken back after its effect."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        self._task.cancel()

    def forget(self) -> None:
        for _ in range(self.calls):
            self._task.uncancel()


@asynccontextmanager
async def _signals_heard(stop: asyncio.Event) -> AsyncGenerator[_Hurry, None]:
    """Handle signals: the first SIGINT or SIGTERM sets `stop`, a further one cancels this task."""
    task = asyncio.current_task()
    assert task is not None, "runs in a task"
    hurry = _Hurry(task)

    def on_signal(received: signal.Signals) -> None:
        if stop.is_set():
            logger.warning("signal received signal=%s action=%s", received.name, "hurry")
            hurry()
        else:
            logger.info("signal received signal=%s action=%s", received.name, "stop")
            stop.set()

    loop = asyncio.get_running_loop()
    heard = signals_heard(lambda received: loop.call_soon_threadsafe(on_signal, received))
    with heard as wake_by_signals:
        wake_by_signals(loop)
        yield hurry
