"""Truncation of a replica's log where it has records that its master does not have.

The store is closed meanwhile. The new end is noted durably before anything goes, and the opening of
the store carries the truncation out, with all that it does after a crash: so the next opening
completes an interrupted truncation, and nothing that was cut comes back. A copy of the tail is kept
for the operator (docs/formats/cut-files.md).
"""

import logging
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ternmq_model.clock import Clock
from ternmq_model.errors import StoreError
from ternmq_model.file_generations import previous_path
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import (
    checkpoint_path,
    commit_log_folder,
    consume_queue_ext_folder,
    consume_queue_folder,
    deletions_path,
    file_name,
    index_folder,
    lock_path,
    next_file_path,
    notes_path,
)
from ternmq_store.disk.mapped_file_queue import find_files
from ternmq_store.log.file_allocation import AllocateTask
from ternmq_store.log.log_notes import LogNotes, load_notes, save_notes
from ternmq_store.log.store_session import StoreSession
from ternmq_store.message_store import MessageStore
from ternmq_store.truncation.tail_copy import copy_tail, scan_tail

logger = logging.getLogger(__name__)

_FIRST_ZERO_BYTES: Final = 64 << 20
"""Bytes of a new log's first file that are filled with zeros; the rest is reserved."""

_BEGUN: Final = "begun"
"""Names a session that ended before anything was stored."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """The part that was taken away from the end of a log."""

    start: PhysicalOffset
    """Log offset at which the part began."""

    end: PhysicalOffset
    """Log offset at which the log ended, by its records."""

    records: int
    first: PhysicalOffset | None
    """Start of the first record; None when there was none."""

    last: PhysicalOffset | None
    """Start of the last record."""

    kept: Path | None
    """Path of a copy; None when nothing was cut, or the disk is too full for one."""

    log_end: PhysicalOffset
    """Log offset at which the log ends now."""

    @property
    def bytes(self) -> int:
        """Length of that part."""
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
    """Cut the log of a closed store at `at`, durably, and queues and index with it.

    A kill or a loss of power in between leaves a store whose next opening completes the cut, unless
    it came before anything was changed; so does doing it again. A log that ends before `at` stays.

    Args:
        root: The store's directory.
        config: Settings of the store.
        flush_mode: Flush mode of the store.
        files: File system.
        clock: Clock for the opening.
        at: New end of the log. Within a record, the log ends before that.
        serve_to: Nothing beyond it is dispatched; None = everything that is left.

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
    """Leave it to the opening to tell of notes that cannot be read."""


def _announce(files: FileSystem, root: Path, at: PhysicalOffset) -> Truncation:
    """Scan the tail, keep a copy of it, and note the new end durably."""
    session = StoreSession(files, root, _ignore)
    found = find_files(files, commit_log_folder(root))
    if found and at < found[0].base:
        raise StoreError(f"the log begins at {found[0].base}: it cannot be cut at {at}")
    tail = scan_tail(files, found, at, flushed=session.flushed)
    kept = copy_tail(files, root, found, at, tail.end)
    logger.warning(
        "log is cut root=%s at=%d end=%d records=%d first=%s last=%s kept=%s",
        root,
        at,
        tail.end,
        tail.records,
        tail.first,
        tail.last,
        kept,
    )
    notes = replace(session.notes, cut_to=at)
    for _ in range(2):  # both generations: the older one would know nothing of it
        save_notes(files, root, notes)
    return Truncation(at, tail.end, tail.records, tail.first, tail.last, kept, at)


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

    Args:
        root: The store's directory.
        config: Settings of the store.
        flush_mode: Flush mode of the store.
        files: File system.
        clock: Clock for the opening.
        at: Start of the new log, a multiple of `file_bytes`.
        file_bytes: Length of its files.

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
        raise StoreError(f"no log can be begun at {at} in {root}: {error}") from error
    finally:
        lock.release()
    return replace(cut, log_end=at)


def _remove_all(files: FileSystem, root: Path) -> None:
    """Remove what there is of a store without a record: nothing of it suits another log."""
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
    """Yield all files and folders below a folder, in the order in which they can be removed."""
    for name in files.folders(folder):
        yield from _below(files, folder / name)
        yield folder / name
    for name in files.files(folder):
        yield folder / name
