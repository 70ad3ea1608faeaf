"""Reading a commit log that may be damaged, or in use by somebody: nothing is opened for writing.

A walk goes through the files in order and gives what it finds: records, the blank records at the
end of files, and bad stretches. A bad stretch ends where the next record begins: at a magic number
with the physical offset of that very place. Memory stays the same however long the log is.

Source: RocketMQ `CommitLog.checkMessageAndReturnSize`, which does not go on behind a bad record.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ternmq_model.errors import CorruptRecord, StoreNotFound
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.checksum import has_checksum, verify_checksum
from ternmq_model.record.format import (
    BLANK_BYTES,
    MAGIC_BLANK,
    Record,
    body_crc,
    decode_record,
    possible_starts,
    read_start,
)
from ternmq_model.record.integrity import has_lost_sector
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.layout import commit_log_folder, file_base

PIECE_BYTES: Final = 4 << 20
RECORD_BYTES_MAX: Final = 128 << 20
"""No record is longer, whatever the broker that wrote it allowed."""


class LogFile(NamedTuple):
    """A file of the log as it lies in its folder."""

    path: Path
    base: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record whose sizes add up and which says that it is where it lies."""

    file: LogFile
    offset: PhysicalOffset
    record: Record
    problem: str
    """Damage of its content; empty for a good one."""

    is_checksummed: bool
    """It ends with a checksum of all of it."""

    is_checksum_right: bool
    """That checksum, where there is one, is right."""


@dataclass(frozen=True, slots=True)
class FoundBlank:
    """The record that says that the log goes on in the next file."""

    file: LogFile
    offset: PhysicalOffset
    size: int


@dataclass(frozen=True, slots=True)
class BadRange:
    """Bytes of which nothing can be told."""

    file: LogFile
    offset: PhysicalOffset
    size: int
    reason: str


LogItem = FoundRecord | FoundBlank | BadRange


def find_log_files(files: FileSystem, root: Path) -> Sequence[LogFile]:
    """Return the files of the log below `root`, oldest first; other files are passed over.

    Raises:
        StoreNotFound: There is no log's folder.
        OSError: It cannot be read.
    """
    folder = check_folder(files, root)
    found: list[LogFile] = []
    for name in files.files(folder):
        base = file_base(name)
        if base is not None:
            found.append(LogFile(folder / name, base, file_bytes(files, folder / name)))
    return found


def check_folder(files: FileSystem, root: Path) -> Path:
    """Return the folder of the log below `root`.

    Raises:
        StoreNotFound: It is not there.
    """
    folder = commit_log_folder(root)
    if not files.exists(folder):
        raise StoreNotFound(f"{root} is not there or no store: it has no folder {folder.name}")
    return folder


def file_bytes(files: FileSystem, path: Path) -> int:
    """Return the length of the file at `path`; 0 when it was deleted meanwhile."""
    try:
        file = files.open(path, read_only=True)
    except FileNotFoundError:
        return 0
    with closing(file):
        return file.size()


def walk_log(files: FileSystem, log_files: Sequence[LogFile]) -> Generator[LogItem]:
    """Give what lies in the log, in its order. What lies behind its end is zeros and not given.

    Raises:
        OSError: A file cannot be read.
    """
    used = [file for file in log_files if is_begun(files, file)]
    for file in log_files:
        if file.file_bytes and used and file.base <= used[-1].base:
            yield from _walk_file(files, file, is_last=file == used[-1])


def is_begun(files: FileSystem, log_file: LogFile) -> bool:
    """Tell whether anything was written to a file: RocketMQ prepares the next one in the folder."""
    with closing(files.open(log_file.path, read_only=True)) as file:
        return any(file.read(0, BLANK_BYTES)) or next_content(FileWindow(file), 0) is not None


