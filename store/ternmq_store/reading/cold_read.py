"""Reading what is not in memory: by plain reads, in another thread, and verified.

A page fault in the map would stop everything else for as long as the disk takes. What comes from
the disk may be damaged, so every record is checked before it is served, and what was checked counts
as in memory afterwards.
"""

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import UNIT_BYTES, PhysicalOffset
from ternmq_model.record import BLANK_BYTES, RECORD_BYTES_MAX, SIZE_BYTES, Record
from ternmq_model.record_check import check_record
from ternmq_model.record_checksum import verify_checksum
from ternmq_model.record_heads import Ints
from ternmq_model.record_scan import Verify, scan_records
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.layout import base_of, file_name
from ternmq_store.disk.mapped_file import MappedFile
from ternmq_store.queues.consume_queue_ext import ExtSource, TagCodes
from ternmq_store.queues.units import UNIT, Units, first_units
from ternmq_store.reading.reader import (
    Limits,
    Place,
    ReadRequest,
    Selection,
    are_records,
    in_one_file,
    runs,
    select,
    take,
)
from ternmq_store.reading.record_filter import passes

CHUNK_BYTES: Final = 512 << 10
"""Of the log, read in one go when a reader wants enough of it: to verify that takes 2 ms."""

_DENSE: Final = 16
"""That is when at least one byte of so many is wanted."""

_GAP_BYTES_MAX: Final = 16 << 10
"""Records with no more between them are read in one go."""

_WRONG_SIZE: Final = "the unit's size is another than the record's"
_RECORDS_MAX: Final = 1 << 16


VerifyAt = Callable[[PhysicalOffset], Verify]
"""Tells how much of the record at an offset is checked."""


class BadRecord(NamedTuple):
    """A record that was not served."""

    start: PhysicalOffset
    size: int
    """As its unit says."""

    reason: str
    is_there: bool
    """A record of that place and length did begin there; else it is the unit that is wrong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where the log lies: plain values, good in any thread.

    Attributes:
        files: The disk.
        folder: Of the log.
        file_bytes: Of one file.
        start: Where the oldest record begins.
        end: Records that begin before it may be read.
        verify: Tells how much of the record at an offset is checked.
        read_ahead: Whether the disk is told what will be wanted next.
        beginnings: Some places of the log where records begin that are not in memory; ascending.
    """

    files: FileSystem
    folder: Path
    file_bytes: int
    start: PhysicalOffset
    end: PhysicalOffset
    verify: VerifyAt
    read_ahead: bool
    beginnings: Sequence[int]

    def open(self, offset: int) -> tuple[File, int]:
        """Return a file of its own for who reads at `offset`, and where that file begins.

        Raises:
            FileNotFoundError: It was deleted.
        """
        base = base_of(offset, self.file_bytes)
        return self.files.open(self.folder / file_name(base), read_only=True), base


@dataclass(slots=True)
class Outcome:
    """What a cold read found."""

    units: int = 0
    """Units read from the disk."""

    first: int = -1
    """Where in the log the first of them points, or -1."""

    scanned: int = 0
    last: int = -1
    """Where in the log the last unit looked at points, or -1."""

    is_gone: bool = False
    pieces: list[bytes | memoryview] = field(default_factory=list[bytes | memoryview])
    sizes: list[int] = field(default_factory=list[int])
    bad: list[BadRecord] = field(default_factory=list[BadRecord])
    wrong: Sequence[int] = ()
    """Units, of those looked at, that point to no place of the log."""

    touched: tuple[int, int] | None = None
    """A stretch of the log that is now in memory, and good."""


