"""Flushes of the log and checkpoints: the rule when one is due, and tasks for a blocking thread.

A task holds files and bytes, never an object of the store. One sync serves all waiting sends.

Source: RocketMQ `GroupCommitService`, `FlushRealTimeService`, `FlushConsumeQueueService`.
"""

import contextlib
import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.resource_exhaustion import is_full
from ternmq_store.log.log_notes import LogNotes, save_notes

PAGE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class FlushTask:
    """Flush of the log, for a blocking thread."""

    files: Sequence[File]
    end: PhysicalOffset
    """Log offset below which all bytes are on disk when `run` has returned."""
    stored_at_ms: int
    """Store time of the newest record before `end`."""

    def run(self) -> None:
        """Sync, oldest file first.

        Raises:
            OSError: The content of the disk is unknown from now on.
        """
        for file in self.files:
            file.sync()


@dataclass(frozen=True, slots=True)
class CheckpointTask:
    """Sync of consume queues and index, then of the checkpoint that vouches for them."""

    file_system: FileSystem
    files: Sequence[Path]
    checkpoint: Path
    data: bytes
    notes: LogNotes | None = None
    """New notes of the log; None = they are unchanged."""
    folders: Sequence[Path] = ()
    """Folders with names that may not be on the disk."""

    def run(self) -> None:
        """Sync the queues, write the checkpoint, sync it.

        Raises:
            OSError: ENOSPC, EDQUOT or a limit of open files: the checkpoint stays, and is true. Any
                other error: the content of the disk is unknown.
        """
        for path in self.files:
            # A topic may be deleted meanwhile: its units need no checkpoint.
            with contextlib.suppress(FileNotFoundError):
                self._sync(path)
        for folder in self.folders:
            with contextlib.suppress(FileNotFoundError):
                self.file_system.sync_folder(folder)
        write_checkpoint(self.file_system, self.checkpoint, self.data)
        if self.notes is not None:
            save_notes(self.file_system, self.checkpoint.parent, self.notes)

    def _sync(self, path: Path) -> None:
        file = self.file_system.open(path)
        try:
            file.sync()
        except OSError as error:
            if is_full(error):  # units without space are lost, unlike a file that is not written
                raise OSError(errno.EIO, f"units may be lost: {error}") from error
            raise
        finally:
            file.close()


def write_checkpoint(files: FileSystem, path: Path, data: bytes) -> None:
    """Make `data` the checkpoint, durably.

    Raises:
        OSError: The content of the checkpoint is unknown.
    """
    is_new = not files.exists(path)
    with contextlib.closing(files.open(path, create=True)) as file:
        file.write(0, data)
        file.sync()
    if is_new:
        files.sync_folder(path.parent)


def is_flush_due(
    mode: FlushMode,
    config: StoreConfig,
    *,
    flushed: PhysicalOffset,
    end: PhysicalOffset,
    file_bytes: int,
    flushed_at_ms: int,
    now_ms: int,
) -> bool:
    """Return whether a flush of the log is due.

    A synchronous flush is due as soon as there are bytes to flush.

    Args:
        mode: Flush mode of the store.
        config: Intervals and pages of the asynchronous flush.
        flushed: Log offset up to which the log is on disk.
        end: End of the log's files.
        file_bytes: Length of a log file; a full one is flushed at once.
        flushed_at_ms: Time of the last flush by the monotonic clock.
        now_ms: Present time by the monotonic clock.

    Source: RocketMQ `FlushRealTimeService`, `DefaultMappedFile.isAbleToFlush`.
    """
    if end <= flushed:
        return False
    if mode is FlushMode.SYNC or end // file_bytes > flushed // file_bytes:
        return True
    waited_ms = now_ms - flushed_at_ms
    pages = end // PAGE_BYTES - flushed // PAGE_BYTES
    if waited_ms >= config.flush_thorough_interval_ms:
        return True
    return waited_ms >= config.flush_interval_ms and pages >= config.flush_least_pages