def _walk_file(files: FileSystem, log_file: LogFile, *, is_last: bool) -> Generator[LogItem]:
    file = files.open(log_file.path, read_only=True)
    window = FileWindow(file)
    position = 0
    with closing(file):
        while position < log_file.file_bytes:
            at = PhysicalOffset(log_file.base + position)
            try:
                piece = _read_piece(window, log_file, position)
            except CorruptRecord as error:
                if is_last and next_content(window, position) is None:
                    return
                end = next_piece(window, log_file, position + 1)
                if is_last and end == log_file.file_bytes:
                    end = content_end(window.file, position)
                yield BadRange(log_file, at, end - position, error.reason)
                position = end
                continue
            yield piece
            if isinstance(piece, FoundBlank):
                return
            position += piece.record.header.total_bytes


class FileWindow:
    """The stretch of a file that was read last. Made and used by one walk."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.file_bytes = file.size()
        self._start = 0
        self._data = memoryview(b"")

    def take(self, position: int, length: int) -> memoryview:
        """Return `length` bytes from `position`, or fewer at the file's end."""
        length = max(0, min(length, self.file_bytes - position))
        begin = position - self._start
        if not 0 <= begin <= begin + length <= len(self._data):
            self._data = memoryview(self.file.read(position, max(length, PIECE_BYTES)))
            self._start, begin = position, 0
        return self._data[begin : begin + length]


def _read_piece(window: FileWindow, file: LogFile, position: int) -> FoundRecord | FoundBlank:
    """Return what lies at `position`.

    Raises:
        CorruptRecord: It is neither a record nor a blank one.
    """
    at = PhysicalOffset(file.base + position)
    left = file.file_bytes - position
    head = window.take(position, BLANK_BYTES)
    if len(head) < BLANK_BYTES:
        raise CorruptRecord(at, f"only {left} bytes are left")
    total, magic = read_start(head, 0)
    if magic == MAGIC_BLANK:
        if total != left:
            raise CorruptRecord(at, "a blank record does not end with its file")
        return FoundBlank(file, at, left)
    if total > min(left, RECORD_BYTES_MAX):
        raise CorruptRecord(at, f"total size {total} does not fit")
    data = window.take(position, max(total, BLANK_BYTES))
    record = decode_record(data, 0, at=at, check_crc=False)
    assert record is not None, "blank records were told apart above"
    is_checksummed = has_checksum(record.properties)
    is_right = not is_checksummed or verify_checksum(data, record.properties)
    return FoundRecord(file, at, record, _problem(record, left), is_checksummed, is_right)


def _problem(record: Record, left: int) -> str:
    """Return what is wrong with a record whose sizes add up; empty if nothing is."""
    header, end = record.header, record.header.physical_offset + record.header.total_bytes
    if record.body and body_crc(record.body) != header.body_crc:
        return "the body's checksum differs"
    if header.total_bytes + BLANK_BYTES > left:
        return "the record leaves no room for a blank one"
    if b"\0" in record.topic:
        return "part of the topic is lost"
    if has_lost_sector(record.properties, end - len(record.properties)):
        return "part of the properties is lost"
    return ""


def next_content(window: FileWindow, position: int) -> int | None:
    """Return where the piece begins that holds the first byte that is not zero; None without."""
    while position < window.file_bytes:
        data = window.take(position, PIECE_BYTES)
        if not data:
            return None
        if bytes(data).count(0) != len(data):
            return position
        position += len(data)
    return None


def content_end(file: File, position: int) -> int:
    """Return where, behind `position`, only zeros follow to the file's end."""
    end = file.size()
    while end > position:
        begin = max(position, end - PIECE_BYTES)
        if kept := len(file.read(begin, end - begin).rstrip(b"\0")):
            return begin + kept
        end = begin
    return position


def next_piece(window: FileWindow, file: LogFile, start: int) -> int:
    """Return where, at or behind `start`, the next record begins; the file's end if none does."""
    position = start
    while position + BLANK_BYTES <= file.file_bytes:
        data = bytes(window.take(position, PIECE_BYTES))
        for start in possible_starts(data):
            candidate = position + start
            try:
                _read_piece(window, file, candidate)
            except CorruptRecord:
                continue
            return candidate
        if len(data) <= BLANK_BYTES:
            break
        position += len(data) - BLANK_BYTES + 1
    return file.file_bytes
