"""The time of a cluster, which passes by itself until a test freezes or moves it."""

import asyncio
import math
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, Protocol

from ternmq_model.delay import tick_up
from ternmq_runtime.clock import SystemClock
from ternmq_runtime.timers import Wait
from ternmq_testing.memory.other_loop import visit
from ternmq_testing.time.agenda import Agenda

_TURNS: Final = 24
"""Turns of a loop without any activity after which nothing goes on in it, as far as one can tell:
loops other than asyncio's do not say whether anything is ready, and a task of the application may
take turns without end."""

_IDLE_TURNS: Final = 2
"""Turns of a loop with nothing else to run after which nothing goes on in it. What came through a
socket, or from another thread, is ready in the second one."""

_MS_SLACK: Final = 1e-5
"""Rounding of a time in seconds, ms: what was to end at 300 ms must not read 299."""

_FIRST_STOPS: Final = 2
_FIRST_PAUSE_S: Final = 1.5
"""Longest pause before each of the first stops of a move, s: what was just done is flushed, saved
and committed in the first seconds, as it would be."""

_PATIENCE_S: Final = 1.0
"""Real time for which a move waits for a call of the application that does nothing else, s."""

_AT_STOPS: Final = (Wait.RENEWAL, Wait.DUE)
"""Waits that end between the first and the last stop of a move."""


