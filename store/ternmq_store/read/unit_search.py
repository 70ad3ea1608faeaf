"""Search for the record and the right unit of a message whose consume queue unit is damaged.

A queue's records lie in the log in the order of their queue offsets, so the record lies between
those of its good neighbours. One read of that range finds all messages between them. Plain values,
for any thread.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from contextlib import closing
from typing import Final, NamedTuple

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.format import FLAG_PREPARED, read_size
from ternmq_model.record.scanner import scan_records
from ternmq_store.disk.layout import base_of
from ternmq_store.dispatch.dispatch_request import stored_units
from ternmq_store.queues.consume_queue import are_same_codes, point_to_same
from ternmq_store.queues.consume_queue_ext import ExtSource, TagCodes, plain_tag_codes
from ternmq_store.queues.unit_files import UnitFiles
from ternmq_store.queues.units import (
    PADDING_SIZE,
    UNIT,
    Unit,
    UnitRepair,
    Units,
    as_units,
    find_turned,
    unit_of,
)
from ternmq_store.read.log_source import LogSource
from ternmq_store.read.message_selection import are_in_order
from ternmq_store.read.record_reader import RecordReader

SEARCH_BYTES: Final = 64 << 20
"""Bytes of the log searched in one go; the next read of the message resumes there."""

IN_VAIN: Final = 1 << 62
"""Log offset of a search that has found no good record of its messages."""

_PIECE_BYTES: Final = 512 << 10
_OFFSET_BITS: Final = 63
_UNITS_BEHIND: Final = 64


class UnitSearchResult(NamedTuple):
    """One search for the records of a queue's messages from `first` on before `end`."""

    first: int
    end: int
    place: int
    """Log offset that the search has reached, or `IN_VAIN`."""


class QueueSource(NamedTuple):
    """Source of one queue's units, and the known searches for its messages."""

    topic: str
    queue_id: int
    files: UnitFiles
    floor: PhysicalOffset
    """Log offset before which records of the topic are deleted."""

    ext: ExtSource | None
    """Extension of the queue; None if it has none."""

    searched: Sequence[UnitSearchResult]
    """Earlier searches, in the order of the queue; none overlaps another."""


class _Neighbour(NamedTuple):
    """Good message next to damaged ones on one side, or the end of the queue there."""

    number: int
    unit: Unit | None


def units_in(
    batch: RecordBatch, topic: str, queue_id: int, floor: PhysicalOffset
) -> tuple[Ints, Units]:
    """Return the numbers of one queue's messages in a verified batch, and their right units."""
    for queue in batch.queues:
        if (queue.topic, queue.queue_id) == (topic, queue_id):
            return counted(batch, topic, queue.rows, floor)
    none = np.zeros(0, dtype=np.int64)
    return none, stored_units(batch, topic, none)


def counted(
    batch: RecordBatch, topic: str, rows: Ints, floor: PhysicalOffset
) -> tuple[Ints, Units]:
    """Return numbers and right units of those rows of a topic that have units."""
    headers = batch.headers
    is_message = (headers["sys_flag"][rows] & FLAG_PREPARED) == 0
    rows = rows[is_message & (headers["physical_offset"][rows] >= floor)]
    return headers["queue_offset"][rows].astype(np.int64), stored_units(batch, topic, rows)


