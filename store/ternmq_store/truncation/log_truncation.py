"""Truncation of a replica's log that has records which its master does not have.

The store is closed during the truncation. The new end is stored durably before any byte is cut, and
the opening of the store makes the cut, with its recovery after crashes. So the next opening
completes an interrupted truncation, and cut records do not come back. The operator gets a copy of
the tail (docs/formats/cut-files.md).
"""

import logging
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ternmq_model.clock import Clock
from ternmq_model.errors import StoreError
from ternmq_model.file_generations import previous_path
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.scanner import Verify
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.file_content import read_pieces, write_pieces
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import (
    checkpoint_path,
    commit_log_folder,
    consume_queue_ext_folder,
    consume_queue_folder,
    cut_folder,
    cut_name,
    cut_range,
    deletions_path,
    file_name,
    index_folder,
    lock_path,
    next_file_path,
    notes_path,
)
from ternmq_store.disk.mapped_file_queue import FoundFile, find_files
from ternmq_store.disk.resource_exhaustion import is_full
from ternmq_store.log.file_allocation import USED_SHARE_MAX, AllocateTask
from ternmq_store.log.log_notes import LogNotes, load_notes, save_notes
from ternmq_store.log.log_window import LogWindow
from ternmq_store.log.store_session import StoreSession
from ternmq_store.message_store import MessageStore

logger = logging.getLogger(__name__)

_FIRST_ZERO_BYTES: Final = 64 << 20
"""Bytes of a new log's first file that are filled with zeros. The other bytes are reserved."""

_BEGUN: Final = "begun"
"""Name of a session that ended before its first record."""

KEPT_BYTES_MAX: Final = 256 << 20
"""Most bytes of a copy of a cut tail, from its begin on."""

