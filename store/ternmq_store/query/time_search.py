"""Search of a queue for its first message from a time on, or its last message up to it.

Store times rise along a queue, so a bisection finds the message with about twenty reads of records.

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
    """Side of a time on which the message lies."""

    LOWER = "lower"
    """First message stored at the time or later; the queue's end if all are older."""

    UPPER = "upper"
    """Last message stored at the time or earlier; the first message if all are younger."""


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
    """Return the offset that `boundary` selects from `low` to `high` - 1; `low` if there is none.

    Args:
        low: Offset of the first message.
        high: Offset behind the last message.
        at_ms: Time, Unix ms.
        boundary: Side of the time.
        time_of: Function that returns a message's store time; None = an offset without a message.
        is_open: Function that returns whether an offset without a time may be the result: it is not
            skipped then.
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
"""Units of one queue, and the offsets of its messages to look up."""


@dataclass(frozen=True, slots=True)
class TimeSearch:
    """Search of a queue by store time; `run` may be called in any thread."""

    units: UnitFiles
    source: LogSource
    at_ms: int
    boundary: BoundaryType
    is_end: bool = False
    """True = the result is the end of a range: messages without a known time lie before it."""

    def run(self) -> QueueOffset:
        """Return the offset. Messages that retention deletes meanwhile count as older.

        Raises:
            OSError: The disk failed.
        """
        first, end = self.units.min_offset, self.units.end
        records = RecordReader(self.source)
        with closing(self.units), closing(records):
            times = _Times(self.units, self.source, records)
            is_open = _is_never_open if self.is_end else times.is_damaged
            found = find_offset(first, end, self.at_ms, self.boundary, times.of, is_open)
        return QueueOffset(found)


@dataclass(frozen=True, slots=True)
class StoreTimeLookup:
    """Look-up of the store times of single messages; `run` may be called in any thread."""

    source: LogSource
    queries: Sequence[StoreTimeQuery | None]
    """Queries by queue; None = no such queue."""

    def run(self) -> list[list[int]]:
        """Return the store times of the messages of each query; 0 = no such message.

        Raises:
            OSError: The disk failed.
        """
        # All queues share one open file of the log: messages of one time lie beside each other.
        with closing(RecordReader(self.source)) as records:
            return [[] if query is None else self._times(records, *query) for query in self.queries]

    def _times(
        self, records: RecordReader, units: UnitFiles, offsets: Sequence[QueueOffset]
    ) -> list[int]:
        with closing(units):
            times = _Times(units, self.source, records)
            return [times.of(offset) or 0 for offset in offsets]


def stored_at_ms(head: bytes, *, queue_id: int, offset: int, place: int) -> int | None:
    """Return the store time in the first bytes of a record; None = it is not that of the message.

    Args:
        head: Bytes at the message's place, `HEADER_BYTES_MAX` if there are so many.
        queue_id: Id of the message's queue.
        offset: Offset of the message in the queue.
        place: Log offset by the message's unit, which may be damaged.
    """
    header = find_header(head)
    if header is None:
        return None
    found = (header.queue_id, header.queue_offset, header.physical_offset)
    return header.stored_at_ms if found == (queue_id, offset, place) else None


class _Times:
    """Reader of store times in the files of one queue and of the log."""

    def __init__(self, units: UnitFiles, source: LogSource, records: RecordReader) -> None:
        self._units = units
        self._queue_id = int(units.folder.name)
        self._source = source
        self._records = records

    def of(self, offset: int) -> int | None:
        """Return a message's store time; 0 = it is deleted, None = an offset without a message.

        A damaged unit counts as an offset without a message, since it may lead to another record.
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
        return stored_at_ms(head, queue_id=self._queue_id, offset=offset, place=place)

    def is_damaged(self, offset: int) -> bool:
        """Return whether the unit is damaged: it is not empty, and no record fits it."""
        return self._place(offset) is not None and self.of(offset) is None

    def _place(self, offset: int) -> int | None:
        """Return the log offset in a unit; -1 = the unit is deleted."""
        units = self._units.units(QueueOffset(offset), 1)
        if not len(units):
            return -1
        found = unit_of(units)
        if found.size == PADDING_SIZE:
            return None
        # A damaged unit: no record lies before the log's beginning, nor ever did.
        return found.offset if found.offset >= 0 else self._source.end
