"""Search of a queue for its first message since a time, or its last up to it.

Store times rise along a queue, so the message is found by halving: some twenty records are read.

Source: RocketMQ `ConsumeQueue.getOffsetInQueueByTime`, `BoundaryType`.
"""

import enum
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from ternmq_model.offsets import QueueOffset
from ternmq_model.record.format import HEADER_BYTES_MAX, find_header
from ternmq_store.queues.unit_files import UnitFiles
from ternmq_store.queues.units import PADDING_SIZE, unit_of
from ternmq_store.read.log_source import LogSource
from ternmq_store.read.record_reader import RecordReader


class BoundaryType(enum.Enum):
    """Side of a time that is asked for."""

    LOWER = "lower"
    """The first message stored then or later; when all are older, what comes behind the last."""

    UPPER = "upper"
    """The last message stored then or earlier; when all are younger, the first."""


def _is_never_open(_place: int) -> bool:
    return False


def find_offset(
    low: int,
    high: int,
    at_ms: int,
    boundary: BoundaryType,
    time_of: Callable[[int], int | None],
    is_open: Callable[[int], bool] = _is_never_open,
) -> int:
    """Return the message of `low` to `high`, without `high`, that `boundary` means; `low` if none.

    Args:
        low: The first message.
        high: Behind the last.
        at_ms: A time.
        boundary: From which side.
        time_of: Returns a message's store time, None for a place without a message.
        is_open: Tells whether a place without a time may have what is looked for all the same: it
            is not passed over then.
    """
    first, end = low, high
    while low < high:
        middle = (low + high) // 2
        place, time = middle, time_of(middle)
        while time is None and place + 1 < high:
            place += 1
            time = time_of(place)
        is_before = time is not None and (
            time < at_ms if boundary is BoundaryType.LOWER else time <= at_ms
        )
        if time is None:
            high = middle
        elif is_before:
            low = place + 1
        else:
            high = middle
    if boundary is BoundaryType.LOWER:
        while low < end and time_of(low) is None and not is_open(low):
            low += 1
        return low
    low -= 1
    while low > first and time_of(low) is None:
        low -= 1
    return max(low, first)


StoreTimeQuery = tuple[UnitFiles, Sequence[QueueOffset]]
"""Units of one queue, and the messages of it whose store times are looked up."""


@dataclass(frozen=True, slots=True)
class TimeSearch:
    """Search of a queue by store time; `run` may be called in any thread."""

    units: UnitFiles
    source: LogSource
    at_ms: int
    boundary: BoundaryType
    is_end: bool = False
    """True if the result ends a range: messages without a known time belong before it."""

    def run(self) -> QueueOffset:
        """Return the message that is meant; what retention removes meanwhile counts as older.

        Raises:
            OSError: The disk failed.
        """
        first, end = self.units.min_offset, self.units.end
        with closing(_Times(self.units, self.source)) as times:
            is_open = _is_never_open if self.is_end else times.is_damaged
            found = find_offset(first, end, self.at_ms, self.boundary, times.of, is_open)
        return QueueOffset(found)


@dataclass(frozen=True, slots=True)
class StoreTimeLookup:
    """The store times of single messages; `run` may be called in any thread."""

    source: LogSource
    queries: Sequence[StoreTimeQuery | None]
    """None for a queue that there is not."""

    def run(self) -> list[list[int]]:
        """Return for each query the store time of each message; 0 where there is none, or no more.

        Raises:
            OSError: The disk failed.
        """
        return [[] if query is None else self._times(*query) for query in self.queries]

    def _times(self, units: UnitFiles, offsets: Sequence[QueueOffset]) -> list[int]:
        with closing(_Times(units, self.source)) as times:
            return [times.of(offset) or 0 for offset in offsets]


class _Times:
    """Reader of store times in the files of one queue and of the log."""

    def __init__(self, units: UnitFiles, source: LogSource) -> None:
        self._units = units
        self._queue_id = int(units.folder.name)
        self._source = source
        self._records = RecordReader(source)

    def close(self) -> None:
        """Close the files."""
        self._units.close()
        self._records.close()

    def of(self, offset: int) -> int | None:
        """Return a message's store time; 0 when it is gone, None for a place without a message.

        A unit that is damaged tells of no message: nobody is led by the time of another record.
        """
        place = self._place(offset)
        if place is None or place >= self._source.end:
            return None
        if place < self._source.start:
            before = self._place(offset - 1)
            return 0 if before is None or before < self._source.start else None
        head = self._records.bytes_at(place, HEADER_BYTES_MAX)
        if not head:
            return 0
        header = find_header(head)
        is_right = header is not None and (
            (header.queue_id, header.queue_offset, header.physical_offset)
            == (self._queue_id, offset, place)
        )
        return header.stored_at_ms if header is not None and is_right else None

    def is_damaged(self, offset: int) -> bool:
        """Return whether a unit is no place without a message, although no record fits it."""
        return self._place(offset) is not None and self.of(offset) is None

    def _place(self, offset: int) -> int | None:
        """Return where a unit says that its record begins; -1 when there is no unit any more."""
        units = self._units.units(QueueOffset(offset), 1)
        if not len(units):
            return -1
        found = unit_of(units)
        if found.size == PADDING_SIZE:
            return None
        # A damaged unit: no record lies before the log's beginning, nor ever did.
        return found.offset if found.offset >= 0 else self._source.end
