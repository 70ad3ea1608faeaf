"""Commits of the transient pool: writes of batches from memory to the log's files."""

from collections.abc import Callable

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.config import StoreConfig
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.log.transient_pool import BusyReason, CommitTask, TransientPool


class PoolCommits:
    """Commits of one log's transient pool. Owned by `MessageStore`, on the store's thread.

    Without a pool, appended records are in the files at once, and no commit is due.

    Args:
        log: Recovered log, which gets a pool if the settings enable one.
        config: Settings of the store.
        fail: Function that records the error of a failed commit.
        has_failed: Test whether the store has failed; no commit is due then.

    Source: RocketMQ `CommitRealTimeService`.
    """

    def __init__(
        self,
        log: CommitLog,
        config: StoreConfig,
        fail: Callable[[OSError], None],
        has_failed: Callable[[], bool],
    ) -> None:
        self._log = log
        self._fail = fail
        self._has_failed = has_failed
        if config.transient_pool_enabled:
            log.pool = TransientPool(
                config.transient_pool_bytes, fails_fast=config.transient_pool_fails_fast
            )

    @property
    def offset(self) -> PhysicalOffset:
        """Log offset below which all bytes are in the log's files."""
        return self._log.committed

    @property
    def busy_reason(self) -> BusyReason:
        """Reason of an append refused as busy."""
        return BusyReason.FILE if self._log.pool is None else self._log.pool.busy_reason

    def due(self) -> CommitTask | None:
        """Return the task that writes waiting batches, for `done`; None = no batches."""
        if self._has_failed() or self._log.pool is None:
            return None
        return self._log.pool.commit_due()

    def done(self, task: CommitTask, error: OSError | None = None) -> None:
        """Record the end of `task`. Its records count as written without an error."""
        if error is not None:
            self._fail(error)
        elif self._log.pool is not None:
            self._log.pool.commit_done(task)

    def now(self) -> None:
        """Write all waiting batches on this thread. No task may be running.

        Raises:
            OSError: The write failed. The content of the files is unknown.
        """
        assert self._log.pool is None or self._log.pool.is_idle, "a task is under way"
        task = self.due()
        if task is not None:
            task.run()
            self.done(task)
