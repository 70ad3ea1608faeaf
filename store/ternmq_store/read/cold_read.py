"""Cold reads: verified plain reads of messages that are not in memory, in another thread.

A page fault in the map would block the store's thread for as long as the disk takes. Bytes from the
disk may be damaged, so every record is checked before it is served; a checked range counts as in
memory afterwards.
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints
from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record.format import (
    BLANK_BYTES,
    OFFSETS_BYTES,
    RECORD_BYTES_MAX,
    SIZE_BYTES,
    read_physical_offset,
    read_queue_id,
    read_queue_offset,
    read_size,
)
from ternmq_model.record.scanner import Verify, scan_records
from ternmq_store.disk.filesystem import File
from ternmq_store.disk.layout import base_of, file_name
from ternmq_store.disk.mapped_file import MappedFile
from ternmq_store.dispatch.dispatch_request import code_of
from ternmq_store.log.quarantine import DamagedRange
from ternmq_store.queues.consume_queue_ext import TagCodes
from ternmq_store.queues.read_request import ReadLimits, ReadRequest
from ternmq_store.queues.units import UnitRepair, Units, first_units, make_units, unit_of
from ternmq_store.read.log_source import LogSource
from ternmq_store.read.message_selection import (
    MessagePositions,
    Selection,
    are_records,
    in_one_file,
    runs,
    select,
    take,
)
from ternmq_store.read.record_filter import passes
from ternmq_store.read.record_reader import WRONG_SIZE, check_one
from ternmq_store.read.unit_search import QueueSource, UnitSearch, UnitSearchResult, units_in

CHUNK_BYTES: Final = 512 << 10
"""Bytes of the log that a dense read verifies in one go, which takes 2 ms."""

_DENSE: Final = 16
"""A read is dense when it requests at least one byte of so many."""

_GAP_BYTES_MAX: Final = 16 << 10
"""Gap between two records up to which they are read in one go."""

Seen = tuple[Ints, Units]
"""Queue offsets of messages, and their right units."""

_RECORDS_MAX: Final = 1 << 16
_PLACES_MAX: Final = 1_000


class BadRecord(NamedTuple):
    """A record that was not served."""

    start: PhysicalOffset
    size: int
    """Length of the record by its unit."""

    reason: str
    number: int
    """Queue offset of the message."""

    is_there: bool
    """True if the message's record of that size begins there; else the unit may be wrong."""


class DanglingUnits:
    """First thousand dangling units that readers met since the opening. Owned by `StoreReads`.

    The end of the damage is unknown, so no damaged range is noted: perhaps only a unit is wrong.
    """

    def __init__(self) -> None:
        self._places: dict[PhysicalOffset, BadRecord] = {}

    def add(self, bad: BadRecord) -> None:
        """Record a dangling unit."""
        if len(self._places) < _PLACES_MAX:
            self._places.setdefault(bad.start, bad)

    def ranges(self, start: PhysicalOffset, file_bytes: int) -> Sequence[DamagedRange]:
        """Return the ranges at or behind `start`, by the units' offsets and sizes, in log order.

        Args:
            start: Start of the log.
            file_bytes: Length of one log file.
        """
        return [
            DamagedRange(
                bad.start,
                PhysicalOffset(bad.start + bad.size),
                f"commitlog/{file_name(base_of(bad.start, file_bytes))}:"
                f" not the record that a unit points to: {bad.reason}",
            )
            for bad in sorted(self._places.values(), key=lambda each: each.start)
            if bad.start >= start
        ]


@dataclass(slots=True)
class ColdReadOutcome:
    """Outcome of a cold read."""

    units: int = 0
    """Units read from the disk."""

    first: int = -1
    """Log offset in the first of these units, or -1."""

    scanned: int = 0
    last: int = -1
    """Log offset in the last inspected unit, or -1."""

    is_gone: bool = False
    pieces: list[bytes | memoryview] = field(default_factory=list[bytes | memoryview])
    sizes: list[int] = field(default_factory=list[int])
    bad: list[BadRecord] = field(default_factory=list[BadRecord])
    wrong: Sequence[int] = ()
    """Rows of inspected units that point to no offset of the log."""

    touched: tuple[int, int] | None = None
    """Range of the log that is now in memory, and good."""

    repairs: list[UnitRepair] = field(default_factory=list[UnitRepair])
    """Damaged units. The read continued with the right ones."""

    searched: Sequence[UnitSearchResult] = ()
    """Searches for records of messages, by this read or before it."""

    lost: int = 0
    """Count of messages whose records lie in known damaged ranges of the log."""


