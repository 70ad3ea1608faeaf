"""Damaged ranges of the log, over which readers pass.

The log keeps its length, and every queue its offsets: only records in a range are not served.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints
from ternmq_model.offsets import PhysicalOffset


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """A damaged part of the log, from the start of a record to that of the next good one."""

    start: PhysicalOffset
    end: PhysicalOffset
    reason: str
    """Damage at `start`."""


class DamagedRanges(NamedTuple):
    """Damaged ranges of one log at one time: plain values for any thread."""

    starts: Ints
    ends: Ints

    def are_in(self, starts: Ints) -> NDArray[np.bool_]:
        """Return a mask: True for each record, by its start, that lies in a range."""
        if not len(self.starts):
            return np.zeros(len(starts), dtype=np.bool_)
        index = np.searchsorted(self.starts, starts, side="right") - 1
        return (index >= 0) & (starts < self.ends[index])


class Quarantine:
    """Damaged ranges of one log, sorted and without overlap.

    Owned by `MessageStore`, on the store's thread. Recovery adds ranges, and so do later readers
    that find a bad record.

    Attributes:
        places: Starts and ends of the ranges. The value is replaced, never changed.
        changes: Count of changes, by which older notes are recognized.
    """

    def __init__(self, ranges: Iterable[DamagedRange] = ()) -> None:
        self._ranges: list[DamagedRange] = []
        self.places = _places(())
        self.changes = 0
        for each in ranges:
            self.add(each.start, each.end, each.reason)
        self.changes = 0

    def __bool__(self) -> bool:
        return bool(self._ranges)

    @property
    def ranges(self) -> Sequence[DamagedRange]:
        """Damaged ranges in the order of the log."""
        return tuple(self._ranges)

    def add(self, start: PhysicalOffset, end: PhysicalOffset, reason: str) -> bool:
        """Add a range, joined with those that it overlaps or touches; return False if it is known.

        Args:
            start: Start of the first bad record.
            end: End of the last bad byte; greater than `start`.
            reason: Description of the damage. A joined range keeps that of its first record.
        """
        first = bisect_right(self._ranges, start, key=lambda each: each.start)
        if first and self._ranges[first - 1].end >= start:
            first -= 1
            known = self._ranges[first]
            if known.end >= end:
                return False
            start, reason = known.start, known.reason
        last = first
        while last < len(self._ranges) and self._ranges[last].start <= end:
            end = max(end, self._ranges[last].end)
            last += 1
        self._ranges[first:last] = [DamagedRange(start, end, reason)]
        self._changed()
        return True

    def end_at(self, offset: PhysicalOffset) -> PhysicalOffset | None:
        """Return the end of the range with byte `offset`; None = there is none."""
        index = bisect_right(self._ranges, offset, key=lambda each: each.start) - 1
        if index >= 0 and offset < self._ranges[index].end:
            return self._ranges[index].end
        return None

    def remove(self, start: PhysicalOffset, end: PhysicalOffset) -> None:
        """Remove bytes that are good again, from `start` to `end`, from the ranges."""
        self._ranges = [
            DamagedRange(first, last, one.reason)
            for one in self._ranges
            for first, last in ((one.start, min(one.end, start)), (max(one.start, end), one.end))
            if first < last
        ]
        self._changed()

    def keep_between(self, start: PhysicalOffset, end: PhysicalOffset) -> None:
        """Remove the parts of ranges outside a log from `start` to `end`."""
        kept = [
            DamagedRange(max(each.start, start), min(each.end, end), each.reason)
            for each in self._ranges
            if each.end > start and each.start < end
        ]
        if kept != self._ranges:
            self._ranges = kept
            self._changed()

    def _changed(self) -> None:
        self.places = _places(self._ranges)
        self.changes += 1


def _places(ranges: Sequence[DamagedRange]) -> DamagedRanges:
    return DamagedRanges(
        np.array([each.start for each in ranges], dtype=np.int64),
        np.array([each.end for each in ranges], dtype=np.int64),
    )
