"""The wake-up timer of a delivery job, which sleeps until the next message is due."""

import asyncio
from collections.abc import Callable
from typing import Final

_RETRY_S: Final = 0.1
_RETRY_MAX_S: Final = 5.0
_DOUBLINGS_MAX: Final = 10


class WakeupTimer:
    """Timer that wakes one job at the earliest moment that was set. Owned by the job.

    Failed steps are retried after pauses that double.

    Args:
        wake: Wakes the job; called on the loop.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._failures = 0

    def set(self, in_s: float) -> None:
        """Wake the job in `in_s` seconds, unless it is to wake earlier."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + max(in_s, 0.0)
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self._expired)

    def clear(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def retry(self) -> bool:
        """Set the timer for another attempt after a failure; return whether it is the first one."""
        self.set(min(_RETRY_S * 2**self._failures, _RETRY_MAX_S))
        self._failures = min(self._failures + 1, _DOUBLINGS_MAX)
        return self._failures == 1

    def succeeded(self) -> bool:
        """Record a step without a failure; return whether steps had failed before."""
        failures, self._failures = self._failures, 0
        return failures > 0

    def _expired(self) -> None:
        self._timer = None
        self._wake()
