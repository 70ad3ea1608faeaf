"""Deadlines of staged half messages: stretches of their queue by the second. Pure.

One half message costs nothing here, and neither does its end: of what is staged for an hour most is
ended long before, and would else be remembered until then.
"""

import heapq
from collections import deque
from typing import Final

from ternmq_model.offsets import QueueOffset

_GAP_MAX: Final = 1024
"""Places between two stretches of one second that are looked at rather than left out."""

_TICK_MS: Final = 1000


class StagedDeadlines:
    """Places in a queue that are to be looked at when their second has come. Owned by a table."""

    def __init__(self) -> None:
        self._ticks: list[int] = []
        """A heap."""

        self._stretches: dict[int, deque[tuple[QueueOffset, QueueOffset]]] = {}

    def add(self, begin: QueueOffset, end: QueueOffset, due_at_ms: int) -> None:
        """Have a stretch looked at, within a second from `due_at_ms` on."""
        tick = -(-due_at_ms // _TICK_MS)
        stretches = self._stretches.get(tick)
        if stretches is None:
            stretches = self._stretches[tick] = deque()
            heapq.heappush(self._ticks, tick)
        if stretches and 0 <= begin - stretches[-1][1] <= _GAP_MAX:
            begin = stretches.pop()[0]
        stretches.append((begin, end))

    def take(self, now_ms: int, *, maximum: int) -> list[QueueOffset]:
        """Return places whose second has come, each once; at most `maximum`."""
        places: list[QueueOffset] = []
        while self._ticks and self._ticks[0] * _TICK_MS <= now_ms and len(places) < maximum:
            stretches = self._stretches[self._ticks[0]]
            begin, end = stretches.popleft()
            cut = min(end, QueueOffset(begin + maximum - len(places)))
            places += map(QueueOffset, range(begin, cut))
            if cut < end:
                stretches.appendleft((cut, end))
            elif not stretches:
                del self._stretches[heapq.heappop(self._ticks)]
        return places
