"""The store: it appends records, syncs them, dispatches them to queues, and reads them back.

Synchronous, with one owner: all calls come from one thread, the broker's loop. What blocks is given
out as a task (`FlushTask`, `AllocateTask`, `CheckpointTask`) for another thread to `run`, and its
outcome is handed back.

    dispatched <= confirmed <= end of the log;  flushed <= end

Nothing above the confirm offset is dispatched, and nothing that is not dispatched is read.

Source: RocketMQ `DefaultMessageStore`.
"""

import logging
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ternmq_model.arrays import Ints
from ternmq_model.clock import Clock
from ternmq_model.errors import ClosedError, StoreFailed
from ternmq_model.names import check_topic
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record.batch import Records, conform_checksums
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_store.disk.fail_stop import FailStopFileSystem
from ternmq_store.disk.filesystem import FileSystem, Lock
from ternmq_store.disk.layout import abort_path
from ternmq_store.disk.resource_exhaustion import is_exhausted, is_full
from ternmq_store.dispatch.dispatch_request import BitMaps
from ternmq_store.dispatch.log_dispatcher import DispatchResult
from ternmq_store.dispatch.reservations import Reservations, store_time
from ternmq_store.dispatch.topic_deletions import note_deletions
from ternmq_store.durability.disk_probes import DiskProbes
from ternmq_store.durability.flush_manager import FlushManager
from ternmq_store.durability.missing_files import MissingFileCheck
from ternmq_store.durability.pool_commits import PoolCommits
from ternmq_store.log.file_allocation import FileTask
from ternmq_store.log.flush import CheckpointTask, FlushTask
from ternmq_store.log.preallocation import Preallocation
from ternmq_store.opened_files import OpenedFiles
from ternmq_store.query.key_search import KeySearches
from ternmq_store.queues.read_request import ReadResult
from ternmq_store.read.store_reads import StoreReads
from ternmq_store.recovery.store_recovery import hold_and_open
from ternmq_store.replication.log_copy import LogCopy
from ternmq_store.replication.log_feed import LogFeed
from ternmq_store.retention.clean_tasks import CleanTask
from ternmq_store.retention.cleaner import Cleaner
from ternmq_store.store_statistics import StoreStatistics
from ternmq_store.verification.verification import Verification

logger = logging.getLogger(__name__)


class AppendResult(NamedTuple):
    """Offsets of a batch that was appended, row by row."""

    physical_offsets: Ints
    queue_offsets: Ints
    stored_at_ms: int
    end: PhysicalOffset
    """Confirmed once `confirm_offset` is no less."""


