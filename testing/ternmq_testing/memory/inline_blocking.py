"""Blocking calls on the thread of the event loop."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ternmq_runtime.timers import LOOP_TIMERS, Timers

P = ParamSpec("P")
T = TypeVar("T")


class InlineBlocking:
    """Runs blocking calls on the loop's thread, each at the beginning of its pause or at the end.

    A disk makes durable what was written before a sync began, at some moment of the sync. A call
    with its effect at the beginning exposes a product that counts what was written meanwhile; one
    with its effect at the end, a product that does not wait for the end.

    Args:
        delay_s: Says how long the next call takes; by default nothing but one turn of the loop.
        is_late: Says whether the next call takes effect at the end of its pause; by default none
            does.
        timers: Timers of the pauses.
    """

    def __init__(
        self,
        delay_s: Callable[[], float] = lambda: 0.0,
        is_late: Callable[[], bool] = lambda: False,
        *,
        timers: Timers = LOOP_TIMERS,
    ) -> None:
        self._timers = timers
        self._delay_s = delay_s
        self._is_late = is_late

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `function` returns, or raise what it raises, after the pause.

        Cancelling stops the waiting; a function that has not run yet runs at once.
        """
        delay_s = self._delay_s()
        if not self._is_late():
            try:
                return function(*args, **kwargs)
            finally:
                await self._timers.sleep(delay_s)
        try:
            await self._timers.sleep(delay_s)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                function(*args, **kwargs)
            raise
        return function(*args, **kwargs)
