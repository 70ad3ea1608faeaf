"""The alarm of a job: it wakes the job at a moment, so that it may sleep until then."""

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls back once, at the earliest moment that it was set to. Owned by one job.

    Args:
        ring: Called on the loop.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None

    def set(self, in_s: float) -> None:
        """Ring in `in_s` seconds, or sooner if that was wanted before."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + max(in_s, 0.0)
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self._rung)

    def clear(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rung(self) -> None:
        self._timer = None
        self._ring()
