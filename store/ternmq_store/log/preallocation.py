"""Preallocation of the next files of index and log, by another thread.

Source: RocketMQ `AllocateMappedFileService`.
"""

from ternmq_store.index.index_allocation import IndexTask
from ternmq_store.index.index_files import IndexFiles
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.log.file_allocation import FileTask


class Preallocation:
    """Preallocation for log and index in turns, one task at a time. Owned by `MessageStore`."""

    def __init__(self, log: CommitLog, index: IndexFiles | None) -> None:
        self._log = log
        self._index = index
        self._is_turn_of_log = False

    def due(self, *, is_copying: bool) -> FileTask | None:
        """Return the next task of log or index, or None; `ready` must follow a task."""
        # An index file takes a moment, filling the log many steps.
        if self._is_turn_of_log:
            return self._log.prepare_due(is_copying=is_copying) or self._of_index()
        return self._of_index() or self._log.prepare_due(is_copying=is_copying)

    def _of_index(self) -> FileTask | None:
        return None if self._index is None else self._index.prepare_due()

    def ready(self, task: FileTask, error: OSError | None) -> None:
        """Add the file that `task` made to the log or the index.

        Raises:
            OSError: The disk failed.
        """
        # A failed task is due again at once: the other one has its turn first.
        self._is_turn_of_log = isinstance(task, IndexTask) and error is not None
        if not isinstance(task, IndexTask):
            self._log.prepared(error)
        elif self._index is not None:
            self._index.prepared(task, error)
