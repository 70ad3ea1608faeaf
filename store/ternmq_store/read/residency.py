"""Residency: parts of log and queues that can be read from the map without a wait for the disk.

Records appended or read since the store was opened are in memory, unless they lie so far behind the
end of the log that the system has evicted them.
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
"""Bytes of the log between two landmarks, if memory is small: slow queues need them, too."""

_OLDER_MAX: Final = 256
"""Older ranges of a queue that are remembered; beyond that, the oldest is read from the disk."""


class ResidentLog:
    """Ranges of the log whose records are in memory and known to be good.

    Owned by `StoreReads`. None overlaps or touches another.

    Args:
        end: End of the log; this process appends all records behind it.
    """

    def __init__(self, end: int) -> None:
        self._starts = [end]
        self._ends = [_ALL_THAT_FOLLOWS]

    def end_at(self, offset: int) -> int:
        """Return the end of the range that holds byte `offset`; `offset` if there is none."""
        index = bisect_right(self._starts, offset) - 1
        return max(self._ends[index], offset) if index >= 0 else offset

    def ends(self) -> Sequence[int]:
        """Return the ends of the ranges, at which other records begin; ascending."""
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
        """Forget ranges that end before `offset`: they may be evicted."""
        count = bisect_right(self._ends, offset)
        del self._starts[:count], self._ends[:count]


class ResidentUnits:
    """Ranges of one consume queue whose units are in memory. Owned by `StoreReads`.

    Args:
        end: End of the queue; this process appends all units behind it.
        physical: Log offset at or behind which the records of those messages lie.
    """

    def __init__(self, end: int, physical: int) -> None:
        self._offsets = [end]
        self._physicals = [physical]
        self._older: deque[tuple[int, int, int]] = deque(maxlen=_OLDER_MAX)

    def follow(self, queue: ConsumeQueue, log_end: int, distance: int) -> None:
        """Add a landmark of the newest message, if the last one is far away.

        Args:
            queue: Queue that has just grown.
            log_end: Approximate log offset behind its newest record.
            distance: Most bytes of the log between two landmarks.
        """
        newest = QueueOffset(queue.end - 1)
        is_far = log_end - self._physicals[-1] > max(distance, _LANDMARK_BYTES)
        if newest - self._offsets[-1] < (1 if is_far else _LANDMARK_UNITS):
            return
        self._offsets.append(newest)
        self._physicals.append(queue.unit(newest).offset)

    def add(self, start: int, end: int, physical: int) -> None:
        """Add older units that were read; `physical` is the first record's log offset."""
        self._older.append((start, end, physical))

    def end_at(self, offset: int, border: int) -> int:
        """Return the end of the units in memory from `offset` on; `offset` if there are none.

        Args:
            offset: Queue offset.
            border: Log offset before which records are evicted.
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
        log_end: End of the log; later records are in memory.
        dispatched: Log offset at or behind which records of later units lie.
        queues: All queues; later units are in memory.
    """

    def __init__(self, log_end: int, dispatched: int, queues: Iterable[ConsumeQueue]) -> None:
        self.log = ResidentLog(log_end)
        self.log_end = log_end
        self._units: WeakKeyDictionary[ConsumeQueue, ResidentUnits] = WeakKeyDictionary()
        for queue in queues:
            self._units[queue] = ResidentUnits(queue.end, dispatched)

    def units_of(self, queue: ConsumeQueue) -> ResidentUnits:
        """Return the units of a queue in memory: all units, if the queue was added later."""
        units = self._units.get(queue)
        if units is None:
            begin = queue.unit(queue.min_offset).offset if queue.end > queue.min_offset else 0
            units = self._units[queue] = ResidentUnits(queue.min_offset, begin)
        return units
