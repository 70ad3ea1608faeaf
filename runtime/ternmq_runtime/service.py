"""One lifecycle for everything that runs: what a block starts, ends with the block.

`JobRunner` repeats bounded steps, `OwnedTasks` holds tasks that come and go, and
`run_until_signalled` is the whole life of a server process. All three follow two rules:

* No task outlives its `async with`, unless it runs an application's code by `run_or_abandon`.
* A crash of a task cancels the body of the block and comes out of it in an `ExceptionGroup`; an
  exception of the body alone comes out as it is, so that callers can catch it by its class.

A block must be entered and left by one and the same task. Prior art: Trio's nurseries, nsq's
wait groups.
"""

import asyncio
import gc
import logging
import math
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar, runtime_checkable

from ternmq_model.errors import ClosedError
from ternmq_runtime.fd_limit import raise_fd_limit
from ternmq_runtime.signals import signals_heard

T = TypeVar("T")

logger = logging.getLogger(__name__)

_SWITCH_INTERVAL_S: Final = 0.0005
"""After so long a thread that runs Python code lets another one that waits have its turn. A thread
of the blocking pool waits so twice for a sync; with Python's 5 ms that is most of what a send takes
while a reader's filter keeps the loop busy."""

_COLLECT_AFTER: Final = (50_000, 10, 10)
"""So many more objects than before make Python look for cycles among the young ones, and each tenth
time among older ones. With its own 700 it looked at all objects of a broker with 200,000 open
transactions each second, which took up to 100 ms; few of our objects form cycles."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Job:
    """A bounded piece of background work, repeated by a `JobRunner`.

    Attributes:
        name: Unique within its runner; names the task.
        interval_s: Pause between a step that found nothing more to do and the next one, or a
            function that tells it after each such step; `math.inf` for a job that runs only when
            it is woken (and once at the start).
        step: Does one bounded unit and returns True when more is ready right now. It may be
            cancelled at any `await` when the block around it is left by an exception; on a clean
            leave it is waited for.
        woken: Set while a step is due before the interval is over.
    """

    name: str
    interval_s: float | Callable[[], float]
    step: Callable[[], Awaitable[bool]]
    woken: asyncio.Event = field(init=False, repr=False, default_factory=asyncio.Event)

    def wake(self) -> None:
        """Run the step now instead of at the end of the interval.

        Never waits. Waking a job during its step makes the step run once more; waking it many
        times before it runs counts once. Waking a job that no runner runs has no effect: every
        job begins with a step.
        """
        self.woken.set()


class OwnedTasks:
    """Holds tasks that come and go between `async with` and its end; none outlives it.

    A task that raises cancels the body and all other tasks, and its exception comes out of the
    block in an `ExceptionGroup`. On leaving, tasks that still run are cancelled and awaited.
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
        """Return how many tasks have not ended yet."""
        return len(self._tasks)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start `coroutine` as a task of this block and return it.

        The task may be cancelled alone, which harms nobody else.

        Raises:
            ClosedError: The block was not entered, or is being left. Nothing was started.
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
    """Runs jobs between `async with` and its end; no task outlives it.

    If a job raises, the body of the `async with` and the other jobs are cancelled, and the
    exception comes out of the block in an `ExceptionGroup`. On a clean leave no new step is
    begun and those under way are waited for.

    Raises:
        ValueError: Two jobs have one name.
    """

    def __init__(self, *jobs: Job) -> None:
        if len({job.name for job in jobs}) < len(jobs):
            raise ValueError(f"two jobs have one name: {sorted(job.name for job in jobs)}")
        self._jobs = jobs
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
                pause_s = job.interval_s
                await _wait(job.woken, pause_s() if callable(pause_s) else pause_s)


async def _wait(waker: asyncio.Event, timeout_s: float) -> None:
    """Wait for `waker`, and set it when `timeout_s` is over.

    A timer that sets the event is cheaper than a timeout that cancels the wait (5 against 7 µs),
    which jobs with millisecond intervals feel.
    """
    if math.isinf(timeout_s):
        await waker.wait()
        return
    timer = asyncio.get_running_loop().call_later(timeout_s, waker.set)
    try:
        await waker.wait()
    finally:
        timer.cancel()