@dataclass(slots=True, kw_only=True)
class ColdRead:
    """One read of a queue. Made and finished by `StoreReads`; `run` may be called in any thread."""

    request: ReadRequest
    source: LogSource
    queue: object
    """Queue of the units; the task only compares it."""

    units: QueueSource
    units_max: int
    """Most units to read, from the first message on."""

    held: Sequence[MappedFile]
    """Files that must stay until the read is finished; the task does not use them."""

    begun_at_ms: int
    """Time of the request, on the monotonic clock."""

    outcome: ColdReadOutcome = field(default_factory=ColdReadOutcome)

    def run(self) -> None:
        """Read; repeat the read with repaired units where a unit does not fit its record.

        Raises:
            OSError: The disk failed.
        """
        queue, offset = self.units, self.request.offset
        with closing(queue.files):
            units = queue.files.units(offset, self.units_max).copy()
            self.outcome.units = count = len(units)
            search = UnitSearch(self.source, queue)
            while count and (again := self._read_and_repair(units[:count], search)) is not None:
                count = again
            if not count:
                self._reset_outcome()
            self.outcome.searched = search.searched

    def _read_and_repair(self, units: Units, search: UnitSearch) -> int | None:
        """Read, and repair units that do not fit their records.

        Returns:
            Count of units to read again; None when the read was right.
        """
        outcome = self._reset_outcome()
        codes = search.codes_of(units)
        seen, suspects = self._read(units, codes)
        offset, mended, count = self.request.offset, len(outcome.repairs), len(units)
        for numbers, right in seen:
            inside = (numbers >= offset) & (numbers < offset + len(units))
            rows = numbers[inside] - offset
            outcome.repairs += search.repairs(
                numbers[inside], units[rows], right[inside], codes.of(rows)
            )
        known = {repair.offset for repair in outcome.repairs}
        for row in suspects:
            number = QueueOffset(offset + row)
            if number not in known and not search.is_over(number):
                outcome.repairs += search.find(number, unit_of(units, row))
                if not search.is_over(number):
                    count = row
                    break
        for repair in outcome.repairs[mended:]:
            if offset <= repair.offset < offset + len(units):
                units[repair.offset - offset] = tuple(repair.unit)
        return count if count < len(units) or len(outcome.repairs) > mended else None

    def _reset_outcome(self) -> ColdReadOutcome:
        old = self.outcome
        self.outcome = ColdReadOutcome(old.units, old.first, repairs=old.repairs)
        return self.outcome

    def _read(self, units: Units, codes: TagCodes) -> tuple[Sequence[Seen], Sequence[int]]:
        """Read once; return right units of messages, and rows of units that may be wrong."""
        outcome, limits = self.outcome, self.request.cold
        inspected = first_units(units, self.request.units_max(limits))
        tag_codes, may_match = self.request.tag_codes, None
        if self.units.ext is not None and self.request.bit_map_filter is not None:
            may_match = self.units.ext.may_match(inspected, self.request.bit_map_filter)
        own_codes = codes.of(slice(len(inspected)))
        chosen = select(
            inspected, self.source.start, self.source.end, tag_codes, own_codes, may_match
        )
        chosen, lost = chosen.without(
            self.source.damaged, units, self.units.files, self.request.offset
        )
        outcome.is_gone = chosen.is_gone
        outcome.first = int(units["offset"][0])
        taken, seen = 0, list[Seen]()
        try:
            if len(chosen.starts):
                taken, seen = self._take(chosen, limits)
        except FileNotFoundError:
            # Retention deleted the file since this read was planned.
            source = self.source
            end = int(source.end)
            taken = in_one_file(chosen.starts, file_bytes=source.file_bytes, end=end)
            outcome.is_gone = True
        outcome.scanned = chosen.scanned(taken, len(inspected))
        outcome.lost = int(np.count_nonzero(lost < outcome.scanned))
        outcome.wrong = [row for row in chosen.wrong if row < outcome.scanned]
        outcome.last = int(inspected["offset"][outcome.scanned - 1])
        suspects = [bad.number - self.request.offset for bad in outcome.bad if not bad.is_there]
        if chosen.is_gone and self._follows_a_message():
            suspects.append(0)
        return seen, sorted({*suspects, *outcome.wrong})

    def _follows_a_message(self) -> bool:
        """Return whether the log has the message before the first one: then it has that, too."""
        before = QueueOffset(self.request.offset - 1)
        files = self.units.files
        return before >= files.min_offset and files.unit(before).offset >= self.source.start

    def _take(self, chosen: Selection, limits: ReadLimits) -> tuple[int, list[Seen]]:
        """Fetch messages up to the limits; return how many were inspected."""
        source, outcome = self.source, self.outcome
        file, base = source.open(int(chosen.starts[0]))
        fetch = _Fetch(source, self.units, file, base)
        place = chosen.positions(self.request)
        with closing(file):
            row, rest = 0, limits
            while row < len(chosen.starts) and rest.messages_max > 0:
                starts, sizes = chosen.starts[row:], chosen.sizes[row:]
                count = take(starts, sizes, rest, file_bytes=source.file_bytes, end=int(source.end))
                if outcome.sizes and int(sizes[0]) > rest.bytes_max:
                    break
                count = _near(starts[:count], sizes[:count])
                here = place.of(slice(row, row + count))
                row += count
                self._keep(fetch.records(starts[:count], sizes[:count], here))
                if outcome.sizes and not self.request.record_filter:
                    break
                rest = ReadLimits(
                    limits.messages_max - len(outcome.sizes), limits.bytes_max - sum(outcome.sizes)
                )
                if row < len(chosen.starts) and not fetch.has(int(chosen.starts[row])):
                    break
        outcome.bad, outcome.touched = fetch.bad, fetch.touched
        return row, fetch.seen()

    def _keep(self, records: Sequence[memoryview]) -> None:
        keep = self.request.record_filter
        for record in records:
            if keep is None or passes(record, 0, len(record), keep):
                self.outcome.pieces.append(record)
                self.outcome.sizes.append(len(record))


