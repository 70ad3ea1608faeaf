"""Recovery of a whole store under its lock, on a full disk too."""

import contextlib
import logging
from dataclasses import astuple
from pathlib import Path

from ternmq_model.clock import Clock
from ternmq_model.errors import StoreError
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import FileSystem, Lock
from ternmq_store.disk.layout import (
    commit_log_folder,
    consume_queue_ext_folder,
    consume_queue_folder,
    lock_path,
)
from ternmq_store.disk.reserve_file import keep_reserve
from ternmq_store.disk.resource_exhaustion import is_exhausted
from ternmq_store.opened_files import OpenedFiles
from ternmq_store.recovery.index_recovery import open_index
from ternmq_store.recovery.log_recovery import open_files

logger = logging.getLogger(__name__)


def hold_and_open(
    root: Path,
    config: StoreConfig,
    files: FileSystem,
    clock: Clock,
    *,
    serve_to: PhysicalOffset | None,
    fills_ahead: bool,
) -> tuple[Lock, OpenedFiles]:
    """Lock a store's directory, which may be empty, and open log, queues and index.

    `fills_ahead` is that of the log.

    Raises:
        StoreLocked: Another process holds the directory.
        StoreError: The store cannot be opened; a retry starts from the beginning.
    """
    try:
        files.make_folder(root)
        with contextlib.suppress(PermissionError):
            files.sync_folder(root.parent)
        lock = files.lock(lock_path(root))
        try:
            opened = open_files(files, root, config, now_ms=clock.wall_ms(), serve_to=serve_to)
            opened = open_index(files, root, config, clock, opened)
            # On a full disk `open_files` has taken the space of the reserve.
            keep_reserve(files, root)
            opened.log.fills_ahead = fills_ahead
            opened.log.make_space()
        except BaseException:
            lock.release()
            raise
    except OSError as error:
        what = f"data directory {root} cannot be used: {error}{_needs(files, root, error)}"
        raise StoreError(what) from error
    logger.info(
        "store opened folder=%s was_clean=%s log_files=%s scanned_from=%s end=%s cut_bytes=%s"
        " cut_reason=%r records_scanned=%s queues=%s queues_rebuilt=%s findings=%s",
        root,
        *astuple(opened.report)[:-1],
        len(opened.report.findings),
    )
    return lock, opened


def _count_files(files: FileSystem, root: Path) -> int:
    count = len(files.files(commit_log_folder(root)))
    for queues in (consume_queue_folder(root), consume_queue_ext_folder(root)):
        for topic in files.folders(queues):
            for queue_id in files.folders(queues / topic):
                count += len(files.files(queues / topic / queue_id))
    return count


def _needs(files: FileSystem, root: Path, error: OSError) -> str:
    """Return the count of files to map, as text, if `error` is a lack of files or memory."""
    if not is_exhausted(error):
        return ""
    with contextlib.suppress(OSError):
        return f"; it has {_count_files(files, root)} files to map"
    return ""