@dataclass(slots=True, kw_only=True)
class ColdRead:
    """One read of a queue. Made and finished by `Reads`; `run` may be called in any thread."""

    request: ReadRequest
    source: Source
    queue: object
    """Whose units they are: only compared."""

    unit_path: Path
    unit_position: int
    units_max: int
    """Units from there on that may be read."""

    ext: ExtSource | None
    """What the units have no room for, if there is such a thing."""

    held: Sequence[MappedFile]
    """Files that stay until the read is finished; not touched here."""

    begun_at_ms: int
    """When it was asked for, on the monotonic clock."""

    outcome: Outcome = field(default_factory=Outcome)

    def run(self) -> None:
        """Read.

        Raises:
            OSError: The disk failed.
        """
        units = self._read_units()
        outcome = self.outcome
        outcome.units = len(units)
        if not len(units):
            return
        limits = self.request.cold
        looked_at = first_units(units, self.request.units_max(limits))
        wanted, codes, may_match = self.request.tag_codes, None, None
        if self.ext is not None and self.request.bit_test is not None:
            may_match = self.ext.may_match(looked_at, self.request.bit_test)
        if self.ext is not None:
            # All of them, wanted or not: the next read looks these up through the map.
            known = self.ext.tag_codes(units)
            is_known = None if known.is_known is None else known.is_known[: len(looked_at)]
            codes = TagCodes(known.codes[: len(looked_at)], is_known)
        chosen = select(looked_at, self.source.start, self.source.end, wanted, codes, may_match)
        outcome.is_gone = chosen.is_gone
        outcome.first = int(units["offset"][0])
        try:
            taken = self._take(chosen, limits) if len(chosen.starts) else 0
        except FileNotFoundError:
            # Deleted since this read was planned: nothing of that file is there any more.
            source = self.source
            end = int(source.end)
            taken = in_one_file(chosen.starts, file_bytes=source.file_bytes, end=end)
            outcome.is_gone = True
        outcome.scanned = chosen.scanned(taken, len(looked_at))
        outcome.wrong = [row for row in chosen.wrong if row < outcome.scanned]
        outcome.last = int(looked_at["offset"][outcome.scanned - 1])

    def _read_units(self) -> Units:
        try:
            file = self.source.files.open(self.unit_path, read_only=True)
        except FileNotFoundError:
            return np.zeros(0, dtype=UNIT)
        try:
            data = file.read(self.unit_position, self.units_max * UNIT_BYTES)
        finally:
            file.close()
        return np.frombuffer(data[: len(data) - len(data) % UNIT_BYTES], dtype=UNIT)

    def _take(self, chosen: Selection, limits: Limits) -> int:
        """Fetch messages until the limits are reached; return how many were looked at."""
        source, outcome = self.source, self.outcome
        file, base = source.open(int(chosen.starts[0]))
        fetch = _Fetch(source, file, base)
        place = chosen.place(self.request)
        try:
            row, left = 0, limits
            while row < len(chosen.starts) and left.messages_max > 0:
                starts, sizes = chosen.starts[row:], chosen.sizes[row:]
                count = take(starts, sizes, left, file_bytes=source.file_bytes, end=int(source.end))
                if outcome.sizes and int(sizes[0]) > left.bytes_max:
                    break
                count = _near(starts[:count], sizes[:count])
                here = place.of(slice(row, row + count))
                row += count
                self._keep(fetch.records(starts[:count], sizes[:count], here))
                if outcome.sizes and not self.request.record_filter:
                    break
                left = Limits(
                    limits.messages_max - len(outcome.sizes), limits.bytes_max - sum(outcome.sizes)
                )
                if row < len(chosen.starts) and not fetch.has(int(chosen.starts[row])):
                    break
        finally:
            file.close()
        outcome.bad, outcome.touched = fetch.bad, fetch.touched
        return row

    def _keep(self, records: Sequence[memoryview]) -> None:
        keep = self.request.record_filter
        for record in records:
            if keep is None or passes(record, 0, len(record), keep):
                self.outcome.pieces.append(record)
                self.outcome.sizes.append(len(record))


def _is_dense(first: int, last: int, wanted: int) -> bool:
    """Tell whether the log from `first` to `last`, of which so much is wanted, is read whole."""
    is_short = last - first <= CHUNK_BYTES or wanted * 2 >= last - first
    return last > first and is_short and wanted * _DENSE >= last - first


