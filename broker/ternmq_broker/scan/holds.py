"""Holds of scans: files of the log that retention leaves alone, for a time. Pure."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from ternmq_model.clock import Clock
from ternmq_model.offsets import PhysicalOffset

_EVER_MS: Final = 1 << 62


class ScanHold:
    """Hold of one scan. Owned by `ScanHolds`.

    Attributes:
        offset: From where on.
        until_ms: It counts no more from then on, on the monotonic clock: its reader took nothing.
    """

    def __init__(self, offset: PhysicalOffset, until_ms: int) -> None:
        self.offset = offset
        self.until_ms = until_ms


class ScanHolds:
    """Holds of all scans of a broker. Owned by the broker's loop.

    Args:
        clock: The broker's.
        limit_ms: A scan that makes no progress for so long holds nothing any more.
    """

    def __init__(self, clock: Clock, *, limit_ms: int) -> None:
        self._clock = clock
        self._limit_ms = limit_ms
        self._holds: list[ScanHold] = []

    def needed_from(self) -> PhysicalOffset | None:
        """Return from where on the log is needed; None = not at all. For `Cleaner.holders`."""
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

    def waits(self, hold: ScanHold) -> None:
        """Extend the hold of a reader that waits for its turn, until it `moved`."""
        hold.until_ms = _EVER_MS

    def moved(self, hold: ScanHold, offset: PhysicalOffset | None) -> None:
        """Extend the hold of a reader that took something; move it if `offset` is known."""
        hold.until_ms = self._clock.monotonic_ms() + self._limit_ms
        if offset is not None:
            hold.offset = offset
