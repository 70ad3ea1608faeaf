"""Forecast of the time until a disk is full. Pure."""

import math
from collections import deque
from typing import Final

_SPAN_MS: Final = 600_000
_LEAST_MS: Final = 60_000
"""A shorter time is too short for a rate: a burst would look like a full disk."""


class DiskForecast:
    """Growth of a log over the last ten minutes. One owner."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque()

    def seconds_to_full(self, log_bytes: int, free_bytes: int, *, now_ms: int) -> float:
        """Record the length of the log, and return the time until the disk is full.

        Args:
            log_bytes: Present length of the log, without deleted files.
            free_bytes: Bytes until the disk is full.
            now_ms: Monotonic clock.

        Returns:
            The time, s; infinity when the log does not grow, or was seen for less than a minute.
        """
        samples = self._samples
        samples.append((now_ms, log_bytes))
        # The oldest sample is the newest one that is ten minutes old.
        while len(samples) > 1 and samples[1][0] <= now_ms - _SPAN_MS:
            samples.popleft()
        begun_ms, begun_bytes = samples[0]
        grown, passed_ms = log_bytes - begun_bytes, now_ms - begun_ms
        if grown <= 0 or passed_ms < _LEAST_MS:
            return math.inf
        return free_bytes * passed_ms / grown / 1000