class UnitSearch:
    """Search for messages of one queue, which holds one file of the queue open.

    All methods that read raise OSError when the disk fails.

    Attributes:
        searched: Searches so far, earlier ones included.
    """

    def __init__(self, source: LogSource, queue: QueueSource) -> None:
        self._source = source
        self._queue = queue
        self._found: set[int] = set()
        self.searched = queue.searched

    def unit_at(self, number: int, place: int) -> Units | None:
        """Return the right unit of a message if its good record begins at log offset `place`."""
        queue, batch = self._queue, record_at(self._source, place)
        if batch is None:
            return None
        numbers, units = units_in(batch, queue.topic, queue.queue_id, queue.floor)
        return units if numbers.tolist() == [number] else None

    def fits(self, number: int, unit: Unit) -> bool:
        """Return whether a unit has the offset and the size of the message's good record."""
        right = None if unit.size == PADDING_SIZE else self.unit_at(number, unit.offset)
        return right is not None and int(right["size"][0]) == unit.size

    def codes_of(self, units: Units) -> TagCodes:
        """Return the tag codes of units, from the units or the extension."""
        ext = self._queue.ext
        return plain_tag_codes(units) if ext is None else ext.tag_codes(units)

    def repairs(
        self, numbers: Ints, there: Units, right: Units, codes: TagCodes | None = None
    ) -> list[UnitRepair]:
        """Return the repairs of damaged units, by the right units of good records.

        A unit of another good record with the same queue offset stays: that offset was assigned
        twice. A right tag code stays in the unit or in the extension.
        """
        codes = self.codes_of(there) if codes is None else codes
        same_codes = are_same_codes(self._queue.topic, codes, right)
        same_places = point_to_same(there, right)
        found: list[UnitRepair] = []
        for row in np.flatnonzero(~(same_places & same_codes)).tolist():
            number, was, unit = (
                QueueOffset(int(numbers[row])),
                unit_of(there, row),
                unit_of(right, row),
            )
            if not same_places[row] and self.fits(number, was):
                continue
            if same_codes[row]:
                unit = unit._replace(tag_code=was.tag_code)
            found.append(UnitRepair(number, was, unit))
        return found

    def compare(self, numbers: Ints, right: Units) -> list[UnitRepair]:
        """Return the repairs of the units of messages, by the right units of good records.

        Args:
            numbers: Queue offsets of the messages, ascending.
            right: Right units of the messages.
        """
        files, found, row = self._queue.files, list[UnitRepair](), 0
        while row < len(numbers):
            first = QueueOffset(int(numbers[row]))
            there = files.units(first, max(int(numbers[-1]) - first, 0) + 1)
            inside = (numbers[row:] >= first) & (numbers[row:] < first + max(len(there), 1))
            count = len(inside) if inside.all() else int(inside.argmin())
            if len(there):
                own = slice(row, row + count)
                found += self.repairs(numbers[own], there[numbers[own] - first], right[own])
            row += count
        return found

    def turn(self, numbers: Ints) -> list[UnitRepair]:
        """Return the repairs of units in the other byte order, among and beside those of messages.

        Units of damaged records may be among them, which no record can correct.

        Args:
            numbers: Queue offsets of the messages, ascending.
        """
        files, found = self._queue.files, list[UnitRepair]()
        if not len(numbers):
            return found
        first, end = QueueOffset(int(numbers[0])), QueueOffset(int(numbers[-1]) + 1)
        while first > files.min_offset and self._is_turned(files.unit(QueueOffset(first - 1))):
            first = QueueOffset(first - 1)
        while end < files.end and self._is_turned(files.unit(end)):
            end = QueueOffset(end + 1)
        while len(there := files.units(first, end - first)):
            rows, right = find_turned(there, self._source.end)
            for at, row in enumerate(rows.tolist()):
                number = QueueOffset(first + row)
                found.append(UnitRepair(number, unit_of(there, row), unit_of(right, at)))
            first = QueueOffset(first + len(there))
        return found

    def _is_turned(self, unit: Unit) -> bool:
        return len(find_turned(as_units(unit), self._source.end)[0]) > 0

    def is_over(self, number: int) -> bool:
        """Return whether the search for a message has ended, with a record or without."""
        searched = searched_at(self.searched, number)
        return number in self._found or (searched is not None and searched.place == IN_VAIN)

    def find_all(self, number: int, was: Unit) -> Sequence[UnitRepair]:
        """Return the repairs that the search for a message finds until it is over.

        A unit that points into a known damaged range starts no search, unless its offset does not
        fit between those of the units next to it.
        """
        found: list[UnitRepair] = []
        if not self._is_lost(QueueOffset(number), was):
            while not self.is_over(number):
                found += self.find(number, was)
        return found

    def _is_lost(self, number: QueueOffset, was: Unit) -> bool:
        """Return whether a unit rightly points into a known damaged range of the log."""
        if not self._source.damaged.are_in(np.array([was.offset]))[0]:
            return False
        files = self._queue.files
        units = files.units(number, _UNITS_BEHIND)
        return not len(units) or bool(are_in_order(units, files, number)[0])

    def find(self, number: int, was: Unit) -> Sequence[UnitRepair]:
        """Search a part of the log for the record of a message; repeat until `is_over`.

        Args:
            number: Queue offset of the message, whose search is not over.
            was: Present unit of the message.

        Returns:
            Repairs of the damaged units of all messages, between the good neighbours, whose records
            were found.
        """
        before, behind = self._neighbour(number, -1), self._neighbour(number, 1)
        low, high = int(max(self._source.start, self._queue.floor)), int(self._source.end)
        if before.unit is not None:
            low = max(low, before.unit.offset + before.unit.size)
        if behind.unit is not None:
            high = min(high, behind.unit.offset)
        known = searched_at(self.searched, number)
        if known is None:
            for place in (was.offset, *(was.offset ^ 1 << bit for bit in range(_OFFSET_BITS))):
                if low <= place < high and (unit := self.unit_at(number, place)) is not None:
                    self._found.add(number)
                    return self.compare(np.array([number]), unit)
        begin = low if known is None else max(low, known.place)
        end = min(high, begin + SEARCH_BYTES)
        numbers, right = self._records(begin, end)
        own = (numbers > before.number) & (numbers < behind.number)
        numbers, rows = np.unique(numbers[own], return_index=True)
        found = self.compare(numbers, right[own][rows])
        self._found.update(numbers.tolist())
        self._note(before.number + 1, behind.number, end if end < high else IN_VAIN)
        return found

    def _neighbour(self, number: int, step: int) -> _Neighbour:
        """Return the next good message in one direction, by doubled steps that are halved again.

        Other good messages may lie between it and `number`.
        """
        files = self._queue.files
        far_end = number - files.min_offset + 1 if step < 0 else files.end - number
        near, far, unit = 0, 1, None
        while far < far_end and (unit := self._good(number + step * far)) is None:
            near, far = far, min(2 * far, max(far + 1, far_end - 1))
        if unit is None:
            return _Neighbour(number + step * far_end, None)
        while far - near > 1:
            middle = (near + far) // 2
            if (nearer := self._good(number + step * middle)) is None:
                near = middle
            else:
                far, unit = middle, nearer
        return _Neighbour(number + step * far, unit)

    def _good(self, number: int) -> Unit | None:
        unit = self._queue.files.unit(QueueOffset(number))
        return unit if self.fits(number, unit) else None

    def _records(self, low: int, high: int) -> tuple[Ints, Units]:
        """Return the queue's messages in a part of the log, and their right units."""
        source, queue = self._source, self._queue
        none = np.zeros(0, dtype=np.int64)
        found = [(none, np.zeros(0, dtype=UNIT))]
        while low < high:
            file_end = base_of(low, source.file_bytes) + source.file_bytes
            at = PhysicalOffset(low)
            try:
                step = source.step(
                    at,
                    min(high, file_end),
                    verify=source.verify(at),
                    bytes_max=_PIECE_BYTES,
                )
            except FileNotFoundError:
                low = file_end
                continue
            if step.batch is not None:
                found.append(units_in(step.batch, queue.topic, queue.queue_id, queue.floor))
            low = max(step.end, low + 1)
        numbers, units = zip(*found, strict=True)
        return np.concatenate(numbers), np.concatenate(units)

    def _note(self, first: int, end: int, place: int) -> None:
        """Note the progress of the search for messages that were not found."""
        for number in (*sorted(each for each in self._found if first <= each < end), end):
            if first < number:
                self.searched = with_searched(self.searched, UnitSearchResult(first, number, place))
            first = number + 1