def _near(starts: Ints, sizes: Ints) -> int:
    """Return how many of the records one chunk holds, if it is dense, or all of them.

    Those behind it are in memory for the next read, or nearly. A damaged unit may break the order:
    it is judged by itself.
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
    """Reads and checks records of one file of the log."""

    def __init__(self, source: Source, file: File, base: int) -> None:
        self._source = source
        self._file = file
        self._base = base
        self._file_end = base + source.file_bytes
        self.bad: list[BadRecord] = []
        self.touched: tuple[int, int] | None = None

    def has(self, offset: int) -> bool:
        """Tell whether byte `offset` of the log is in the file."""
        return self._base <= offset < self._file_end

    def records(self, starts: Ints, sizes: Ints, place: Place) -> list[memoryview]:
        """Return the good ones, in their order."""
        found: list[memoryview] = []
        plausible = self._plausible(starts, sizes)
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
        """Return where to begin, so that no record stays unread between two chunks."""
        known = self._source.beginnings
        index = bisect_right(known, first) - 1
        if index >= 0 and known[index] >= max(first - CHUNK_BYTES // 2, self._base):
            return known[index]
        return first

    def _plausible(self, starts: Ints, sizes: Ints) -> NDArray[np.bool_]:
        """Tell what is no longer than any record, or as long as the record says it is."""
        good = sizes <= RECORD_BYTES_MAX
        for row in np.flatnonzero(~good).tolist():
            start, size = int(starts[row]), int(sizes[row])
            says = int.from_bytes(self._file.read(start - self._base, SIZE_BYTES), "big")
            good[row] = says == size
            if says != size:
                self.bad.append(BadRecord(PhysicalOffset(start), size, _WRONG_SIZE, is_there=False))
        return good

    def _chunk(
        self, first: int, last: int, starts: Ints, sizes: Ints, place: Place
    ) -> tuple[memoryview, NDArray[np.bool_]]:
        """Read a stretch of the log and check all that is in it; tell which records are good."""
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
        return view, good

    def _read(self, begin: int, end: int) -> memoryview:
        """Return bytes of the log, and 8 more where there are: a record leaves room for a blank."""
        length = min(end + BLANK_BYTES, self._file_end) - begin
        return memoryview(self._file.read(begin - self._base, max(length, 0)))

    def _is_good(
        self, view: memoryview, position: int, start: int, size: int, place: Place, row: int
    ) -> bool:
        at = PhysicalOffset(start)
        verify = self._source.verify(at)
        try:
            record = check_one(view, position, at=at, size=size, verify=verify)
        except CorruptRecord as error:
            head = bytes(view[position : position + 36])
            says = int.from_bytes(head[28:36], "big"), int.from_bytes(head[:4], "big")
            self.bad.append(BadRecord(at, size, error.reason, is_there=says == (start, size)))
            return False
        # RocketMQ may have units for records of other queues; this store has not.
        if verify is Verify.WHOLE and not place.has(record, row):
            reason = "the unit points at another queue's record"
            self.bad.append(BadRecord(at, size, reason, is_there=False))
            return False
        return True


def check_one(
    view: memoryview, position: int, *, at: PhysicalOffset, size: int, verify: Verify
) -> Record:
    """Return the record at `position`.

    Args:
        view: Holds it, and 8 bytes more.
        position: Where it begins.
        at: Where that is in the log.
        size: How long it must be.
        verify: How much of it to check.

    Raises:
        CorruptRecord: It is not good.
    """
    end = position + size
    record = check_record(view[: end + BLANK_BYTES], position, at=at, next_file=True)
    if record is None or record.header.total_bytes != size:
        raise CorruptRecord(at, _WRONG_SIZE)
    if verify is Verify.WHOLE and not verify_checksum(view[position:end], record.properties):
        raise CorruptRecord(at, "the record's checksum differs")
    return record


@dataclass(slots=True)
class ColdRecord:
    """One read of a single record. Made and finished by `Reads`; `run` may be called anywhere."""

    source: Source
    offset: PhysicalOffset
    held: Sequence[MappedFile]
    record: bytes | None = None
    """The record that begins at `offset`, when there is a good one."""

    def run(self) -> None:
        """Read.

        Raises:
            OSError: The disk failed.
        """
        try:
            file, base = self.source.open(self.offset)
        except FileNotFoundError:
            return
        try:
            position = self.offset - base
            size = int.from_bytes(file.read(position, SIZE_BYTES), "big")
            if size > min(RECORD_BYTES_MAX, self.source.end - self.offset):
                return
            data = memoryview(file.read(position, size + BLANK_BYTES))
        finally:
            file.close()
        verify = self.source.verify(self.offset)
        with contextlib.suppress(CorruptRecord):
            check_one(data, 0, at=self.offset, size=size, verify=verify)
            self.record = bytes(data[:size])
