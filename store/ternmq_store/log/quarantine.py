"""Stretches of the log that are damaged and cannot be had back; readers pass over them.

The log keeps its length, and every queue its numbering: only what lies in a stretch is not served.
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
    """A damaged part of the log, from a record's beginning to the next good one's."""

    start: PhysicalOffset
    end: PhysicalOffset
    reason: str
    """Damage at `start`."""


class DamagedRanges(NamedTuple):
    """Damaged ranges of one log at a time: plain values, good in any thread."""

    starts: Ints
    ends: Ints

    def are_in(self, starts: Ints) -> NDArray[np.bool_]:
        """Tell of each record that begins at one of `starts` whether it lies in a stretch."""
        if not len(self.starts):
            return np.zeros(len(starts), dtype=np.bool_)
        index = np.searchsorted(self.starts, starts, side="right") - 1
        return (index >= 0) & (starts < self.ends[index])


class Quarantine:
    """The stretches of one log: sorted, none overlaps another.

    Owned by `MessageStore`, on the store's thread. Recovery adds to it, and so does whoever meets a
    bad record later.

    Attributes:
        places: Where they are now; never changed, but replaced.
        changes: How often a stretch was added or forgotten; tells whether the notes are behind.
    """

    def __init__(self, stretches: Iterable[DamagedRange] = ()) -> None:
        self._stretches: list[DamagedRange] = []
        self.places = _places(())
        self.changes = 0
        for stretch in stretches:
            self.add(stretch.start, stretch.end, stretch.reason)
        self.changes = 0

    def __bool__(self) -> bool:
        return bool(self._stretches)

    @property
    def ranges(self) -> Sequence[DamagedRange]:
        """All stretches, in the order of the log."""
        return tuple(self._stretches)

    def add(self, start: PhysicalOffset, end: PhysicalOffset, reason: str) -> bool:
        """Add a stretch; what overlaps or touches it becomes one with it.

        Args:
            start: Where the first bad record begins.
            end: Behind the last bad byte; greater than `start`.
            reason: What is wrong; of several the first in the log is kept.

        Returns:
            Whether any of it is new.
        """
        first = bisect_right(self._stretches, start, key=lambda stretch: stretch.start)
        if first and self._stretches[first - 1].end >= start:
            first -= 1
            known = self._stretches[first]
            if known.end >= end:
                return False
            start, reason = known.start, known.reason
        last = first
        while last < len(self._stretches) and self._stretches[last].start <= end:
            end = max(end, self._stretches[last].end)
            last += 1
        self._stretches[first:last] = [DamagedRange(start, end, reason)]
        self._changed()
        return True

    def end_at(self, offset: PhysicalOffset) -> PhysicalOffset | None:
        """Return where the stretch ends that holds byte `offset`; None when there is none."""
        index = bisect_right(self._stretches, offset, key=lambda stretch: stretch.start) - 1
        if index >= 0 and offset < self._stretches[index].end:
            return self._stretches[index].end
        return None

    def remove(self, start: PhysicalOffset, end: PhysicalOffset) -> None:
        """Forget what lies between `start` and `end`: it is good again."""
        self._stretches = [
            DamagedRange(first, last, one.reason)
            for one in self._stretches
            for first, last in ((one.start, min(one.end, start)), (max(one.start, end), one.end))
            if first < last
        ]
        self._changed()

    def keep_between(self, start: PhysicalOffset, end: PhysicalOffset) -> None:
        """Forget what lies outside the log, which goes from `start` to `end`."""
        kept = [
            DamagedRange(max(stretch.start, start), min(stretch.end, end), stretch.reason)
            for stretch in self._stretches
            if stretch.end > start and stretch.start < end
        ]
        if kept != self._stretches:
            self._stretches = kept
            self._changed()

    def _changed(self) -> None:
        self.places = _places(self._stretches)
        self.changes += 1


def _places(stretches: Sequence[DamagedRange]) -> DamagedRanges:
    return DamagedRanges(
        np.array([stretch.start for stretch in stretches], dtype=np.int64),
        np.array([stretch.end for stretch in stretches], dtype=np.int64),
    )
