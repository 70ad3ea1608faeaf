"""The wake-up timer of a delivery job, which sleeps until the next message is due."""

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final

from ternmq_model.errors import TernError
from ternmq_runtime.timers import TimerHandle, Timers, Wait

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.1
_RETRY_MAX_S: Final = 5.0
_DOUBLINGS_MAX: Final = 10
_SLEEP_MAX_S: Final = 10.0
"""Limit on a sleep until a message is due: the machine may sleep, too."""


class WakeupTimer:
    """Timer that wakes one job at the earliest moment that was set. Owned by the job.

    Args:
        wake: Wakes the job; called on the loop.
        kind: Kind of the messages that the job delivers, for the log.
        timers: Timers of the broker.
    """

    def __init__(self, wake: Callable[[], None], kind: str, timers: Timers) -> None:
        self._wake = wake
        self._timers = timers
        self._kind = kind
        self._timer: TimerHandle | None = None
        self._due_at_s = math.inf
        self._failures = 0

    def set(self, in_s: float) -> None:
        """Wake the job in `in_s` seconds, unless it is to wake earlier."""
        self._plan(in_s, due_in_s=in_s)

    def sleep(self, in_s: float) -> None:
        """Wake the job in `in_s` seconds, but at the latest after 10 s."""
        self._plan(min(in_s, _SLEEP_MAX_S), due_in_s=in_s)

    def poll(self, in_s: float) -> None:
        """Wake the job in `in_s` seconds, at which nothing may be due."""
        self._plan(in_s, due_in_s=math.inf)

    def clear(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._expire()

    def _plan(self, in_s: float, *, due_in_s: float) -> None:
        now_s = self._timers.now_s()
        at_s = now_s + max(in_s, 0.0)
        self._due_at_s = min(self._due_at_s, now_s + due_in_s)
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = self._timers.call_at(
            at_s,
            self._expired,
            wait=Wait.PERIODIC,
            due_in_s=lambda: self._due_at_s - self._timers.now_s(),
        )

    async def attempt(self, step: Callable[[], Awaitable[bool]]) -> bool:
        """Run a step of the job; return whether more is to be done at once.

        A failure is logged, and the step retried after a pause; the pauses double.
        """
        try:
            has_more = await step()
        except TernError as error:
            self.set(min(_RETRY_S * 2**self._failures, _RETRY_MAX_S))
            if not self._failures:
                logger.warning("messages wait, delivery fails kind=%s err=%s", self._kind, error)
            self._failures = min(self._failures + 1, _DOUBLINGS_MAX)
            return False
        if self._failures:
            self._failures = 0
            logger.info("messages are delivered again kind=%s", self._kind)
        return has_more

    def _expired(self) -> None:
        self._expire()
        self._wake()

    def _expire(self) -> None:
        self._timer, self._due_at_s = None, math.inf
