"""Deadlines of staged half messages: ranges of their queue by the second. Pure.

A range costs memory, a half message or its end none: most of the half messages that are staged for
an hour are ended long before, and each would otherwise be remembered for that hour.
"""

import heapq
import math
from collections import deque
from typing import Final

from ternmq_model.offsets import QueueOffset

_GAP_MAX: Final = 1024
"""Offsets between two ranges of one second that join them, rather than be left out."""

_TICK_MS: Final = 1000


class StagedDeadlines:
    """Offsets of a queue by the second in which they are due. Owned by a table."""

    def __init__(self) -> None:
        self._ticks: list[int] = []
        """A heap."""

        self._ranges: dict[int, deque[tuple[QueueOffset, QueueOffset]]] = {}

    def add(self, begin: QueueOffset, end: QueueOffset, due_at_ms: int) -> None:
        """Add a range of offsets that is due within a second from `due_at_ms` on."""
        tick = -(-due_at_ms // _TICK_MS)
        ranges = self._ranges.get(tick)
        if ranges is None:
            ranges = self._ranges[tick] = deque()
            heapq.heappush(self._ticks, tick)
        if ranges and 0 <= begin - ranges[-1][1] <= _GAP_MAX:
            begin = ranges.pop()[0]
        ranges.append((begin, end))

    def first_ms(self) -> float:
        """Return the time at which the first offsets are due; infinity = there are none."""
        return self._ticks[0] * _TICK_MS if self._ticks else math.inf

    def take(self, now_ms: int, *, maximum: int) -> list[QueueOffset]:
        """Remove and return at most `maximum` offsets that are due."""
        offsets: list[QueueOffset] = []
        while self._ticks and self._ticks[0] * _TICK_MS <= now_ms and len(offsets) < maximum:
            ranges = self._ranges[self._ticks[0]]
            begin, end = ranges.popleft()
            cut = min(end, QueueOffset(begin + maximum - len(offsets)))
            offsets += map(QueueOffset, range(begin, cut))
            if cut < end:
                ranges.appendleft((cut, end))
            elif not ranges:
                del self._ranges[heapq.heappop(self._ticks)]
        return offsets
