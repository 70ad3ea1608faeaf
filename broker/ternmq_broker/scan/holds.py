"""Holds of scans: log files that retention does not delete, for a limited time. Pure."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from ternmq_model.clock import Clock
from ternmq_model.offsets import PhysicalOffset

_EVER_MS: Final = 1 << 62


class ScanHold:
    """Hold of one scan. Owned by `ScanHolds`.

    Attributes:
        offset: Log offset from which on files are held.
        until_ms: End of the hold on the monotonic clock, unless its reader makes progress.
    """

    def __init__(self, offset: PhysicalOffset, until_ms: int) -> None:
        self.offset = offset
        self.until_ms = until_ms


class ScanHolds:
    """Holds of all scans of a broker. Owned by the broker's loop.

    Args:
        clock: Clock of the broker.
        limit_ms: Time without progress after which a hold ends.
    """

    def __init__(self, clock: Clock, *, limit_ms: int) -> None:
        self._clock = clock
        self._limit_ms = limit_ms
        self._holds: list[ScanHold] = []

    def needed_from(self) -> PhysicalOffset | None:
        """Return the lowest held log offset; None = there is no hold. For `Cleaner.holders`."""
        now_ms = self._clock.monotonic_ms()
        offsets = [hold.offset for hold in self._holds if now_ms < hold.until_ms]
        return min(offsets, default=None)

    @contextmanager
    def hold(self, offset: PhysicalOffset) -> Generator[ScanHold]:
        """Hold the log from `offset` on, during the block."""
        hold = ScanHold(offset, self._clock.monotonic_ms() + self._limit_ms)
        self._holds.append(hold)
        try:
            yield hold
        finally:
            self._holds.remove(hold)

    def extend(self, hold: ScanHold) -> None:
        """Extend the hold of a reader that waits for its turn, up to the next `moved`."""
        hold.until_ms = _EVER_MS

    def moved(self, hold: ScanHold, offset: PhysicalOffset | None) -> None:
        """Renew the hold of a reader that made progress; move it if `offset` is known."""
        hold.until_ms = self._clock.monotonic_ms() + self._limit_ms
        if offset is not None:
            hold.offset = offset