async def _leave(
    group: asyncio.TaskGroup,
    tasks: Collection[asyncio.Task[Any]],
    exc: BaseException | None,
    *,
    cancels_before: int,
) -> None:
    """Leave `group`, whose wrapping of an exception that only the body raised is undone.

    Its tasks are waited for before: up to Python 3.12 a group of which one fails while it is left
    leaves its owner marked as cancelled, who would then end with that instead of the error.

    Args:
        group: Entered before.
        tasks: Of the group, those that run.
        exc: By which the body was left.
        cancels_before: What `_cancels` said when the group was entered.
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
    """Run works side by side until they end, one fails, or this is cancelled: then all are.

    Args:
        works: By the names of their tasks; at least one.
        wait_s: How long those that are cancelled may go on. Later they are nobody's: a task that
            catches its cancellation cannot be ended, and its event loop waits for it.
        on_abandoned: Called when some go on for longer.

    Raises:
        BaseException: What one of them raised.
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
    """Return how many cancellations of the running task nobody has taken back."""
    task = asyncio.current_task()
    assert task is not None, "runs in a task"
    return task.cancelling()


def _raise_lost_cancel(cancels_before: int) -> None:
    """Raise the cancellation of this task that came while it left a group which was failing.

    Up to Python 3.12 a group that is being aborted takes such a cancellation for its own and drops
    it: whoever catches the group's error and tries again would never end.

    Args:
        cancels_before: How many cancellations the body knew.
    """
    if _cancels() > cancels_before:
        raise asyncio.CancelledError


@runtime_checkable
class CanFail(Protocol):
    """A service whose failures do not come out of its `async with` block by themselves."""

    async def failed(self) -> object:
        """Wait until the service cannot go on, then raise why. Cancelling is safe."""
        ...


@runtime_checkable
class CanWait(Protocol):
    """A service whose start may wait for others, for as long as it takes."""

    def stop_waiting(self) -> None:
        """Let entering return, soon, whether the service serves or not. Safe to repeat."""
        ...


async def run_until_signalled(
    service: AbstractAsyncContextManager[object],
    *,
    on_ready: Callable[[], None] | None = None,
    stopping: asyncio.Event | None = None,
) -> int:
    """Enter `service`, wait for SIGINT or SIGTERM, leave it, and return the exit code.

    A first signal leaves the block in order, also when it comes while the service still starts:
    then right after the start, in which one that `CanWait` waits for nobody any more. A second
    signal cancels what goes on, without waiting for it.
    Signals are heard only in the main thread; elsewhere `stopping` is the way to end it. The
    process may open as many files as the system lets it from then on, its threads take turns more
    often, and garbage that forms cycles is looked for less often.

    Args:
        service: Serves from the end of its `__aenter__` to the beginning of its `__aexit__`. If it
            has an `async def failed()` (see `CanFail`), that is watched too.
        on_ready: Called once when the service serves; not called if it is to stop already.
        stopping: Setting it does what the first signal does.

    Returns:
        0 after an orderly end. 1 when the service failed while it ran or while it stopped (logged
        as an error with its traceback), or was cancelled by a second signal.

    Raises:
        Exception: What starting the service, or `on_ready`, raised: nothing runs any more.
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
            logger.warning("service stopped in a hurry, after a second signal")
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
    """Let `service` wait for nobody any more once `stop` is set, while the block runs."""

    async def heed(waiting: CanWait) -> None:
        await stop.wait()
        waiting.stop_waiting()

    async with OwnedTasks() as tasks:
        if isinstance(service, CanWait):
            tasks.spawn(heed(service), "heed-stop")
        yield


class _Hurry:
    """Cancels the task that runs the service, and takes that back once it has worked."""

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
    """Let the first SIGINT or SIGTERM set `stop`, and every further one cancel this task."""
    task = asyncio.current_task()
    assert task is not None, "runs in a task"
    hurry = _Hurry(task)

    def on_signal(received: signal.Signals) -> None:
        if stop.is_set():
            logger.warning("signal received signal=%s action=hurry", received.name)
            hurry()
        else:
            logger.info("signal received signal=%s action=stop", received.name)
            stop.set()

    loop = asyncio.get_running_loop()
    with signals_heard(lambda received: loop.call_soon_threadsafe(on_signal, received)):
        yield hurry