class MessageStore:
    """The messages of one broker, in one directory.

    Owner of all its parts, on one thread. After the first write or sync that fails, in whatever
    thread, appends raise `StoreFailed`; stored messages can still be read.
    """

    def __init__(
        self,
        root: Path,
        config: StoreConfig,
        flush_mode: FlushMode,
        files: FailStopFileSystem,
        clock: Clock,
        lock: Lock,
        opened: OpenedFiles,
    ) -> None:
        """Use `open`."""
        self._root = root
        self._flush_mode = flush_mode
        self._files = files
        self._clock = clock
        self._lock: Lock | None = lock
        self._log = opened.log
        self._queues = opened.queues
        self._index = opened.index
        self._ahead = Preallocation(opened.log, opened.index)
        self._dispatcher = opened.dispatcher
        self._reservations = Reservations(opened.queues, opened.index)
        self.report = opened.report
        """Report of the recovery at opening."""
        self._confirm_limit: PhysicalOffset | None = None
        if opened.serve_to is not None:
            self._confirm_limit = max(opened.serve_to, opened.dispatcher.offset)
            opened.dispatcher.doubts = True
        self._is_checkpoint_late = False
        self._is_checksummed = config.record_checksum
        self.statistics = StoreStatistics()
        """Counters; the driver of the store takes the samples."""
        self.reads = StoreReads(opened, self.statistics, config, files, root, clock)
        """Reads of messages by queue."""
        self.session = opened.session
        """Notes of the directory."""
        self.feed = LogFeed(files, opened.log, opened.session, self.reads)
        self.searches = KeySearches(opened, self.reads)
        self.verification = Verification(opened, self.reads, clock)
        newest = self._dispatcher.stored_at_ms or opened.newest_stored_at_ms()
        self._dispatcher.stored_at_ms = newest
        self.last_stored_at_ms = opened.stored_at_ms or newest
        """Store time of the last record, never above a clock that was set back before the start."""
        self.commits = PoolCommits(opened.log, config, files.fail, lambda: self.failure is not None)
        """Commits of batches that wait in memory."""
        self.probes = DiskProbes(files, root, opened.log) if flush_mode is FlushMode.ASYNC else None
        """Probes of the disk under asynchronous flush; their outcome is `failure`."""
        now_ms = clock.monotonic_ms()
        self._flush = FlushManager(files, root, config, flush_mode, opened, now_ms=now_ms)
        self.missing_files = MissingFileCheck(files, root, opened, lock)
        """Checks for files that another program removed or replaced."""
        self._copy = LogCopy(opened.log, opened.session, lambda: self._flush.is_checkpointing)
        self.cleaner = Cleaner(
            files, root, config, opened, safe_end=lambda: self._flush.checkpointed, now_ms=now_ms
        )
        """Retention, and the use of the disk."""

    @classmethod
    def open(
        cls,
        root: Path,
        config: StoreConfig,
        flush_mode: FlushMode,
        files: FileSystem,
        clock: Clock,
        *,
        serve_to: PhysicalOffset | None = None,
    ) -> "MessageStore":
        """Lock a directory, load its files, and recover from the end of the last use.

        Args:
            root: Directory of the store.
            config: Settings.
            flush_mode: Rule when a message counts as stored.
            files: File system. A `FailStopFileSystem` records failures of its other users, too.
            clock: Clock of store times and intervals.
            serve_to: First `confirm_limit` of a replica, which grows by `append_replicated`. None =
                the store appends, and all its messages are served.

        Raises:
            ConfigError: The settings do not go with the flush mode.
            StoreLocked: Another process holds the directory.
            StoreError: No store, a failed disk, or too many open files; a retry is safe.
        """
        config.check_flush_mode(flush_mode)
        watched = FailStopFileSystem.over(files, root)
        fills_ahead = flush_mode is FlushMode.SYNC
        lock, opened = hold_and_open(
            root, config, watched, clock, serve_to=serve_to, fills_ahead=fills_ahead
        )
        return cls(root, config, flush_mode, watched, clock, lock, opened)

    @property
    def failure(self) -> OSError | None:
        """The I/O error that made the store read-only, if there was one."""
        return self._files.failure

    @property
    def min_physical(self) -> PhysicalOffset:
        """Start of the log: the offset of its oldest record."""
        return self._log.start

    @property
    def max_physical(self) -> PhysicalOffset:
        """End of the log."""
        return self._log.end

    @property
    def flushed_offset(self) -> PhysicalOffset:
        """Log offset below which all records survive a loss of power."""
        return self._flush.flushed

    @property
    def log_file_bytes(self) -> int:
        """Length of a file of the log."""
        return self._log.files.file_bytes

    @property
    def safe_offset(self) -> PhysicalOffset:
        """Log offset below which all records here are as safe as the flush mode demands."""
        return self._flush.flushed if self._flush_mode is FlushMode.SYNC else self._log.committed

    @property
    def confirm_offset(self) -> PhysicalOffset:
        """Log offset below which records count as stored and may be dispatched."""
        safe, limit = self.safe_offset, self._confirm_limit
        return safe if limit is None or safe < limit else limit

    @property
    def confirm_limit(self) -> PhysicalOffset | None:
        """Upper limit of the confirm offset, up to which replicas have the log. None = no limit."""
        return self._confirm_limit

    @confirm_limit.setter
    def confirm_limit(self, limit: PhysicalOffset | None) -> None:
        """Set the limit, at least to the confirm offset, up to which messages may be served."""
        self._confirm_limit = None if limit is None else max(limit, self.confirm_offset)

    @property
    def dispatched_offset(self) -> PhysicalOffset:
        """Log offset below which records can be read."""
        return self._dispatcher.offset

    @property
    def dispatch_behind_ms(self) -> int:
        """Time between the newest message that can be read and the newest stored, ms."""
        return self.last_stored_at_ms - self._dispatcher.stored_at_ms

    def keep_bit_maps(self, bit_maps: BitMaps) -> None:
        """Set the function that computes the bit maps of filters for later messages."""
        self._dispatcher.bit_maps = bit_maps

    def append(
        self,
        batch: Records,
        *,
        born_host: bytes | None,
        store_host: bytes,
        atomic: bool = False,
    ) -> AppendResult:
        """Store all records of `batch`, in its order.

        Records survive a crash of this process at once, unless they wait in a pool. They survive a
        loss of power once `flushed_offset` reaches `end`; `confirm_offset` allows the reply.

        Args:
            batch: Checked records, completed in place. `record_checksum` changes their length.
            born_host: Address bytes of the sender, of the headers' length; None = each header has
                its own.
            store_host: Address bytes of this broker.
            atomic: True = one file of the log holds all records, as RocketMQ's of a user's batch.

        Raises:
            StoreFull: No space, or too many open files; nothing of the batch is stored.
            BrokerBusy: The log's next file is being made, or too much waits; nothing is stored.
            MessageRefused: A record or an atomic batch is longer than a file; nothing is stored.
            IllegalMessage: A record has no room for its checksum; nothing is stored.
            StoreFailed: An I/O error made the store read-only; nothing is stored.
        """
        begun_at = self._clock.monotonic_ms()
        self.statistics.put_begun()
        self._check_usable()
        self.cleaner.check_space()
        batch = conform_checksums(batch, is_checksummed=self._is_checksummed)
        stored_at = store_time(self._clock.wall_ms(), self.last_stored_at_ms)
        try:
            reserved = self._reservations.reserve(batch)
            placement = self._log.allocate(batch, atomic=atomic)
            start, queue_offsets = self._log.end, reserved.queue_offsets
            self._log.write(
                batch,
                placement,
                queue_offsets=queue_offsets,
                stored_at_ms=stored_at,
                born_host=born_host,
                store_host=store_host,
            )
        except OSError as error:
            self._files.fail(error)
            raise StoreFailed(f"the store failed: {error}") from error
        self.last_stored_at_ms = stored_at
        self._reservations.commit(reserved)
        dispatcher = self._dispatcher
        dispatcher.add(reserved.request(start, placement, stored_at, dispatcher.bit_maps))
        self.statistics.put(batch, end=placement.end, begun_at_ms=begun_at)
        return AppendResult(placement.physical_offsets, queue_offsets, stored_at, placement.end)

    def append_replicated(
        self, data: bytes, at: PhysicalOffset, *, is_checksummed: bool, damage: str = ""
    ) -> None:
        """Append a slice of the master's log, byte for byte.

        Args:
            data: Bytes of a `LogSlice` of the master.
            at: Log offset of the bytes: the end of the log here.
            is_checksummed: True if every record has its checksum.
            damage: Description of the damage; empty = there is none.

        Raises:
            CorruptRecord: The bytes are no whole records at the log's end; nothing is stored.
            StoreFull: No space, or too many open files; nothing is stored.
            BrokerBusy: The log's next file is still being made; nothing is stored, try again.
            StoreFailed: An I/O error made the store read-only; nothing is stored.
        """
        self._check_usable()
        self.cleaner.check_space()
        try:
            self._copy.take(data, at, is_checksummed=is_checksummed, damage=damage)
        except OSError as error:
            self._files.fail(error)
            raise StoreFailed(f"the store failed: {error}") from error
        self.last_stored_at_ms = max(self.last_stored_at_ms, self._copy.stored_at_ms)

    def retune(self, config: StoreConfig) -> None:
        """Apply other settings to reads, flushes and retention; files keep their sizes."""
        self.reads.config = self.cleaner.config = self._flush.config = config

    def next_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Return the queue offset that the next message gets."""
        return self.reads.next_offset(topic, queue_id)

    def queues(self) -> Sequence[tuple[str, int]]:
        """Return topic and queue id of every queue, sorted."""
        return self.reads.queues()

    def queue_range(self, topic: str, queue_id: int) -> tuple[QueueOffset, QueueOffset]:
        """Return the offsets of the first readable message of a queue and behind the last one."""
        return self.reads.queue_range(topic, queue_id)

    def read(
        self, topic: str, queue_id: int, offset: QueueOffset, *, messages_max: int = 32
    ) -> ReadResult:
        """Return copies of messages of a queue from `offset` on, as `StoreReads.read` does."""
        self._check_open()
        return self.reads.read(topic, queue_id, offset, messages_max=messages_max)

    def record_at(self, offset: PhysicalOffset) -> bytes | None:
        """Return the record that begins at `offset`, below the confirm offset; None if none."""
        self._check_open()
        return self.reads.record_at(offset, self.confirm_offset)

    def dispatch(self, *, messages_max: int = 1 << 16) -> DispatchResult:
        """Make confirmed messages readable, about `messages_max` of them.

        Raises:
            OSError: There was no space for units, which happens only when the log had to be read.
                Nothing is lost; try again.
        """
        self._check_open()
        self.statistics.confirmed(self.confirm_offset, now_ms=self._clock.monotonic_ms())
        done = self._dispatcher.step(self.confirm_offset, messages_max=messages_max)
        self.reads.dispatched(done.arrivals)
        if self._dispatcher.stopped_by is not None and self.failure is None:
            if self._dispatcher.doubts:
                self._copy.pass_over(self._dispatcher)
                return done._replace(more=True)
            self._files.fail(OSError(str(self._dispatcher.stopped_by)))
        return done

    def flush_due(self, now_ms: int) -> FlushTask | None:
        """Return the flush that is due at `now_ms`, monotonic; `flush_done` must follow.

        None = no flush is due, or the store has failed.
        """
        if self.failure is not None:
            return None
        return self._flush.flush_due(now_ms, stored_at_ms=self.last_stored_at_ms)

    def flush_done(self, task: FlushTask, error: OSError | None = None) -> None:
        """Record that `task` has run: its bytes count as flushed, unless it failed."""
        if error is not None:
            self._files.fail(error)
        self._flush.flush_done(task, is_good=self.failure is None)

    def checkpoint_due(self, now_ms: int) -> CheckpointTask | None:
        """Return the checkpoint that is due at `now_ms`, monotonic; `checkpoint_done` must follow.

        None = no checkpoint is due, or the store has failed.
        """
        return self._flush.checkpoint_due(now_ms) if self.failure is None else None

    def checkpoint_done(self, task: CheckpointTask, error: OSError | None = None) -> None:
        """Record that `task` has run; it is due again if it failed."""
        is_late = error is not None and (is_exhausted(error) or is_full(error))
        if is_late and not self._is_checkpoint_late:
            logger.warning("checkpoint not moved folder=%s err=%s", self._root, error)
        elif error is not None and not is_late:
            self._files.fail(error)
        self._is_checkpoint_late = is_late
        self._flush.checkpoint_done(task, is_good=error is None)

    def file_due(self, *, is_copying: bool = False) -> FileTask | None:
        """Return the next preallocation of log or index; None = none is due, or a failure."""
        return self._ahead.due(is_copying=is_copying) if self.failure is None else None

    def file_ready(self, task: FileTask, error: OSError | None = None) -> None:
        """Add the file that `task` made to the store.

        A full disk is no failure of the store: appends fill the present file, and are then refused
        until another attempt succeeds.
        """
        try:
            self._ahead.ready(task, error)
        except OSError as failure:
            self._files.fail(failure)

    def clean(self, now_ms: int | None, *, hour: int) -> Generator[CleanTask]:
        """Yield the tasks of a retention pass; each runs in a thread before the next is requested.

        Args:
            now_ms: Wall clock, for ages; None = no file goes by its age.
            hour: Local hour of the broker, 0 to 23.
        """
        self._check_open()
        if self.failure is None:
            yield from self.cleaner.clean(now_ms, self._clock.monotonic_ms(), hour=hour)

    @property
    def deletions(self) -> Mapping[str, PhysicalOffset]:
        """Deleted topics, each with the log offset before which its records are void."""
        return self._dispatcher.dropped

    def delete_topic(self, *topics: str, at: PhysicalOffset | None = None) -> None:
        """Delete all messages of topics; their queues begin again at 0.

        Args:
            topics: Names of the topics.
            at: End of the master's log at the deletion: later records belong to topics that were
                created again. None = this log's end.

        Raises:
            IllegalName: A name is no topic's.
            StoreFull: No space, or too many open files; nothing is changed.
            BrokerBusy: Retention is removing files of a topic; try again, nothing is changed.
            StoreFailed: The disk failed.
        """
        self._check_usable()
        at = self._log.end if at is None else at
        try:
            for topic in map(check_topic, topics):
                self.cleaner.forget(topic)
            note_deletions(self._files, self._root, self._dispatcher, dict.fromkeys(topics, at))
            self._queues.delete(*topics)
            self._dispatcher.go_back(at)
            self.statistics.forget_topics(frozenset(topics))
        except OSError as error:
            self._files.fail(error)
            raise StoreFailed(f"the store failed: {error}") from error

    def close(self) -> None:
        """Sync all files and release the directory. A second call has no effect.

        No task may be under way. After a failure, or when not all is dispatched, the directory is
        left as after a crash, and the next opening recovers.
        """
        if self._lock is None:
            return
        assert self._flush.is_idle, "a task is under way"
        try:
            if self.failure is None:
                self._finish()
        except OSError as error:
            self._files.fail(error)
        finally:
            lock, self._lock = self._lock, None
            if self._index is not None:
                self._index.close()
            self._queues.close()
            self._log.close()
            lock.release()
            logger.info("store closed folder=%s clean=%s", self._root, self.failure is None)

    def _finish(self) -> None:
        self.commits.now()
        self._flush.flush_now(stored_at_ms=self.last_stored_at_ms)
        is_moving = True
        while is_moving and self.failure is None:
            before = self._dispatcher.offset
            is_moving = self.dispatch().more or self._dispatcher.offset != before
        # The limit may lie within a record, which is left.
        is_left = self._dispatcher.offset < self.confirm_offset and self._confirm_limit is None
        if is_left or self.failure is not None:
            raise OSError(f"dispatch stopped at {self._dispatcher.offset}")
        self._flush.checkpoint_now()
        self._files.remove(abort_path(self._root))
        self._files.sync_folder(self._root)

    def _check_open(self) -> None:
        if self._lock is None:
            raise ClosedError("the store is closed")

    def _check_usable(self) -> None:
        self._check_open()
        if self.failure is not None:
            raise StoreFailed(f"the store failed: {self.failure}") from self.failure