KEPT_FILES_MAX: Final = 8
"""Most copies. Beyond it, the copy with the lowest offset is removed."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """Tail that was cut from a log."""

    start: PhysicalOffset
    """Log offset at which the tail began."""

    end: PhysicalOffset
    """Log offset at which the records of the tail ended."""

    records: int
    first: PhysicalOffset | None
    """Log offset of the first record in the tail; None = no record."""

    last: PhysicalOffset | None
    """Log offset of the last record in the tail; None = no record."""

    kept: Path | None
    """Path of the copy; None = no byte was cut, or the disk is too full for a copy."""

    log_end: PhysicalOffset
    """Present end of the log."""

    @property
    def bytes(self) -> int:
        """Length of the tail, bytes."""
        return self.end - self.start


def truncate_log(
    root: Path,
    config: StoreConfig,
    flush_mode: FlushMode,
    files: FileSystem,
    clock: Clock,
    at: PhysicalOffset,
    *,
    serve_to: PhysicalOffset | None = None,
) -> Truncation:
    """Cut the log of a closed store at `at`, durably, with queues and index.

    After a kill or a power loss the next opening completes the cut, unless the crash came before
    the first change. Repeating the call completes it too. A log that ends before `at` is unchanged.

    If `at` is inside a record, the log ends before it. No record behind `serve_to` is dispatched;
    None = no limit. The other arguments are those of `MessageStore.open`.

    Raises:
        StoreLocked: The store is open.
        StoreError: `at` lies before the log's start, or the store cannot be opened.
    """
    if not StoreSession(files, root, _ignore).has_notes:
        # Of a log that was never opened here nothing can be noted.
        MessageStore.open(root, config, flush_mode, files, clock, serve_to=at).close()
    lock = files.lock(lock_path(root))
    try:
        cut = _announce(files, root, at)
    except OSError as error:
        raise StoreError(f"data directory {root} cannot be used: {error}") from error
    finally:
        lock.release()
    limit = at if serve_to is None else min(at, serve_to)
    store = MessageStore.open(root, config, flush_mode, files, clock, serve_to=limit)
    end = store.max_physical
    store.close()
    if store.failure is not None:
        raise StoreError(f"the log is not cut: {store.failure}") from store.failure
    return replace(cut, log_end=end)


def _ignore(_reason: str) -> None:
    """Ignore notes that cannot be read; the opening reports them."""


def _announce(files: FileSystem, root: Path, at: PhysicalOffset) -> Truncation:
    """Scan the tail, keep a copy of it, and note the new end durably."""
    session = StoreSession(files, root, _ignore)
    found = find_files(files, commit_log_folder(root))
    if found and at < found[0].base:
        raise StoreError(f"the log begins at {found[0].base}: it cannot be cut at {at}")
    cut = _scan_tail(files, found, at, flushed=session.flushed)
    cut = replace(cut, kept=_copy_tail(files, root, found, at, cut.end))
    logger.warning(
        "log is cut folder=%s log_offset=%d end=%d records=%d first=%s last=%s copy=%s",
        root,
        at,
        cut.end,
        cut.records,
        cut.first,
        cut.last,
        cut.kept,
    )
    notes = replace(session.notes, cut_to=at)
    for _ in range(2):  # both generations: the older one would know nothing of it
        save_notes(files, root, notes)
    return cut


def reset_log(
    root: Path,
    config: StoreConfig,
    flush_mode: FlushMode,
    files: FileSystem,
    clock: Clock,
    at: PhysicalOffset,
    file_bytes: int,
) -> Truncation:
    """Replace the log of a closed store by an empty one that begins at `at`.

    Interrupted, it leaves a store without a record, or as it was; doing it again completes it.

    `at` is a multiple of `file_bytes`, the length of the new files. The other arguments are those
    of `MessageStore.open`.

    Raises:
        StoreLocked: The store is open.
        StoreError: `at` is no such place, the store cannot be opened, or the disk has no room.
    """
    if file_bytes <= 0 or at < 0 or at % file_bytes:
        raise StoreError(f"no file of {file_bytes} bytes begins at {at}")
    found = find_files(files, commit_log_folder(root))
    start = PhysicalOffset(found[0].base if found else 0)
    cut = truncate_log(root, config, flush_mode, files, clock, start)
    lock = files.lock(lock_path(root))
    try:
        tables = load_notes(files, root, _ignore).tables
        _remove_all(files, root)
        path = commit_log_folder(root) / file_name(at)
        zero_bytes = min(_FIRST_ZERO_BYTES, file_bytes)
        AllocateTask(files, next_file_path(root), path, file_bytes, zero_bytes).run()
        notes = LogNotes(_BEGUN, False, at, at, file_bytes, queues_at=at, tables=tables)
        save_notes(files, root, notes)
    except OSError as error:
        raise StoreError(f"no log can begin at {at} in {root}: {error}") from error
    finally:
        lock.release()
    return replace(cut, log_end=at)


def _remove_all(files: FileSystem, root: Path) -> None:
    """Remove the files of a store without records, since none of them fits another log."""
    for top in (consume_queue_folder(root), consume_queue_ext_folder(root)):
        for path in _below(files, top):
            files.remove(path)
    folders = (commit_log_folder(root), index_folder(root))
    deletions, notes = deletions_path(root), notes_path(root)
    for path in (
        *(folder / name for folder in folders for name in files.files(folder)),
        next_file_path(root),
        checkpoint_path(root),
        deletions,
        previous_path(deletions),
        notes,
        previous_path(notes),
    ):
        if files.exists(path):
            files.remove(path)
    for folder in (*folders, consume_queue_folder(root), root):
        if files.exists(folder):
            files.sync_folder(folder)


def _below(files: FileSystem, folder: Path) -> Generator[Path]:
    """Yield all files and folders below a folder, in an order for their removal."""
    for name in files.folders(folder):
        yield from _below(files, folder / name)
        yield folder / name
    for name in files.files(folder):
        yield folder / name


def _scan_tail(
    files: FileSystem, found: Sequence[FoundFile], at: PhysicalOffset, *, flushed: PhysicalOffset
) -> Truncation:
    """Return the tail of a log from `at` on. The whole tail is read, which may take seconds.

    Damaged bytes before `flushed` are skipped. Damaged bytes behind it are the log's end.
    """
    cut = Truncation(at, at, 0, None, None, None, at)
    for one in found:
        if one.base + one.file_bytes <= at or not one.file_bytes:
            continue
        if one.base > cut.end:
            break
        with (
            closing(files.open(one.path, read_only=True)) as file,
            closing(file.map()) as region,
        ):
            cut = _scan_file(LogWindow.of_view(region.view, one.base), cut, flushed)
    return cut


def _scan_file(window: LogWindow, cut: Truncation, flushed: PhysicalOffset) -> Truncation:
    at, records, first, last = cut.end, cut.records, cut.first, cut.last
    at = max(at, PhysicalOffset(window.base))
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
    return replace(cut, end=at, records=records, first=first, last=last)


def _copy_tail(
    files: FileSystem, root: Path, found: Sequence[FoundFile], start: int, end: int
) -> Path | None:
    """Copy the log's bytes from `start` to `end` durably; only the first bytes of a long tail.

    Returns:
        Path of the copy; None = no bytes, or no space on the disk.

    Raises:
        OSError: The disk failed.
    """
    end = min(end, start + KEPT_BYTES_MAX)
    folder = cut_folder(root)
    path = folder / cut_name(start, end)
    if end <= start or files.exists(path):
        return path if end > start else None
    try:
        if files.space(root).used_share > USED_SHARE_MAX:
            logger.warning("cut records not copied, the disk is too full folder=%s", root)
            return None
        files.make_folder(folder)
        _remove_old_copies(files, folder)
        write_pieces(files, path, _pieces(files, found, start, end))
    except OSError as error:
        if not is_full(error):
            raise
        logger.warning("cut records not copied folder=%s err=%s", root, error)
        return None
    return path


def _remove_old_copies(files: FileSystem, folder: Path) -> None:
    """Remove the oldest copies and the files of interrupted copies."""
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
