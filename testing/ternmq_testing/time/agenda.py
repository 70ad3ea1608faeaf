"""Timers of one event loop on the time of a cluster."""

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import Context, copy_context
from types import TracebackType
from typing import Any, Protocol, Self

from ternmq_runtime.timers import DueInS, TimerHandle, Ts, Wait


class TimeSource(Protocol):
    """The time of a cluster, for all its event loops."""

    activity: int
    """Count of what has happened: grows while something goes on."""

    @property
    def is_still(self) -> bool:
        """True while no time passes by itself."""
        ...

    def now_s(self) -> float:
        """Return seconds that never go back."""
        ...

    def busy(self) -> AbstractContextManager[None]:
        """Let moves wait for the end of the block."""
        ...


class PlannedCall:
    """A call at a time. See `TimerHandle`."""

    __slots__ = ("_at_s", "args", "callback", "context", "due_in_s", "is_over")

    def __init__(
        self, at_s: float, callback: Callable[..., object], args: tuple[Any, ...], due_in_s: DueInS
    ) -> None:
        self._at_s = at_s
        self.callback, self.args, self.due_in_s = callback, args, due_in_s
        self.context: Context = copy_context()
        self.is_over = False

    def cancel(self) -> None:
        """Forget the call."""
        self.is_over = True
        self.due_in_s = None

    def when(self) -> float:
        """Return the time of the call."""
        return self._at_s


_Planned = list[tuple[float, int, PlannedCall]]
"""Calls by time and order, as a heap."""


class Agenda:
    """Timers (`ternmq_runtime.timers.Timers`) of one event loop, on the time of a cluster.

    Owned by that loop. Time passes on the loop's own timer, or when `expire` is called.
    """

    def __init__(self, time: TimeSource, loop: asyncio.AbstractEventLoop) -> None:
        self._time = time
        self._loop = loop
        self._planned: dict[Wait, _Planned] = {wait: [] for wait in Wait}
        self._serial = itertools.count()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at_s = math.inf

    def now_s(self) -> float:
        """Return the time of the cluster."""
        return self._time.now_s()

    def call_at(
        self,
        at_s: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        wait: Wait = Wait.DUE,
        due_in_s: DueInS = None,
    ) -> TimerHandle:
        """Plan a call. See `Timers`."""
        call = PlannedCall(at_s, callback, args, due_in_s)
        heapq.heappush(self._planned[wait], (at_s, next(self._serial), call))
        self._time.activity += 1
        if at_s < self._alarm_at_s:
            self._set_alarm(at_s)
        return call

    def call_later(
        self,
        delay_s: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        wait: Wait = Wait.DUE,
        due_in_s: DueInS = None,
    ) -> TimerHandle:
        """Plan a call. See `Timers`."""
        return self.call_at(
            self._time.now_s() + delay_s, callback, *args, wait=wait, due_in_s=due_in_s
        )

    def busy(self) -> AbstractContextManager[None]:
        """Let moves wait for the end of the block."""
        return self._time.busy()

    async def sleep(self, delay_s: float, *, wait: Wait = Wait.DUE) -> None:
        """Wait for `delay_s`."""
        if delay_s <= 0:
            await asyncio.sleep(0)
            return
        woken = self._loop.create_future()
        call = self.call_later(delay_s, _wake, woken, wait=wait)
        try:
            await woken
        finally:
            call.cancel()

    def timeout(self, delay_s: float | None, *, wait: Wait = Wait.DUE) -> "Limit":
        """Limit a block."""
        return Limit(self, None if delay_s is None else self._time.now_s() + delay_s, wait)

    def timeout_at(self, at_s: float, *, wait: Wait = Wait.DUE) -> "Limit":
        """Limit a block."""
        return Limit(self, at_s, wait)

    def next_due_s(self) -> float:
        """Return the time of the next call that is due by itself; infinity = none is planned.

        Any thread may ask while nothing goes on.
        """
        due_s = _peek_s(self._planned[Wait.DUE])
        now_s = self._time.now_s()
        for wait in (Wait.RENEWAL, Wait.PERIODIC):
            for _, _, call in self._planned[wait]:
                if (due_in_s := call.due_in_s) is not None:
                    due_s = min(due_s, now_s + max(0.0, due_in_s()))
        return due_s

    def has_expired(self, wait: Wait) -> bool:
        """Return whether `expire` makes a call. Any thread may ask."""
        return _peek_s(self._planned[wait]) <= self._time.now_s() or (
            wait is Wait.DUE and bool(self._due_periodic())
        )

    def expire(self, wait: Wait) -> None:
        """Make the calls whose time has come, soon.

        Moved time ends due waits by it, and with them periodic ones that have something to do.
        """
        expired = _taken(self._planned[wait], self._time.now_s())
        if wait is Wait.DUE:
            expired += self._due_periodic()
        self._make(expired)

    def _due_periodic(self) -> list[PlannedCall]:
        return [
            call
            for _, _, call in self._planned[Wait.PERIODIC]
            if (due_in_s := call.due_in_s) is not None and due_in_s() <= 0
        ]

    def arm(self) -> None:
        """Set the loop's own timer to the next call. Called after each change of the time."""
        self._set_alarm(min(map(_first_s, self._planned.values())))

    def _set_alarm(self, at_s: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_at_s = at_s
        if at_s < math.inf and (at_s <= (now_s := self._time.now_s()) or not self._time.is_still):
            self._alarm = self._loop.call_later(max(0.0, at_s - now_s), self._ring)

    def _ring(self) -> None:
        now_s = self._time.now_s()
        for planned in self._planned.values():
            if planned and planned[0][0] <= now_s:
                self._make(_taken(planned, now_s))
        self.arm()

    def _make(self, calls: list[PlannedCall]) -> None:
        for call in calls:
            call.cancel()
            self._loop.call_soon(call.callback, *call.args, context=call.context)
        self._time.activity += len(calls)


def _peek_s(planned: _Planned) -> float:
    """Return the time of the first call, without a change: the loop may be at work on its heap."""
    entries = planned.copy()
    if entries and not entries[0][2].is_over:
        return entries[0][0]
    return min((at_s for at_s, _, call in entries if not call.is_over), default=math.inf)


def _first_s(planned: _Planned) -> float:
    """Return the time of the first call, and drop those before it that are over."""
    while planned and planned[0][2].is_over:
        heapq.heappop(planned)
    return planned[0][0] if planned else math.inf


def _taken(planned: _Planned, now_s: float) -> list[PlannedCall]:
    """Remove and return the calls whose time has come, without those that are over."""
    taken: list[PlannedCall] = []
    while planned and planned[0][0] <= now_s:
        call = heapq.heappop(planned)[2]
        if not call.is_over:
            taken.append(call)
    return taken


class Limit:
    """`asyncio.timeout` on the time of a cluster."""

    def __init__(self, agenda: Agenda, at_s: float | None, wait: Wait) -> None:
        self._agenda, self._at_s, self._wait = agenda, at_s, wait
        self._timeout = asyncio.timeout(None)
        self._call: TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        if self._at_s is not None:
            self._call = self._agenda.call_at(self._at_s, self._end, wait=self._wait)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._call is not None:
            self._call.cancel()
        await self._timeout.__aexit__(exc_type, exc, traceback)

    def _end(self) -> None:
        self._timeout.reschedule(asyncio.get_running_loop().time())


def _wake(woken: "asyncio.Future[None]") -> None:
    if not woken.done():
        woken.set_result(None)