def searched_at(searched: Sequence[UnitSearchResult], number: int) -> UnitSearchResult | None:
    """Return the known search for a message; None = there was none."""
    row = bisect_right(searched, number, key=lambda each: each.first) - 1
    return searched[row] if row >= 0 and number < searched[row].end else None


def with_searched(
    known: Sequence[UnitSearchResult], new: UnitSearchResult
) -> Sequence[UnitSearchResult]:
    """Return the known searches and a new one, which replaces those that it overlaps."""
    if new.place == IN_VAIN:
        alike = [
            each
            for each in known
            if each.place == IN_VAIN and each.first <= new.end and new.first <= each.end
        ]
        first, end = (min(each.first for each in (*alike, new)), max(e.end for e in (*alike, new)))
        new = UnitSearchResult(first, end, IN_VAIN)
    kept = [each for each in known if each.end <= new.first or new.end <= each.first]
    insort(kept, new, key=lambda each: each.first)
    return tuple(kept)


def record_at(source: LogSource, place: int) -> RecordBatch | None:
    """Return the verified record that begins at log offset `place`; None if there is none.

    Raises:
        OSError: The disk failed.
    """
    with closing(RecordReader(source)) as reader:
        data = reader.unchecked(place)
    if data is None:
        return None
    at, size = PhysicalOffset(place), read_size(data)
    return scan_records(data, 0, size, at=at, records_max=1, verify=source.verify(at)).batch
