"""Rows of selected records of one file of the log."""

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints
from ternmq_model.columns.batches import build_rows
from ternmq_model.columns.record_validation import DamagedRow, ExpectedRecords
from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import SIZE_BYTES, read_properties, read_size
from ternmq_model.record.scanner import Verify
from ternmq_store.scan.directory import StoreDirectory
from ternmq_store.scan.row_filter import matching_rows
from ternmq_store.scan.scan_spec import ScanSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from ternmq_store.disk.filesystem import Region

_GAP_BYTES_MAX: Final = 16 << 10
"""Bytes of a gap whose read costs no more than another read."""

_SLACK_BYTES: Final = 1 << 20
_AHEAD_BYTES: Final = 8 << 20


class RecordSelection(NamedTuple):
    """Records of one log file, selected by units or by a walk."""

    starts: Ints
    sizes: Ints
    numbers: Ints | None
    """Queue offsets of the records by their units; None = the records were found by a walk."""

    queues: Sequence[tuple[bytes, int]]
    queue_of: Ints | None

    def part(self, begin: int, end: int) -> "RecordSelection":
        """Return the records from row `begin` on before row `end`."""
        return self.only(slice(begin, end))

    def only(self, rows: slice | NDArray[np.bool_]) -> "RecordSelection":
        """Return some of the records."""
        return self._replace(
            starts=self.starts[rows],
            sizes=self.sizes[rows],
            numbers=None if self.numbers is None else self.numbers[rows],
            queue_of=None if self.queue_of is None else self.queue_of[rows],
        )


class ScannedRows(NamedTuple):
    """Rows of the first records of a selection."""

    batch: "pa.RecordBatch | None"
    inspected: int
    damaged: Sequence[DamagedRow]