class PassingTime(Protocol):
    """Clock whose time passes by itself."""

    def monotonic_s(self) -> float:
        """Return seconds that never go back."""
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds that never go back."""
        ...

    def wall_ms(self) -> int:
        """Return Unix milliseconds."""
        ...


class ClusterTime:
    """Time of one cluster: that of a clock plus all that it was moved by.

    It is the clock (`SystemTime`) of all services and clients of the cluster, in any thread. Only
    the loop of the cluster moves it.

    Args:
        clock: Clock below it; None = that of the machine.

    Attributes:
        activity: Count of messages and timers, which grows while something goes on.
        linger_s: Real time without activity after which nothing goes on, beside turns of the loops.
    """

    def __init__(self, clock: PassingTime | None = None) -> None:
        self._clock = clock or SystemClock()
        self.activity = 0
        self.linger_s = 0.0
        self._calls = self._given_up = 0
        self._counting = threading.Lock()
        self._on_call_ended: Callable[[], object] = _nothing
        self._moved_s = 0.0
        self._stopped_at_s: float | None = None
        self._is_frozen = False
        self._moving = asyncio.Lock()
        self._wall_ms = self._clock.wall_ms() - self._clock.monotonic_ms()
        self._agendas: dict[asyncio.AbstractEventLoop, Agenda] = {}

    @property
    def is_still(self) -> bool:
        """True while no time passes by itself."""
        return self._stopped_at_s is not None

    def now_s(self) -> float:
        """Return seconds that never go back."""
        stopped_s = self._stopped_at_s
        return self._clock.monotonic_s() + self._moved_s if stopped_s is None else stopped_s

    def monotonic_ms(self) -> int:
        """Return milliseconds that never go back."""
        return int(self.now_s() * 1000 + _MS_SLACK)

    def boot_ms(self) -> int:
        """Return milliseconds that never go back: the machine of a cluster never sleeps."""
        return self.monotonic_ms()

    def wall_ms(self) -> int:
        """Return Unix milliseconds."""
        return self.monotonic_ms() + self._wall_ms

    def agenda(self) -> Agenda:
        """Return the timers of the running loop."""
        loop = asyncio.get_running_loop()
        found = self._agendas.get(loop)
        if found is None:
            self._agendas = {
                other: agenda for other, agenda in self._agendas.items() if not other.is_closed()
            } | {loop: (found := Agenda(self, loop))}
        return found

    def note_activity(self) -> None:
        """Record that something goes on."""
        self.activity += 1

    @contextmanager
    def busy(self) -> Generator[None]:
        """Let moves wait for the end of the block, for a second of real time at most."""
        with self._counting:
            self._calls += 1
        try:
            yield
        finally:
            with self._counting:
                self._calls -= 1
                self.activity += 1
                self._on_call_ended()

    def freeze(self) -> None:
        """Let time pass only when it is moved, from now on."""
        self._is_frozen = True
        self._stop()

    async def advance(self, by_s: float) -> int:
        """Move the time by `by_s`, from due wait to due wait. Return the number of stops.

        The move ends right after a tick of timed messages, which are due at the first one after
        their time. It begins when an earlier one has ended.
        """
        async with self._moving:
            return await self._move(by_s)

    async def _move(self, by_s: float) -> int:
        self._stop()
        stops = 0
        end_ms = math.ceil((self.now_s() + by_s) * 1000 - _MS_SLACK)
        # A wait for a time in whole milliseconds ends up to one later.
        target_s = (tick_up(end_ms + self._wall_ms) - self._wall_ms + 1) / 1000
        try:
            await self._calls_ended()
            while True:
                # Nothing goes on, so agendas of other loops may be looked at from here.
                due_s = min((each.next_due_s() for _, each in self._running()), default=math.inf)
                if stops < _FIRST_STOPS:
                    due_s = min(due_s, self.now_s() + _FIRST_PAUSE_S)
                self._stopped_at_s = max(self.now_s(), min(due_s, target_s))
                stops += 1
                is_last = self._stopped_at_s >= target_s
                for wait in Wait if is_last or stops <= _FIRST_STOPS else _AT_STOPS:
                    if await self._expire(wait):
                        await self._calls_ended()
                if is_last:
                    return stops
        finally:
            if not self._is_frozen:
                self._moved_s = self.now_s() - self._clock.monotonic_s()
                self._stopped_at_s = None
                self._arm()

    async def quiet(self) -> None:
        """Wait until nothing goes on: no message travels, and no task runs on the loops."""
        seen = -1
        while seen != self.activity:
            seen = self.activity
            await self._turns()
            if others := [loop for loop, _ in self._running() if loop is not _this_loop()]:
                for loop in others:
                    await visit(loop, partial(self._count_turns, loop))
                await self._turns()  # what they have sent to this loop
            if self.linger_s and seen == self.activity:
                await asyncio.sleep(self.linger_s)

    async def _calls_ended(self) -> None:
        """Wait until nothing goes on, calls of the application included.

        A call that lasts longer than a second is waited for once.
        """
        await self.quiet()
        self._given_up = min(self._given_up, self._calls)
        until_s = _this_loop().time() + _PATIENCE_S
        while (calls := self._calls) > self._given_up:
            try:
                async with asyncio.timeout_at(until_s):
                    await self._one_ended(calls)
            except TimeoutError:
                self._given_up = self._calls
            await self.quiet()

    async def _one_ended(self, calls: int) -> None:
        """Wait until one of so many calls of the application ends."""
        ended, loop = asyncio.Event(), _this_loop()
        self._on_call_ended = partial(loop.call_soon_threadsafe, ended.set)
        try:
            if self._calls == calls:
                await ended.wait()
        finally:
            with self._counting:
                self._on_call_ended = _nothing

    async def _turns(self) -> None:
        """Let the running loop go on until nothing goes on in it any more."""
        still = asyncio.Event()
        self._count_turns(_this_loop(), still.set)
        await still.wait()

    def _count_turns(self, loop: asyncio.AbstractEventLoop, on_still: Callable[[], object]) -> None:
        """Call `on_still` when nothing goes on any more in `loop`, which runs this."""
        ready = getattr(loop, "_ready", None)
        seen, turns, idle = self.activity, 0, 0

        def turn() -> None:
            nonlocal seen, turns, idle
            turns += 1
            idle = 0 if ready is None or ready else idle + 1
            if self.activity != seen:
                seen, turns, idle = self.activity, 0, 0
            if turns < _TURNS and idle < _IDLE_TURNS:
                loop.call_soon(turn)
            else:
                on_still()

        loop.call_soon(turn)  # a call costs less than a turn of the waiting task

    def _stop(self) -> None:
        if self._stopped_at_s is None:
            self._stopped_at_s = self.now_s()
            self._arm()

    def _arm(self) -> None:
        for loop, agenda in self._running():
            if loop is _this_loop():
                agenda.arm()
            else:
                with suppress(RuntimeError):  # it has just ended
                    loop.call_soon_threadsafe(agenda.arm)

    async def _expire(self, wait: Wait) -> bool:
        """Make the calls whose time has come, on each loop. Return whether there was one."""
        due = [(loop, each) for loop, each in self._running() if each.has_expired(wait)]
        for loop, agenda in due:
            if loop is _this_loop():
                agenda.expire(wait)
            else:
                await visit(loop, partial(_expire, agenda, wait))
        return bool(due)

    def _running(self) -> list[tuple[asyncio.AbstractEventLoop, Agenda]]:
        return [each for each in self._agendas.items() if each[0].is_running()]


def _expire(agenda: Agenda, wait: Wait, on_end: Callable[[], object]) -> None:
    agenda.expire(wait)
    on_end()


def _this_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def _nothing() -> None:
    pass
