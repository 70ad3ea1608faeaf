"""Residency: parts of log and queues that can be read from the map without waiting.

What was appended since the store was opened is in memory, and so is what a read brought there
since; unless it lies so far behind the end of the log that the system has taken it away again.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from ternmq_model.offsets import QueueOffset
from ternmq_store.queues.consume_queue import ConsumeQueue

_ALL_THAT_FOLLOWS: Final = 1 << 62
_LANDMARK_UNITS: Final = 4096
"""Units between two landmarks: log offsets that a queue remembers."""

_LANDMARK_BYTES: Final = 1 << 20
"""Or so far apart in the log, if memory is small: the newest message of a slow queue has one."""

_OLDER_MAX: Final = 256
"""Ranges of a queue remembered besides; with more, the oldest is read from the disk again."""


class ResidentLog:
    """Ranges of the log whose records are in memory and known to be good.

    Owned by `StoreReads`. None overlaps or touches another.

    Args:
        end: Of the log; everything from here on is appended by this process.
    """

    def __init__(self, end: int) -> None:
        self._starts = [end]
        self._ends = [_ALL_THAT_FOLLOWS]

    def end_at(self, offset: int) -> int:
        """Return where the range ends that holds byte `offset`; `offset` if there is none."""
        index = bisect_right(self._starts, offset) - 1
        return max(self._ends[index], offset) if index >= 0 else offset

    def ends(self) -> Sequence[int]:
        """Return where ranges end and so, if the log goes on, other records begin; ascending."""
        return tuple(self._ends)

    def add(self, start: int, end: int) -> None:
        """Add a range."""
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


class ResidentUnits:
    """Ranges of one consume queue whose units are in memory. Owned by `StoreReads`.

    Args:
        end: Of the queue; everything from here on is appended by this process.
        physical: The records of those messages lie here in the log, or behind.
    """

    def __init__(self, end: int, physical: int) -> None:
        self._offsets = [end]
        self._physicals = [physical]
        self._older: deque[tuple[int, int, int]] = deque(maxlen=_OLDER_MAX)

    def follow(self, queue: ConsumeQueue, log_end: int, distance: int) -> None:
        """Remember where in the log the newest message lies, now and then.

        Args:
            queue: Has just grown.
            log_end: About where its newest record ends.
            distance: Of two such places in the log, at most.
        """
        newest = QueueOffset(queue.end - 1)
        is_far = log_end - self._physicals[-1] > max(distance, _LANDMARK_BYTES)
        if newest - self._offsets[-1] < (1 if is_far else _LANDMARK_UNITS):
            return
        self._offsets.append(newest)
        self._physicals.append(queue.unit(newest).offset)

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


class Residency:
    """Parts of a store that are in memory. Owned by `StoreReads`.

    Args:
        log_end: What is appended from here on is.
        dispatched: What the queues get from now on lies here in the log, or behind.
        queues: All there are; what they get from now on is.
    """

    def __init__(self, log_end: int, dispatched: int, queues: Iterable[ConsumeQueue]) -> None:
        self.log = ResidentLog(log_end)
        self.log_end = log_end
        self._units: WeakKeyDictionary[ConsumeQueue, ResidentUnits] = WeakKeyDictionary()
        for queue in queues:
            self._units[queue] = ResidentUnits(queue.end, dispatched)

    def units_of(self, queue: ConsumeQueue) -> ResidentUnits:
        """Return what of a queue is; all of one that came later."""
        units = self._units.get(queue)
        if units is None:
            begin = queue.unit(queue.min_offset).offset if queue.end > queue.min_offset else 0
            units = self._units[queue] = ResidentUnits(queue.min_offset, begin)
        return units