class LogRows:
    """Builder of rows from the records in one file of the log. The caller closes it.

    Args:
        directory: Directory of the store.
        spec: Filter and columns, checked.
        base: Base of the log file.
        log_end: Log offset up to which records are read. None = the end of the log's last file.
        has_quarantine: True = records in known damaged ranges count as damaged.

    Raises:
        FileNotFoundError: The file was deleted.
    """

    def __init__(
        self,
        directory: StoreDirectory,
        spec: ScanSpec,
        *,
        base: int,
        log_end: int | None = None,
        has_quarantine: bool = True,
    ) -> None:
        source = directory.source(log_end)
        self.base = base
        self.end = base + source.file_bytes
        self._directory = directory
        self._spec = spec
        self._columns = spec.columns_needed
        self._record_filter = spec.record_filter
        self._has_quarantine = has_quarantine
        self._limit = min(self.end, int(source.end)) if log_end is not None else self.end
        self._file, _ = source.open(base)
        self._region: Region | None = None
        self._can_map = directory.may_map

    def close(self) -> None:
        """Close the file."""
        region, self._region = self._region, None
        if region is not None:
            # An error on its way out may hold a slice of the map: then the map goes with it.
            with contextlib.suppress(BufferError):
                region.close()
        self._file.close()

    def take(self, choice: RecordSelection) -> ScannedRows:
        """Inspect records until a batch is full: at least one, which there must be.

        Raises:
            OSError: The disk failed.
            MissingPackage: A body is compressed in a way that needs the extra `compression`.
        """
        choice = choice.part(0, self._count(choice))
        rows, damaged = self._readable(choice)
        if not len(rows):
            return ScannedRows(None, len(choice.starts), damaged)
        view, positions = self._bytes_of(choice.starts[rows], choice.sizes[rows])
        if self._record_filter is not None:
            kept = self._matching(view, positions, choice.sizes[rows])
            rows, positions = rows[kept], positions[kept]
            if not len(rows):
                return ScannedRows(None, len(choice.starts), damaged)
        built = build_rows(
            view,
            positions,
            choice.sizes[rows],
            broker_name=self._directory.broker_name,
            columns=self._columns,
            expected=ExpectedRecords(
                choice.starts,
                choice.numbers,
                choice.queues,
                choice.queue_of,
                self._is_sealed(choice),
            ).only(rows),
            bytes_max=self._spec.batch_bytes_max,
        )
        inspected = len(choice.starts)
        if built.inspected < len(rows):
            inspected = int(rows[built.inspected])
        damaged += [DamagedRow(int(rows[row]), error) for row, error in built.damaged]
        damaged = sorted((d for d in damaged if d.row < inspected), key=lambda each: each.row)
        batch = matching_rows(built.batch, self._spec)
        return ScannedRows(batch if batch.num_rows else None, inspected, damaged)

    def _count(self, choice: RecordSelection) -> int:
        """Return how many of the records one batch may have."""
        spec = self._spec
        count = min(len(choice.starts), spec.batch_rows_max)
        ends = np.cumsum(choice.sizes[:count])
        count = max(int(np.searchsorted(ends, spec.batch_bytes_max, side="right")), 1)
        border = self._directory.border_behind(PhysicalOffset(int(choice.starts[0])))
        if border is not None:
            behind = choice.starts[:count] >= border
            count = max(int(behind.argmax()), 1) if behind.any() else count
        return count

    def _readable(self, choice: RecordSelection) -> tuple[Ints, list[DamagedRow]]:
        """Return the rows of records to read, and the damage that is known without a read."""
        possible = self._possible(choice)
        bad = np.zeros(len(possible), dtype=np.bool_)
        if self._has_quarantine:
            bad = self._directory.quarantine.places.are_in(choice.starts) & possible
        reasons = (
            (~possible, "its unit points behind the end of the log's file"),
            (bad, "it lies in a known damaged range of the log"),
        )
        damaged = [
            self._damage(choice, row, reason)
            for rows, reason in reasons
            for row in np.flatnonzero(rows).tolist()
        ]
        return np.flatnonzero(possible & ~bad), damaged

    def _is_sealed(self, choice: RecordSelection) -> bool:
        return self._directory.verify(PhysicalOffset(int(choice.starts[0]))) is Verify.WHOLE

    def _possible(self, choice: RecordSelection) -> NDArray[np.bool_]:
        """Return which records end within the file; a huge size must be in the header, too."""
        good: NDArray[np.bool_] = choice.starts + choice.sizes <= self._limit
        good &= choice.starts >= self.base
        for row in np.flatnonzero(good & (choice.sizes > self._spec.batch_bytes_max)).tolist():
            start, size = int(choice.starts[row]), int(choice.sizes[row])
            claimed = read_size(self._read(start - self.base, SIZE_BYTES))
            good[row] = claimed == size
        return good

    def _damage(self, choice: RecordSelection, row: int, reason: str) -> DamagedRow:
        return DamagedRow(row, CorruptRecord(PhysicalOffset(int(choice.starts[row])), reason))

    def _matching(self, view: memoryview, positions: Ints, sizes: Ints) -> NDArray[np.bool_]:
        """Return which records pass the condition, or cannot be read: the latter are damaged."""
        keep = self._record_filter
        assert keep is not None, "there is a condition"
        found = [
            (properties := read_properties(view, at, size)) is None or keep(properties)
            for at, size in zip(positions.tolist(), sizes.tolist(), strict=True)
        ]
        return np.array(found, dtype=np.bool_)

    def _bytes_of(self, starts: Ints, sizes: Ints) -> tuple[memoryview, Ints]:
        """Return bytes that hold the records, and the position of each.

        Records that lie close together are read with the gaps between them; others stay in the map
        of the file; without a map they are joined.
        """
        begin, end = int(starts.min()), int((starts + sizes).max())
        if end - begin <= 2 * int(sizes.sum()) + _SLACK_BYTES:
            data = self._read(begin - self.base, end - begin)
            return memoryview(data), starts - begin
        if self._region is None and self._can_map:
            try:
                self._region = self._file.map()
            except OSError:
                self._can_map = False
        if self._region is not None:
            return self._region.view, starts - self.base
        return _read_each(self._read, starts - self.base, sizes)

    def _read(self, position: int, length: int) -> bytes:
        try:
            return self._file.read(position, length)
        except OSError as error:
            # The error itself does not name the file.
            raise OSError(error.errno, error.strerror, str(self._file.path)) from error

    def will_need(self, start: int) -> None:
        """Announce the next read to the disk."""
        self._file.will_need(start - self.base, _AHEAD_BYTES)


def _read_each(
    read: Callable[[int, int], bytes], starts: Ints, sizes: Ints
) -> tuple[memoryview, Ints]:
    gaps = starts[1:] - starts[:-1] - sizes[:-1]
    cuts = np.flatnonzero((gaps < 0) | (gaps > _GAP_BYTES_MAX)) + 1
    pieces: list[memoryview] = []
    for rows in np.split(np.arange(len(starts)), cuts):
        # A part at a time: the gaps need memory only for a short time.
        while len(rows):
            at = int(starts[rows[0]])
            near = rows[: int(np.searchsorted(starts[rows], at + _SLACK_BYTES))]
            last = near[-1]
            data = memoryview(read(at, int(starts[last] + sizes[last]) - at))
            begins = (starts[near] - at).tolist()
            pairs = zip(begins, sizes[near].tolist(), strict=True)
            pieces += [data[place : place + size] for place, size in pairs]
            rows = rows[len(near) :]
    lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
    return memoryview(b"".join(pieces)), np.cumsum(lengths) - lengths
