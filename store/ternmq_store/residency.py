"""Which parts of the log and of the queues can be read from the map without waiting. Pure.

What was appended since the store was opened is in memory, and so is what a read brought there
since; unless it lies so far behind the end of the log that the system has taken it away again.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final

_ALL_THAT_FOLLOWS: Final = 1 << 62
_LANDMARK_UNITS: Final = 4096
"""So far apart a queue remembers where in the log its messages lie."""

_OLDER_MAX: Final = 256
"""Stretches of a queue remembered besides; with more, the oldest is read from the disk again."""


class TouchedLog:
    """Stretches of the log whose records are in memory and known to be good.

    Owned by `Reads`. None overlaps or touches another.

    Args:
        end: Of the log; everything from here on is appended by this process.
    """

    def __init__(self, end: int) -> None:
        self._starts = [end]
        self._ends = [_ALL_THAT_FOLLOWS]

    def end_at(self, offset: int) -> int:
        """Return where the stretch ends that holds byte `offset`; `offset` if there is none."""
        index = bisect_right(self._starts, offset) - 1
        return max(self._ends[index], offset) if index >= 0 else offset

    def ends(self) -> Sequence[int]:
        """Return where stretches end and so, if the log goes on, other records begin; ascending."""
        return tuple(self._ends)

    def add(self, start: int, end: int) -> None:
        """Add a stretch."""
        first = bisect_right(self._starts, start)
        if first and self._ends[first - 1] >= start:
            first -= 1
            start = self._starts[first]
        last = first
        while last < len(self._starts) and self._starts[last] <= end:
            end = max(end, self._ends[last])
            last += 1
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def forget_before(self, offset: int) -> None:
        """Forget what ends before `offset`: it may be in memory no longer."""
        count = bisect_right(self._ends, offset)
        del self._starts[:count], self._ends[:count]


class TouchedUnits:
    """Stretches of one consume queue whose units are in memory. Owned by `Reads`.

    Args:
        end: Of the queue; everything from here on is appended by this process.
        physical: The records of those messages lie here in the log, or behind.
    """

    def __init__(self, end: int, physical: int) -> None:
        self._offsets = [end]
        self._physicals = [physical]
        self._older: deque[tuple[int, int, int]] = deque(maxlen=_OLDER_MAX)

    def is_due(self, end: int, physical: int, distance: int) -> bool:
        """Tell whether the newest message is worth a landmark.

        Args:
            end: Of the queue.
            physical: About where the log ends.
            distance: Landmarks should lie no further apart in it.
        """
        return (
            end - self._offsets[-1] > _LANDMARK_UNITS or physical - self._physicals[-1] > distance
        )

    def mark(self, offset: int, physical: int) -> None:
        """Remember where in the log the record of message `offset` lies, the newest."""
        if offset > self._offsets[-1]:
            self._offsets.append(offset)
            self._physicals.append(physical)
        elif offset == self._offsets[-1]:
            self._physicals[-1] = physical

    def add(self, start: int, end: int, physical: int) -> None:
        """Add older units that were read; `physical` is where the first one's record lies."""
        self._older.append((start, end, physical))

    def end_at(self, offset: int, border: int) -> int:
        """Return up to where units can be read from `offset` on; `offset` if none can.

        Args:
            offset: In the queue.
            border: Of the log: what lies before it is in memory no longer.
        """
        index = bisect_right(self._offsets, offset) - 1
        if index >= 0:
            return _ALL_THAT_FOLLOWS if self._physicals[index] >= border else offset
        for start, end, physical in reversed(self._older):
            if start <= offset < end and physical >= border:
                return end
        return offset