def _is_dense(first: int, last: int, requested: int) -> bool:
    """Return whether one read covers the log from `first` to `last` for `requested` bytes of it."""
    is_short = last - first <= CHUNK_BYTES or requested * 2 >= last - first
    return last > first and is_short and requested * _DENSE >= last - first


def _near(starts: Ints, sizes: Ints) -> int:
    """Return how many of the records one chunk holds, if it is dense; else their count.

    A damaged unit may break the order: its record is then read by itself.
    """
    falls = np.diff(starts) <= 0
    if falls.any():
        count = int(falls.argmax()) + 1
        starts, sizes = starts[:count], sizes[:count]
    first = int(starts[0])
    near = int(np.searchsorted(starts, first + CHUNK_BYTES))
    if 0 < near < len(starts) and int(sizes[:near].sum()) * _DENSE >= CHUNK_BYTES:
        return near
    return len(starts)


class _Fetch:
    """Reader and checker of records of one file of the log."""

    def __init__(self, source: LogSource, queue: QueueSource, file: File, base: int) -> None:
        self._source = source
        self._queue = queue
        self._file = file
        self._base = base
        self._file_end = base + source.file_bytes
        self.bad: list[BadRecord] = []
        self.touched: tuple[int, int] | None = None
        self._seen: list[Seen] = []
        self._single: list[tuple[int, int, int, int]] = []
        """Queue offset, log offset, size and tag code of messages that were read one by one."""

    def seen(self) -> list[Seen]:
        """Return the queue offsets of the messages that were read, and their right units."""
        if not self._single:
            return self._seen
        numbers, *units = np.array(self._single, dtype=np.int64).T
        return [*self._seen, (numbers, make_units(*units))]

    def has(self, offset: int) -> bool:
        """Return whether byte `offset` of the log lies in the file."""
        return self._base <= offset < self._file_end

    def records(self, starts: Ints, sizes: Ints, place: MessagePositions) -> list[memoryview]:
        """Return the good records, in their order."""
        found: list[memoryview] = []
        plausible = self._plausible(starts, sizes, place)
        starts, sizes, place = starts[plausible], sizes[plausible], place.of(plausible)
        if not len(starts):
            return found
        first, last = int(starts[0]), int(starts[-1] + sizes[-1])
        if _is_dense(first, last, int(sizes.sum())):
            first = self._beginning(first)
            view, good = self._chunk(first, last, starts, sizes, place)
            rows = zip(starts.tolist(), sizes.tolist(), good.tolist(), strict=True)
            for row, (start, size, is_good) in enumerate(rows):
                at = start - first
                if is_good or self._is_good(view, at, start, size, place, row):
                    found.append(view[at : at + size])
            return found
        row = 0
        for begin, end in runs(starts, sizes, gap_max=_GAP_BYTES_MAX):
            view = self._read(begin, end)
            while row < len(starts) and begin <= starts[row] < end:
                start, size = int(starts[row]), int(sizes[row])
                if self._is_good(view, start - begin, start, size, place, row):
                    found.append(view[start - begin : start - begin + size])
                row += 1
        return found

    def _beginning(self, first: int) -> int:
        """Return the start of the chunk, so that no record stays unread between two chunks."""
        known = self._source.beginnings
        index = bisect_right(known, first) - 1
        if index >= 0 and known[index] >= max(first - CHUNK_BYTES // 2, self._base):
            return known[index]
        return first

    def _plausible(self, starts: Ints, sizes: Ints, place: MessagePositions) -> NDArray[np.bool_]:
        """Return which records have a possible length, or the length in their headers."""
        good = sizes <= RECORD_BYTES_MAX
        for row in np.flatnonzero(~good).tolist():
            start, size = int(starts[row]), int(sizes[row])
            claimed = read_size(self._file.read(start - self._base, SIZE_BYTES))
            good[row] = claimed == size
            if claimed != size:
                number = int(place.numbers[row])
                at = PhysicalOffset(start)
                self.bad.append(BadRecord(at, size, WRONG_SIZE, number, is_there=False))
        return good

    def _chunk(
        self, first: int, last: int, starts: Ints, sizes: Ints, place: MessagePositions
    ) -> tuple[memoryview, NDArray[np.bool_]]:
        """Read a range of the log and check all its records; return which of the given are good."""
        source = self._source
        end = min(max(last, first + CHUNK_BYTES), self._file_end, int(source.end))
        view = self._read(first, max(end, last))
        if source.read_ahead:
            self._file.will_need(end - self._base, CHUNK_BYTES)
        at = PhysicalOffset(first)
        verify = source.verify(at)
        good = np.zeros(len(starts), dtype=np.bool_)
        if verify is not source.verify(PhysicalOffset(end - 1)):
            return view, good
        scan = scan_records(
            view, 0, len(view) - BLANK_BYTES, at=at, records_max=_RECORDS_MAX, verify=verify
        )
        if scan.batch is not None:
            rows = np.searchsorted(scan.batch.starts, starts - first)
            rows[rows == len(scan.batch)] = 0
            good = (scan.batch.starts[rows] == starts - first) & (scan.batch.sizes[rows] == sizes)
            good &= are_records(view, first, starts, sizes, place)
            self.touched = (first, first + scan.end)
            queue = self._queue
            self._seen.append(units_in(scan.batch, queue.topic, queue.queue_id, queue.floor))
        return view, good

    def _read(self, begin: int, end: int) -> memoryview:
        """Return bytes of the log, and 8 more where there are, for a blank record behind them."""
        length = min(end + BLANK_BYTES, self._file_end) - begin
        return memoryview(self._file.read(begin - self._base, max(length, 0)))

    def _is_good(
        self,
        view: memoryview,
        position: int,
        start: int,
        size: int,
        place: MessagePositions,
        row: int,
    ) -> bool:
        at, number = PhysicalOffset(start), int(place.numbers[row])
        verify = self._source.verify(at)
        try:
            record = check_one(view, position, at=at, size=size, verify=verify)
        except CorruptRecord as error:
            is_there = len(view) - position >= OFFSETS_BYTES and (
                read_size(view, position),
                read_queue_id(view, position),
                read_queue_offset(view, position),
                read_physical_offset(view, position),
            ) == (size, place.queue_id, number, start)
            self.bad.append(BadRecord(at, size, error.reason, number, is_there=is_there))
            return False
        # RocketMQ may have units for records of other queues; this store has not.
        if verify is Verify.WHOLE and not place.has(record, row):
            reason = "the unit points at another queue's record"
            self.bad.append(BadRecord(at, size, reason, number, is_there=False))
            return False
        if place.has(record, row) and at >= self._queue.floor:
            code = code_of(self._queue.topic, record.properties, record.header.stored_at_ms)
            self._single.append((number, at, size, code))
        return True
