"""Flushes of the log and checkpoints of a store.

Source: RocketMQ `FlushManager`, `GroupCommitService`, `FlushRealTimeService`, `StoreCheckpoint`.
"""

from dataclasses import replace
from pathlib import Path

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import checkpoint_path
from ternmq_store.disk.mapped_file_queue import UnsyncedNames
from ternmq_store.disk.reserve_file import give_up_reserve, keep_reserve
from ternmq_store.log.checkpoint import Checkpoint, encode_checkpoint
from ternmq_store.log.flush import CheckpointTask, FlushTask, is_flush_due
from ternmq_store.opened_files import OpenedFiles


class FlushManager:
    """Flushed offset and checkpoint of one store.

    Owned by `MessageStore`, on the store's thread. One flush and one checkpoint may run at a time,
    each in its own thread. Their results count when they are reported as done.

    Attributes:
        config: Settings of the store.
        flushed: Log offset below which all records survive a power loss.
    """

    def __init__(
        self,
        files: FileSystem,
        root: Path,
        config: StoreConfig,
        flush_mode: FlushMode,
        opened: OpenedFiles,
        *,
        now_ms: int,
    ) -> None:
        self._files = files
        self._root = root
        self._path = checkpoint_path(root)
        self.config = config
        self._mode = flush_mode
        self._log = opened.log
        self._queues = opened.queues
        self._dispatcher = opened.dispatcher
        self._index = opened.index
        # The opening has synced all files.
        self.flushed = opened.log.end
        self._log_stored_at_ms = max(opened.stored_at_ms, opened.dispatcher.stored_at_ms)
        self._session = opened.session
        self._checkpoint = opened.session.checkpoint
        self._flushing: FlushTask | None = None
        self._flushed_at_ms = now_ms
        self._checkpointing: Checkpoint | None = None
        self._checkpointed_at_ms = now_ms
        self._not_synced = UnsyncedNames()
        self._log.files.park_before(self.flushed)

    @property
    def is_idle(self) -> bool:
        """True while neither a flush nor a checkpoint is running."""
        return self._flushing is None and self._checkpointing is None

    @property
    def is_checkpointing(self) -> bool:
        """True while a checkpoint is running, which may write the notes."""
        return self._checkpointing is not None

    @property
    def checkpointed(self) -> PhysicalOffset:
        """Log offset below which log, queues and index are on the disk."""
        return PhysicalOffset(self._checkpoint.dispatched_offset)

    def flush_due(self, now_ms: int, *, stored_at_ms: int) -> FlushTask | None:
        """Return the due flush of the log; None = no flush is due.

        Args:
            now_ms: Monotonic clock, ms.
            stored_at_ms: Store time of the newest record, which may not be in the files yet.
        """
        if self._flushing is not None or not is_flush_due(
            self._mode,
            self.config,
            flushed=self.flushed,
            end=self._log.committed,
            file_bytes=self._log.files.file_bytes,
            flushed_at_ms=self._flushed_at_ms,
            now_ms=now_ms,
        ):
            return None
        self._flushed_at_ms = now_ms
        self._flushing = self._flush_task(stored_at_ms)
        return self._flushing

    def _flush_task(self, stored_at_ms: int) -> FlushTask:
        end, pool = self._log.committed, self._log.pool
        if pool is not None:
            stored_at_ms = pool.stored_at_ms  # the newest may still wait in there
        return FlushTask(self._log.files_between(self.flushed, end), end, stored_at_ms)

    def flush_done(self, task: FlushTask, *, is_good: bool) -> None:
        """Record the end of `task`. Its bytes count as flushed if `is_good`."""
        self._flushing = None
        if is_good:
            self.flushed = max(self.flushed, task.end)
            self._log_stored_at_ms = task.stored_at_ms or self._log_stored_at_ms
            self._log.files.park_before(self.flushed)

    def checkpoint_due(self, now_ms: int) -> CheckpointTask | None:
        """Return the due task that syncs queues and writes the checkpoint; None = not due.

        Args:
            now_ms: Monotonic clock, ms.
        """
        if self._checkpointing is not None:
            return None
        if now_ms - self._checkpointed_at_ms < self.config.checkpoint_interval_ms:
            return None
        self._checkpointed_at_ms = now_ms
        self._session.record_queues(self._queues, dispatched=self._dispatcher.offset, now_ms=now_ms)
        checkpoint, task = self._checkpoint_task()
        if checkpoint == self._checkpoint and not task.files and task.notes is None:
            return None
        self._checkpointing = checkpoint
        return task

    def _checkpoint_task(self) -> tuple[Checkpoint, CheckpointTask]:
        new = self._queues.take_new()
        dirty = [*self._not_synced.files, *new.files, *self._queues.take_dirty()]
        folders = tuple(dict.fromkeys((*self._not_synced.folders, *new.folders)))
        index_stored_at_ms = self._checkpoint.index_stored_at_ms
        if self._index is not None:
            dirty += self._index.take_dirty()
            # An index that was cut knows the second alone.
            index_stored_at_ms = min(self._index.stored_at_ms, self._dispatcher.stored_at_ms)
        files = tuple(dict.fromkeys(dirty))
        self._not_synced = UnsyncedNames()
        checkpoint = replace(
            self._checkpoint,
            log_stored_at_ms=self._log_stored_at_ms,
            queues_stored_at_ms=self._dispatcher.stored_at_ms,
            flushed_offset=self.flushed,
            dispatched_offset=min(self.flushed, self._dispatcher.offset),
            index_stored_at_ms=index_stored_at_ms,
        )
        data = encode_checkpoint(checkpoint)
        notes = self._session.notes_due(self.flushed, self._log.start)
        return checkpoint, CheckpointTask(self._files, files, self._path, data, notes, folders)

    def checkpoint_done(self, task: CheckpointTask, *, is_good: bool) -> None:
        """Record the end of the checkpoint's task. It is due again unless `is_good`."""
        if is_good and self._checkpointing is not None:
            self._checkpoint = self._checkpointing
        elif not is_good:
            self._not_synced = UnsyncedNames(task.files, task.folders)
        if task.notes is not None:
            self._session.notes_done(task.notes, is_good=is_good)
        self._checkpointing = None

    def flush_now(self, *, stored_at_ms: int) -> None:
        """Flush the log on this thread.

        Raises:
            OSError: The flush failed.
        """
        task = self._flush_task(stored_at_ms)
        task.run()
        self.flush_done(task, is_good=True)

    def checkpoint_now(self) -> None:
        """Write queues, checkpoint and notes to the disk on this thread, at a clean stop.

        Raises:
            OSError: The write failed.
        """
        give_up_reserve(self._files, self._root)
        _, task = self._checkpoint_task()
        task.run()
        self._session.end(
            self._log,
            self._queues,
            self._dispatcher.offset,
            index=self._index.notes() if self._index is not None else (),
        )
        keep_reserve(self._files, self._root)
