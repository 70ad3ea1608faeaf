"""Single records of the log by plain reads, each checked before it is returned. For any thread."""

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.checksum import verify_checksum
from ternmq_model.record.format import (
    BLANK_BYTES,
    OVERHEAD_BYTES,
    RECORD_BYTES_MAX,
    SIZE_BYTES,
    Record,
    read_size,
)
from ternmq_model.record.integrity import check_record
from ternmq_model.record.scanner import Verify
from ternmq_store.disk.layout import base_of
from ternmq_store.disk.mapped_file import MappedFile
from ternmq_store.read.log_source import LogSource

if TYPE_CHECKING:
    from ternmq_store.disk.filesystem import File

WRONG_SIZE: Final = "the unit's size is another than the record's"
_NO_FILE: Final = -1


class GoodRecord(NamedTuple):
    """A record that was read and checked."""

    record: Record
    data: bytes
    """Bytes of the record, as they lie in the log."""


def check_one(
    view: memoryview, position: int, *, at: PhysicalOffset, size: int, verify: Verify
) -> Record:
    """Return the record at `position`.

    Args:
        view: Bytes of the record, and 8 more.
        position: Start of the record in `view`.
        at: Log offset of the record.
        size: Length that the record must have.
        verify: Depth of the check.

    Raises:
        CorruptRecord: The record is damaged, or has another length.
    """
    end = position + size
    record = check_record(view[: end + BLANK_BYTES], position, at=at, next_file=True)
    if record is None or record.header.total_bytes != size:
        raise CorruptRecord(at, WRONG_SIZE)
    if verify is Verify.WHOLE and not verify_checksum(view[position:end], record.properties):
        raise CorruptRecord(at, "the record's checksum differs")
    return record


class RecordReader:
    """Reader of single records, which holds one file of the log open until `close`.

    All methods raise OSError when the disk fails.
    """

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._base = _NO_FILE
        self._file: File | None = None

    def bytes_at(self, place: int, length: int) -> bytes:
        """Return up to `length` bytes of one file of the log; none when the file is gone."""
        if base_of(place, self._source.file_bytes) != self._base:
            self.close()
            with suppress(FileNotFoundError):
                self._file, self._base = self._source.open(place)
        return b"" if self._file is None else self._file.read(place - self._base, length)

    def unchecked(self, place: int, size: int | None = None) -> memoryview | None:
        """Return the bytes that may be a record, and 8 more where there are.

        Args:
            place: Log offset of the record.
            size: Length of the record by its unit; None = the length in its header.

        Returns:
            None when no record of the log can lie there.
        """
        source = self._source
        if not source.start <= place < source.end:
            return None
        if size is None:
            size = read_size(self.bytes_at(place, SIZE_BYTES))
        if not OVERHEAD_BYTES <= size <= min(RECORD_BYTES_MAX, source.end - place):
            return None
        return memoryview(self.bytes_at(place, size + BLANK_BYTES))

    def read(self, place: int, size: int | None = None) -> GoodRecord | None:
        """Return the good record at `place`; None if there is none. See `unchecked`."""
        view = self.unchecked(place, size)
        if view is None:
            return None
        at, size = PhysicalOffset(place), read_size(view) if size is None else size
        with suppress(CorruptRecord):
            record = check_one(view, 0, at=at, size=size, verify=self._source.verify(at))
            return GoodRecord(record, bytes(view[:size]))
        return None

    def close(self) -> None:
        """Close the file."""
        file, self._file, self._base = self._file, None, _NO_FILE
        if file is not None:
            file.close()


@dataclass(slots=True)
class ColdRecord:
    """Read of a single record. Made and finished by `StoreReads`; `run` may be called anywhere."""

    source: LogSource
    offset: PhysicalOffset
    held: Sequence[MappedFile]
    record: bytes | None = None
    """The record that begins at `offset`, when there is a good one."""

    def run(self) -> None:
        """Read the record.

        Raises:
            OSError: The disk failed.
        """
        with closing(RecordReader(self.source)) as reader:
            found = reader.read(self.offset)
        self.record = None if found is None else found.data
