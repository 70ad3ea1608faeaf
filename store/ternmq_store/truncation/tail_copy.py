"""The tail of a closed store's log that is to be truncated: a scan of it, and a copy."""

import logging
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.scanner import Verify
from ternmq_store.disk.file_content import read_pieces, write_pieces
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import cut_folder, cut_name, cut_range
from ternmq_store.disk.mapped_file_queue import FoundFile
from ternmq_store.disk.resource_exhaustion import is_full
from ternmq_store.log.file_allocation import USED_SHARE_MAX
from ternmq_store.log.log_window import LogWindow

logger = logging.getLogger(__name__)

KEPT_BYTES_MAX: Final = 256 << 20
"""Most bytes that one copy of a cut tail has, from its beginning on."""

KEPT_FILES_MAX: Final = 8
"""Most copies that are retained; of more, the one of the lowest offset goes."""


class LogTail(NamedTuple):
    """The end of a log, from some place on."""

    end: PhysicalOffset
    """Log offset behind the last record."""

    records: int = 0
    first: PhysicalOffset | None = None
    """Start of the first record; None when there is none."""

    last: PhysicalOffset | None = None
    """Start of the last one."""


def scan_tail(
    files: FileSystem,
    found: Sequence[FoundFile],
    start: PhysicalOffset,
    *,
    flushed: PhysicalOffset,
) -> LogTail:
    """Return the tail of a log from `start` on. All of it is read, which may take seconds.

    Args:
        files: The file system.
        found: The log's files, by base.
        start: Log offset of the tail's start.
        flushed: Before it damaged bytes are passed over; behind it they are the log's end.
    """
    tail = LogTail(start)
    for one in found:
        if one.base + one.file_bytes <= start or not one.file_bytes:
            continue
        if one.base > tail.end:
            break
        with (
            closing(files.open(one.path, read_only=True)) as file,
            closing(file.map()) as region,
        ):
            tail = _scan_file(LogWindow.of_view(region.view, one.base), tail, flushed)
    return tail


def _scan_file(window: LogWindow, tail: LogTail, flushed: PhysicalOffset) -> LogTail:
    at, records, first, last = max(tail.end, PhysicalOffset(window.base)), *tail[1:]
    end = window.base + window.file_bytes
    while at < end:
        found = window.step(at, end, verify=Verify.NOTHING)
        if found.damage and (at >= flushed or found.end == end):
            break
        if found.batch is not None:
            records += len(found.batch)
            first = at if first is None else first
            last = PhysicalOffset(at + int(found.batch.starts[-1]))
        at = found.end
    return LogTail(at, records, first, last)


def copy_tail(
    files: FileSystem, root: Path, found: Sequence[FoundFile], start: int, end: int
) -> Path | None:
    """Copy the log's bytes from `start` to `end`, durably; of a long tail the first bytes.

    Returns:
        Where they lie; None when there are none, or the disk has no room for them.

    Raises:
        OSError: The disk failed.
    """
    end = min(end, start + KEPT_BYTES_MAX)
    folder = cut_folder(root)
    path = folder / cut_name(start, end)
    if end <= start or files.exists(path):
        return path if end > start else None
    try:
        if files.used_share(root) > USED_SHARE_MAX:
            logger.warning("nothing kept of what is cut, the disk is too full root=%s", root)
            return None
        files.make_folder(folder)
        _make_place(files, folder)
        write_pieces(files, path, _pieces(files, found, start, end))
    except OSError as error:
        if not is_full(error):
            raise
        logger.warning("nothing kept of what is cut root=%s error=%s", root, error)
        return None
    return path


def _make_place(files: FileSystem, folder: Path) -> None:
    """Remove the oldest copies, and the file of an interrupted one."""
    names = files.files(folder)
    kept = sorted(name for name in names if cut_range(name) is not None)
    stale = kept[: max(len(kept) - KEPT_FILES_MAX + 1, 0)]
    for name in [*(name for name in names if name not in kept), *stale]:
        files.remove(folder / name)


def _pieces(
    files: FileSystem, found: Sequence[FoundFile], start: int, end: int
) -> Generator[bytes]:
    for one in found:
        stop = min(one.base + one.file_bytes, end)
        if max(one.base, start) >= stop:
            continue
        with closing(files.open(one.path, read_only=True)) as file:
            yield from read_pieces(file, max(one.base, start) - one.base, stop - one.base)
