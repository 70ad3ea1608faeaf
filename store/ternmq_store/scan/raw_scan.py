"""Scan of every record of a store's log, whether a queue reaches it or not."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

import numpy as np

from ternmq_model.errors import MessageDamaged, StoreError
from ternmq_model.record.format import BLANK_BYTES, is_blank, read_size
from ternmq_model.record.scanner import follow_lengths
from ternmq_store.disk.filesystem import File
from ternmq_store.disk.layout import commit_log_folder, file_name
from ternmq_store.disk.mapped_file_queue import FoundFile
from ternmq_store.inspection.log_inspection import (
    PIECE_BYTES,
    find_log_files,
    next_piece,
    written_files,
)
from ternmq_store.log.log_window import LogWindow
from ternmq_store.scan.directory import StoreDirectory
from ternmq_store.scan.log_rows import LogRows, RecordSelection
from ternmq_store.scan.scan_spec import ScanSpec, ScanStep

_READ_BYTES_MIN: Final = 64 << 10
_NO_QUEUE: Final = -1
_NOWHERE: Final = -1


class RawFilePartition(NamedTuple):
    """One log file."""

    base: int
    """Base of the file."""

    is_last: bool
    """True if the log ends in this file."""


def plan_raw(directory: StoreDirectory) -> Sequence[RawFilePartition]:
    """Return the log files that hold records.

    Raises:
        OSError: The directory cannot be read.
    """
    log_files = find_log_files(directory.files, directory.root)
    files = written_files(directory.files, log_files)
    return [RawFilePartition(file.base, file == files[-1]) for file in files]


def scan_raw(
    directory: StoreDirectory, part: RawFilePartition, spec: ScanSpec
) -> Iterator[ScanStep]:
    """Yield the records of one log file, in its order, a batch a step.

    Records of open transactions and of system topics are among them. A torn record at the end of a
    log that was not closed does not count as damage.

    Args:
        directory: Directory of the store.
        part: Planned partition.
        spec: Filter and columns. The topic of its subscription does not count.

    Raises:
        MessageDamaged: A record is damaged, and `spec` does not skip such.
        UsageError: `spec` names an unknown column.
        MissingPackage: A body is compressed in a way that needs the extra `compression`.
        StoreError: The file was deleted after the planning.
        OSError: The disk failed.
    """
    spec = spec.checked()
    path = commit_log_folder(directory.root) / file_name(part.base)
    with ExitStack() as stack:
        try:
            rows = LogRows(directory, spec, base=part.base, has_quarantine=False)
            stack.callback(rows.close)
            file = directory.files.open(path, read_only=True)
        except FileNotFoundError:
            raise StoreError(f"{path} was deleted during the scan") from None
        stack.callback(file.close)
        yield from _RawScan(directory, part, spec, rows, file).run()


class _RawScan:
    """One scan of one log file."""

    def __init__(
        self,
        directory: StoreDirectory,
        part: RawFilePartition,
        spec: ScanSpec,
        rows: LogRows,
        file: File,
    ) -> None:
        self._part = part
        self._spec = spec
        self._rows = rows
        self._file = file
        self._window = self._new_window()
        self._log_file = FoundFile(part.base, file.path, self._window.file_bytes)
        self._may_be_torn = part.is_last and directory.was_cut_short
        self._may_grow = part.is_last and directory.is_in_use
        self._retried_at = _NOWHERE
        self._damaged = 0

    def _new_window(self) -> LogWindow:
        return LogWindow.of_file(self._file, self._part.base, piece_bytes=PIECE_BYTES)

    def run(self) -> Iterator[ScanStep]:
        """Yield the steps of the scan."""
        position, base = 0, self._part.base
        while position < self._log_file.file_bytes:
            starts, end = self._records(position)
            if starts:
                begins = np.array(starts, dtype=np.int64) + base
                choice = RecordSelection(begins, np.diff(begins, append=end + base), None, (), None)
                found = self._rows.take(choice)
                position = starts[found.inspected] if found.inspected < len(starts) else end
                if not found.damaged:
                    yield ScanStep(found.batch, base + position, self._damaged)
                    continue
                # Its length may be damaged, so the next record is searched for.
                row, error = found.damaged[0]
                if row:
                    yield from self._good(choice.part(0, row))
                position = self._behind_bad(starts[row], error.reason)
                continue
            if self._is_end(position):
                break
            position = self._behind_bad(position, "no record begins there")
        yield ScanStep(None, base + self._log_file.file_bytes, self._damaged)

    def _records(self, position: int) -> tuple[list[int], int]:
        """Return the positions of possible records from `position` on, and the last one's end."""
        view = self._window.take(position, max(self._spec.batch_bytes_max, _READ_BYTES_MIN))
        starts, end, _ = follow_lengths(view, 0, len(view), self._spec.batch_rows_max)
        if not starts:
            # The first record may be longer than the read.
            size = read_size(view)
            if len(view) < size <= self._log_file.file_bytes - position:
                view = self._window.take(position, size)
                starts, end, _ = follow_lengths(view, 0, len(view), 1)
        return [position + start for start in starts], position + end

    def _good(self, choice: RecordSelection) -> Iterator[ScanStep]:
        """Yield the steps of records that are known to be good."""
        while len(choice.starts):
            found = self._rows.take(choice)
            ends = choice.starts + choice.sizes
            yield ScanStep(found.batch, int(ends[found.inspected - 1]), self._damaged)
            choice = choice.part(found.inspected, len(choice.starts))

    def _is_end(self, position: int) -> bool:
        """Return whether the file has no more records: the next file follows, or the log ends."""
        head = bytes(self._window.take(position, BLANK_BYTES))
        left = self._log_file.file_bytes - position
        if is_blank(head, 0, left):
            return True
        return self._part.is_last and self._window.next_content(position) is None

    def _behind_bad(self, position: int, reason: str) -> int:
        """Return the next record's position behind a damaged one; the file's end if there is none.

        Torn bytes at the end of a log that was not closed are no damage. Damage in a growing log is
        read twice: records may have been appended meanwhile.
        """
        behind = next_piece(self._window, self._log_file, position + 1)
        if behind < self._log_file.file_bytes or not self._may_be_torn:
            if self._may_grow and self._retried_at != position:
                self._retried_at, self._window = position, self._new_window()
                return position
            self._note(self._part.base + position, reason)
        return behind

    def _note(self, place: int, reason: str) -> None:
        self._damaged += 1
        if not self._spec.skips_damaged:
            raise MessageDamaged("", _NO_QUEUE, place, reason)
