"""An event loop whose clock jumps: an hour of timeouts runs in milliseconds.

For simulation only. Whenever every task waits, time jumps to the next timer, so what waits for a
thread, a socket or another process looks like a deadlock or comes too late: use `InlineBlocking`
and an in-memory network. Prior art: Trio's `MockClock` with `autojump_threshold=0`, TigerBeetle's
`TimeSim`.
"""

import asyncio
import contextlib
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, ParamSpec, TypeVar

from ternmq_model.errors import TernError
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Network
from ternmq_runtime.processes import Processes
from ternmq_testing.memory.inline_blocking import InlineBlocking

P = ParamSpec("P")
T = TypeVar("T")

EPOCH_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: where the wall clock stands when a virtual loop begins."""

_TIMER_SLACK_MS = 1e-5
"""asyncio runs a timer up to one clock resolution early; a task it woke must not read 299 ms when
it slept for 300."""


_TURNS_MAX = 1_000_000
"""Turns without time, a minute of computing, of a task that retries at once and never waits."""


class _JumpingSelector(selectors.DefaultSelector):
    """Never sleeps: moves its loop's time on instead."""

    loop: "VirtualTimeLoop"
    turns = 0
    """Turns of the loop since time has moved."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0:
            self.turns += 1
            if self.turns > _TURNS_MAX:
                self.turns = 0
                raise RuntimeError("livelock: tasks run without an end, and no time passes")
            return []  # tasks are ready: signals are looked for before time moves, not each turn
        self.turns = 0
        ready = super().select(0)
        if not ready and not self.loop.wake():
            if timeout is None:
                raise RuntimeError("deadlock: every task waits and no timer is set")
            self.loop.now_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that begins at second 0 and takes no real time to wait.

    Attributes:
        now_s: The virtual time; the loop alone moves it.
    """

    def __init__(self) -> None:
        selector = _JumpingSelector()
        selector.loop = self
        self.now_s = 0.0
        self._awaited: dict[asyncio.Future[None], Callable[[], bool]] = {}
        super().__init__(selector)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.now_s

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, which is tested each time before the virtual time moves."""
        future = self.create_future()
        self._awaited[future] = condition
        try:
            await future
        finally:
            del self._awaited[future]

    def wake(self) -> bool:
        """End each `until` whose condition holds, and tell whether there was one."""
        held = [future for future, condition in self._awaited.items() if condition()]
        for future in held:
            future.set_result(None)
        return bool(held)


def run_in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on a new `VirtualTimeLoop`, cancel what it left, return its result.

    Raises:
        RuntimeError: "deadlock": every task waited and no timer was set.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


async def until(holds: Callable[[], bool | Awaitable[bool]], within_s: float = 400.0) -> None:
    """Wait until a condition holds; one that raises a `TernError` does not hold yet.

    The running `VirtualTimeLoop` tests a plain condition each time before time moves, so that a
    wait of hours costs no more than what happens meanwhile. One that must be awaited is tested
    every 50 ms.

    Raises:
        TimeoutError: The condition did not hold within `within_s` of virtual time.
    """

    def is_met() -> bool | Awaitable[bool]:
        try:
            return holds()
        except TernError:
            return False

    async with asyncio.timeout(within_s):
        while not isinstance(met := is_met(), bool):
            with contextlib.suppress(TernError):
                if await met:
                    return
            await asyncio.sleep(0.05)
        if not met:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop)
            await loop.until(lambda: is_met() is True)


class VirtualClock:
    """The `Clock` of a simulation: follows a loop's time.

    Args:
        loop: Loop whose time is read; None = the running one.

    Attributes:
        wall_offset_ms: Added to the wall clock. A test sets it to play the operator who sets a
            machine's clock, or to let two machines disagree.
        asleep_ms: Added to the wall clock and to the time since the boot. A test raises it to play
            a machine that sleeps, or to let much time pass at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = asyncio.get_running_loop() if loop is None else loop
        self.wall_offset_ms = 0
        self.asleep_ms = 0

    def monotonic_s(self) -> float:
        """Return the loop's time in seconds."""
        return self._loop.time()

    def monotonic_ms(self) -> int:
        """Return the loop's time in milliseconds."""
        return int(self._loop.time() * 1000 + _TIMER_SLACK_MS)

    def wall_ms(self) -> int:
        """Return `EPOCH_MS` plus the time since the boot plus `wall_offset_ms`."""
        return EPOCH_MS + self.boot_ms() + self.wall_offset_ms

    def boot_ms(self) -> int:
        """Return the loop's time in milliseconds plus `asleep_ms`."""
        return self.monotonic_ms() + self.asleep_ms


def virtual_environment(
    network: Network,
    random: Random,
    delay_s: Callable[[], float] = lambda: 0.0,
    *,
    clock: VirtualClock | None = None,
    processes: Processes | None = None,
) -> Environment:
    """Return the seams of a host of a simulation.

    Args:
        network: Network of that host.
        random: Randomness of the host, which decides too which of its blocking calls are late.
        delay_s: Says how long its next blocking call takes, as for `InlineBlocking`.
        clock: Clock of the host; None = one of its own.
        processes: Factory of child processes, if any.
    """
    return Environment(
        clock=clock or VirtualClock(),
        network=network,
        random=random,
        blocking=InlineBlocking(delay_s, lambda: random.random() < 0.5),
        processes=processes,
    )
