"""One direction of a stream inside one process: bounded, ordered, delayed, breakable."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from ternmq_model.errors import ConnectionLost, TernError
from ternmq_runtime.timers import TimerHandle, Timers, Ts

ErrorMaker = Callable[[], TernError]
"""Makes what a stream's end raises: anew each time, since each raising has its own traceback."""

_TIMER_SLACK_S: Final = 1e-6
"""asyncio may run a timer up to one clock resolution early."""


def soon(
    timers: Timers, delay_s: float, callback: Callable[[*Ts], object], *args: *Ts
) -> TimerHandle | asyncio.Handle:
    """Plan a call after the delay of a message; without one, for the next turn of the loop."""
    if not delay_s:
        return asyncio.get_running_loop().call_soon(callback, *args)
    return timers.call_later(delay_s, callback, *args)


class Pipe:
    """Bytes from one writer to one reader. Owned by the stream it belongs to.

    What is written arrives in order, never before its delay is over. Breaking it off wakes both
    ends at once; what had not arrived is lost, as with a reset connection.
    """

    def __init__(self, timers: Timers, *, capacity: int) -> None:
        self._timers = timers
        self._capacity = capacity
        self._items: deque[tuple[float, bytes]] = deque()
        self._last_arrives_at_s = 0.0
        self._ended = False
        self._end_error: ErrorMaker | None = None
        self._broken: ErrorMaker | None = None
        self._is_stalled = False
        self._changed = asyncio.Event()

    async def write(self, payload: bytes, *, delay_s: float) -> None:
        """Add `payload`, waiting while `capacity` messages lie unread.

        Cancelling is safe: a cancelled payload is not written.

        Raises:
            TernError: The error with which the pipe was broken off.
            ConnectionLost: The pipe has ended.
        """
        while self._broken is None and not self._ended and len(self._items) >= self._capacity:
            await self._changed.wait()
        if self._broken is not None:
            raise self._broken()
        if self._ended:
            raise ConnectionLost("this side has finished the stream")
        # A later message never overtakes an earlier one, whatever its delay.
        now_s = self._timers.now_s()
        self._last_arrives_at_s = max(self._last_arrives_at_s, now_s + delay_s)
        self._items.append((self._last_arrives_at_s, payload))
        soon(self._timers, self._last_arrives_at_s - now_s, self._wake)

    async def read(self) -> bytes | None:
        """Return the next payload, or None when the pipe has ended well.

        Cancelling is safe: nothing is taken.

        Raises:
            TernError: The error with which the pipe was broken off, or ended.
        """
        while True:
            if self._broken is not None:
                raise self._broken()
            if self._is_stalled:
                await self._changed.wait()
            elif self._items and self._items[0][0] <= self._timers.now_s() + _TIMER_SLACK_S:
                _, payload = self._items.popleft()
                self._wake()
                return payload
            elif self._items or not self._ended:
                await self._changed.wait()
            elif self._end_error is not None:
                raise self._end_error()
            else:
                return None

    def end(self, error: ErrorMaker | None = None) -> None:
        """Let the reader have what was written, then None, or `error`. Safe to repeat."""
        if not self._ended:
            self._ended = True
            self._end_error = error
            self._wake()

    def stall(self, is_stalled: bool = True) -> None:
        """Let nothing arrive, neither payloads nor the end, until it is let go."""
        self._is_stalled = is_stalled
        self._wake()

    def break_off(self, error: ErrorMaker) -> None:
        """Fail both ends with `error` at once. Safe to repeat; the first error stays."""
        if self._broken is None:
            self._broken = error
            self._items.clear()
            self._wake()

    def _wake(self) -> None:
        # Each waiter looks again; the next change has an event of its own.
        self._changed.set()
        self._changed = asyncio.Event()
