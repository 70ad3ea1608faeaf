"""Timers as an argument: what waits for a time waits by the timers of its environment."""

import asyncio
import enum
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any, Final, Protocol, TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")

DueInS = Callable[[], float] | None
"""Function that returns a time from now, s; None = unknown."""


_UNWATCHED: Final = nullcontext()


class Wait(enum.IntEnum):
    """Purpose of a wait. Timers whose time is moved order expired waits by it.

    Each `DUE` wait ends at its own time when time is moved over it, and each `RENEWAL` at the next
    such time at the latest. The others end in its first seconds and where the move ends, in the
    order of this enumeration.
    """

    RENEWAL = 0
    """Keeps a lease whose holder compares it with the clock."""

    HEARTBEAT = 1
    """Keeps what a periodic job would find expired: a session, a registration."""

    PERIODIC = 2
    """Interval between steps of a job."""

    DUE = 3
    """Something happens at this time: a delivery, a retry, a timeout of a pending request."""

    IDLE = 4
    """Longest wait for what may come at any time, like a long poll's."""


class TimerHandle(Protocol):
    """A planned call."""

    def cancel(self) -> None:
        """Forget the call. Safe to repeat."""
        ...

    def when(self) -> float:
        """Return the time of the call, as `Timers.now_s` counts it."""
        ...


class Timers(Protocol):
    """Timers of one environment, for the running event loop."""

    def now_s(self) -> float:
        """Return seconds that never go back."""
        ...

    def call_at(
        self,
        at_s: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        wait: Wait = Wait.DUE,
        due_in_s: DueInS = None,
    ) -> TimerHandle:
        """Plan a call of `callback` at a time of `now_s`.

        `due_in_s` returns the time until the call has something to do, s, for a call that is
        planned earlier, or once of many times. Time that is moved stops there.
        """
        ...

    def call_later(
        self,
        delay_s: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        wait: Wait = Wait.DUE,
        due_in_s: DueInS = None,
    ) -> TimerHandle:
        """Plan a call of `callback` after a delay, s. See `call_at`."""
        ...

    def busy(self) -> AbstractContextManager[None]:
        """Return a block around a call of the application. Time that is moved waits for its end."""
        ...

    async def sleep(self, delay_s: float, *, wait: Wait = Wait.DUE) -> None:
        """Wait for `delay_s`; 0 or less lets other tasks run once."""
        ...

    def timeout(
        self, delay_s: float | None, *, wait: Wait = Wait.DUE
    ) -> AbstractAsyncContextManager[Any]:
        """Limit a block to `delay_s`, as `asyncio.timeout` does; None = no limit."""
        ...

    def timeout_at(self, at_s: float, *, wait: Wait = Wait.DUE) -> AbstractAsyncContextManager[Any]:
        """Limit a block to a time of `now_s`, as `asyncio.timeout_at` does."""
        ...


class LoopTimers:
    """Timers of the running event loop itself."""

    def busy(self) -> AbstractContextManager[None]:
        """Return a block without effect: the loop's time waits for nobody."""
        return _UNWATCHED

    def now_s(self) -> float:
        """Return the time of the loop."""
        return asyncio.get_running_loop().time()

    def call_at(
        self,
        at_s: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        wait: Wait = Wait.DUE,
        due_in_s: DueInS = None,
    ) -> TimerHandle:
        """Plan a call. See `Timers`."""
        return asyncio.get_running_loop().call_at(at_s, callback, *args)

    def call_later(
        self,
        delay_s: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        wait: Wait = Wait.DUE,
        due_in_s: DueInS = None,
    ) -> TimerHandle:
        """Plan a call. See `Timers`."""
        return asyncio.get_running_loop().call_later(delay_s, callback, *args)

    async def sleep(self, delay_s: float, *, wait: Wait = Wait.DUE) -> None:
        """Wait for `delay_s`."""
        await asyncio.sleep(delay_s)

    def timeout(
        self, delay_s: float | None, *, wait: Wait = Wait.DUE
    ) -> AbstractAsyncContextManager[Any]:
        """Limit a block."""
        return asyncio.timeout(delay_s)

    def timeout_at(self, at_s: float, *, wait: Wait = Wait.DUE) -> AbstractAsyncContextManager[Any]:
        """Limit a block."""
        return asyncio.timeout_at(at_s)


LOOP_TIMERS: Final = LoopTimers()
