"""A verified chunk of the log: a read that checks every record in it. For any thread."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.format import (
    BLANK_BYTES,
    HEADER_BYTES_MAX,
    OVERHEAD_BYTES,
    SIZE_BYTES,
    is_blank,
    read_size,
)
from ternmq_model.record.scanner import LogChunk, scan_records
from ternmq_store.disk.filesystem import File
from ternmq_store.disk.mapped_file import MappedFile
from ternmq_store.log.quarantine import DamagedRange
from ternmq_store.log.resync import next_record
from ternmq_store.read.log_source import LogSource

_RECORDS_MAX: Final = 1 << 14
_WINDOW_BYTES: Final = 1 << 20
_WINDOWS: Final = 16
"""So far one run looks for the next record behind damaged bytes; the next one goes on there."""


@dataclass(slots=True, kw_only=True)
class VerifiedChunk:
    """A chunk of one file of the log. Made and finished by `Verification` or `UnitSearch`."""

    source: LogSource
    start: PhysicalOffset
    until: PhysicalOffset
    """Behind the last byte that may be looked at, in the same file: a record ends there."""

    bytes_max: int
    held: Sequence[MappedFile] = ()
    """Files that stay until the piece is finished; not touched here."""

    end: PhysicalOffset = field(default=PhysicalOffset(0), init=False)
    """Start of the next chunk."""

    batch: RecordBatch | None = None
    """The good records of the piece."""

    bad: DamagedRange | None = None
    """Damage, if there is any: the chunk ends behind it."""

    @property
    def checked_bytes(self) -> int:
        """Bytes of the log that were checked."""
        is_checked = self.batch is not None or self.bad is not None
        return self.end - self.start if is_checked else 0

    def run(self) -> None:
        """Read and check.

        Raises:
            OSError: The disk failed.
        """
        file, base = self.source.open(self.start)
        with closing(file):
            length = min(self.bytes_max, self.until - self.start)
            found = self._scan(file, base, length)
            if found.batch is None:
                size = read_size(file.read(self.start - base, SIZE_BYTES))
                if OVERHEAD_BYTES <= size <= self.until - self.start:
                    found = self._scan(file, base, size)  # longer than the piece
            self.batch = found.batch
            self.end = PhysicalOffset(self.start + found.end)
            file_end = PhysicalOffset(base + self.source.file_bytes)
            if found.batch is None and self._is_blank(file, base, file_end):
                self.end = file_end
            elif found.batch is None:
                self._find_next(file, base, file_end, found.error)

    def _scan(self, file: File, base: int, length: int) -> LogChunk:
        # One that does not end in the window is taken for damaged, and looked at by itself.
        view = memoryview(file.read(self.start - base, length + BLANK_BYTES))
        verify = self.source.verify(self.start)
        return scan_records(view, 0, length, at=self.start, records_max=_RECORDS_MAX, verify=verify)

    def _is_blank(self, file: File, base: int, file_end: PhysicalOffset) -> bool:
        return is_blank(file.read(self.start - base, BLANK_BYTES), 0, file_end - self.start)

    def _find_next(
        self, file: File, base: int, file_end: PhysicalOffset, error: CorruptRecord | None
    ) -> None:
        """Let the piece end where the next record begins, behind damaged bytes."""
        reason = "no record begins there" if error is None else error.reason
        at = self.start + 1
        last = min(self.until, at + _WINDOWS * _WINDOW_BYTES)
        while at < last:
            length = min(_WINDOW_BYTES + HEADER_BYTES_MAX, file_end - at)
            view = memoryview(file.read(at - base, length))
            found = next_record(view, 0, base=PhysicalOffset(at))
            if found is not None:
                last = min(last, at + found)
                break
            at += _WINDOW_BYTES
        self.end = PhysicalOffset(last)
        self.bad = DamagedRange(self.start, self.end, reason)
