"""Reads of a commit log that may be damaged or in use, without a write.

A walk yields records, the blank records at the ends of files, and bad ranges, in order. A bad range
ends at the next record: a magic number with the physical offset of that very position. The use of
memory does not depend on the length of the log.

Source: RocketMQ `CommitLog.checkMessageAndReturnSize`, which does not go on behind a bad record.
"""

from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ternmq_model.errors import CorruptRecord, StoreNotFound
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.checksum import has_checksum, verify_checksum
from ternmq_model.record.format import (
    BLANK_BYTES,
    MAGIC_BLANK,
    Record,
    crc31,
    decode_record,
    read_start,
)
from ternmq_model.record.integrity import find_fault
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import commit_log_folder
from ternmq_store.disk.mapped_file_queue import FoundFile, find_files
from ternmq_store.log.log_window import LogWindow

PIECE_BYTES: Final = 4 << 20
_RECORD_BYTES_MAX: Final = 128 << 20
"""Limit of a record's length, above that of any broker."""


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record with consistent sizes at the offset that it claims."""

    file: FoundFile
    offset: PhysicalOffset
    record: Record
    problem: str
    """Damage of the content; empty = there is none."""

    is_checksummed: bool
    """True if the record ends with a checksum of the whole."""

    is_checksum_right: bool
    """True if the checksum of the whole is right, or there is none."""


@dataclass(frozen=True, slots=True)
class FoundBlank:
    """Blank record at the end of a file, behind which the next file continues the log."""

    file: FoundFile
    offset: PhysicalOffset
    size: int


@dataclass(frozen=True, slots=True)
class BadRange:
    """Damaged bytes of the log, of unknown content."""

    file: FoundFile
    offset: PhysicalOffset
    size: int
    reason: str


LogItem = FoundRecord | FoundBlank | BadRange


def find_log_files(files: FileSystem, root: Path) -> Sequence[FoundFile]:
    """Return the files of the log below `root`, oldest first, without other files.

    Raises:
        StoreNotFound: The folder of the log is missing.
        OSError: The folder cannot be read.
    """
    return find_files(files, check_folder(files, root))


def check_folder(files: FileSystem, root: Path) -> Path:
    """Return the folder of the log below `root`.

    Raises:
        StoreNotFound: The folder is missing.
    """
    folder = commit_log_folder(root)
    if not files.exists(folder):
        raise StoreNotFound(f"{root} does not exist or is no store: it has no folder {folder.name}")
    return folder


def walk_log(files: FileSystem, log_files: Sequence[FoundFile]) -> Generator[LogItem]:
    """Yield records, blank records and damage of the log in order, without the zeros at its end.

    Raises:
        OSError: A file cannot be read.
    """
    written = written_files(files, log_files)
    for file in written:
        yield from _walk_file(files, file, is_last=file == written[-1])


def written_files(files: FileSystem, log_files: Sequence[FoundFile]) -> Sequence[FoundFile]:
    """Return the files up to the last one that has content, without empty ones.

    RocketMQ prepares the next file in the log's folder.

    Raises:
        OSError: A file cannot be read.
    """
    used = [file for file in log_files if file.file_bytes]
    while used and not _has_content(files, used[-1]):
        used.pop()
    return used


def _has_content(files: FileSystem, log_file: FoundFile) -> bool:
    with closing(files.open(log_file.path, read_only=True)) as file:
        window = LogWindow.of_file(file, log_file.base)
        return any(file.read(0, BLANK_BYTES)) or window.next_content(0) is not None


def _walk_file(files: FileSystem, log_file: FoundFile, *, is_last: bool) -> Generator[LogItem]:
    with closing(files.open(log_file.path, read_only=True)) as file:
        window = LogWindow.of_file(file, log_file.base, piece_bytes=PIECE_BYTES)
        position = 0
        while position < log_file.file_bytes:
            at = PhysicalOffset(log_file.base + position)
            try:
                piece = _read_piece(window, log_file, position)
            except CorruptRecord as error:
                if is_last and window.next_content(position) is None:
                    return
                end = next_piece(window, log_file, position + 1)
                if is_last and end == log_file.file_bytes:
                    end = window.content_end(position)
                yield BadRange(log_file, at, end - position, error.reason)
                position = end
                continue
            yield piece
            if isinstance(piece, FoundBlank):
                return
            position += piece.record.header.total_bytes


def _read_piece(window: LogWindow, file: FoundFile, position: int) -> FoundRecord | FoundBlank:
    """Return the record or blank record at `position`.

    Raises:
        CorruptRecord: The bytes are neither.
    """
    at = PhysicalOffset(file.base + position)
    left = file.file_bytes - position
    head = window.take(position, BLANK_BYTES)
    total, magic = read_start(head, 0) if len(head) == BLANK_BYTES else (0, 0)
    if magic == MAGIC_BLANK and total == left:
        return FoundBlank(file, at, left)
    if total > _RECORD_BYTES_MAX:
        raise CorruptRecord(at, f"total size {total} does not fit")
    data = window.take(position, max(total, BLANK_BYTES))
    record = decode_record(data, 0, at=at, check_crc=False)
    if record is None:
        raise CorruptRecord(at, "a blank record does not end with its file")
    is_checksummed = has_checksum(record.properties)
    is_right = not is_checksummed or verify_checksum(data, record.properties)
    return FoundRecord(file, at, record, _problem(record, left), is_checksummed, is_right)


def _problem(record: Record, left: int) -> str:
    if record.body and crc31(record.body) != record.header.body_crc:
        return "the body's checksum differs"
    return find_fault(record, left)


def next_piece(window: LogWindow, file: FoundFile, start: int) -> int:
    """Return the position of the next record from `start` on; else the length of the file."""
    for position in window.claims(start):
        with suppress(CorruptRecord):
            _read_piece(window, file, position)
            return position
    return file.file_bytes
