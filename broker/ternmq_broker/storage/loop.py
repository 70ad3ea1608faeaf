"""Jobs of the store on the broker's loop: syncs, dispatch, files made ahead.

The store decides which tasks are due. Tasks are plain values that run in the blocking pool; the
store receives their outcome on the loop.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ternmq_broker.storage.confirmations import Confirmations
from ternmq_model.clock import Clock
from ternmq_model.offsets import PhysicalOffset
from ternmq_remoting.environment import Blocking
from ternmq_runtime.service import Job
from ternmq_runtime.shielded_call import run_shielded
from ternmq_store.dispatch.log_dispatcher import Arrival
from ternmq_store.log.file_allocation import FillTask
from ternmq_store.log.transient_pool import BusyReason
from ternmq_store.message_store import MessageStore

logger = logging.getLogger(__name__)

_FLUSH_PAUSE_S: Final = 0.5
_CHECKPOINT_PAUSE_S: Final = 1.0
_FILES_PAUSE_S: Final = 1.0
_STATISTICS_PAUSE_S: Final = 1.0
_SPACE_PAUSE_S: Final = 1.0
_PRESENCE_PAUSE_S: Final = 0.5
"""Missing files are noticed within a second, even under load."""
_PROBE_PAUSE_S: Final = 0.05
"""Pause between two probes of the disk while messages come in under an asynchronous flush. A probe
every 50 ms changed neither the messages per second nor the times of 64 senders measurably."""

_FILES_EVERY_SHIFT: Final = 24
"""The job of files is also woken every 16 MiB of the log."""

_EVER_MS: Final = 1 << 62
_DISPATCH_MESSAGES_MAX: Final = 8192
_COPY_MESSAGES_MAX: Final = 1024
"""Limit for a copied log, in which each record must be parsed, which takes about 5 µs."""

_REST_FACTOR: Final = 7
"""Pause after a dispatch of a copied log, in times of its duration."""


class StoreLoop:
    """Drives one store. Owned by the broker's loop.

    Args:
        store: An open store.
        confirmations: Waiters for the confirm offset.
        clock: Monotonic clock of the jobs.
        blocking: Pool in which tasks run.
        on_arrivals: Called with the queues that have new messages.
        on_moved: Called when the log or its safe part may have grown, before the confirm offset is
            read; None = not called.
        on_short: Called when the disk has become short of space for the next file of the log.

    Attributes:
        on_safe: Called when the safe part of the log has grown, confirmed or not.
        is_copying: Returns whether this slave is far behind the log of its master. Then dispatch
            pauses and files are not filled ahead. None on a master.
    """

    def __init__(
        self,
        store: MessageStore,
        confirmations: Confirmations,
        clock: Clock,
        blocking: Blocking,
        *,
        on_arrivals: Callable[[Sequence[Arrival]], None],
        on_moved: Callable[[], None] | None = None,
        on_short: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._confirmations = confirmations
        self._clock = clock
        self._blocking = blocking
        self._on_arrivals = on_arrivals
        self.on_safe: Callable[[], None] = lambda: None
        self.is_copying: Callable[[], bool] | None = None
        self._safe = PhysicalOffset(-1)
        self._on_moved = on_moved
        self._on_short = on_short
        self._confirmed = PhysicalOffset(-1)
        self._file_made = asyncio.Event()
        self._committed = asyncio.Event()
        self._is_waiting = False
        self._is_probed = False
        """A probe runs, or has ended so short a time ago that the next one has to wait."""
        self._flushing = Job(name="store-flush", interval_s=_FLUSH_PAUSE_S, step=self.flush)
        self._probing = Job(name="store-probe", interval_s=math.inf, step=self.probe)
        self._committing = Job(name="store-commit", interval_s=math.inf, step=self.commit)
        self._dispatching = Job(name="store-dispatch", interval_s=math.inf, step=self.dispatch)
        self._making = Job(name="store-files", interval_s=_FILES_PAUSE_S, step=self.make_files)
        self._note_confirmed()

    def jobs(self) -> tuple[Job, ...]:
        """Return the jobs of the store."""
        return (
            self._flushing,
            self._probing,
            self._committing,
            self._dispatching,
            Job(name="store-checkpoint", interval_s=_CHECKPOINT_PAUSE_S, step=self.checkpoint),
            self._making,
            Job(name="store-presence", interval_s=_PRESENCE_PAUSE_S, step=self.check_files),
            Job(name="store-statistics", interval_s=_STATISTICS_PAUSE_S, step=self.sample),
        )

    def appended(self) -> None:
        """Confirm a safe append, or wake the job that makes the append safe."""
        store = self._store
        self._note_confirmed()
        if store.safe_offset < store.max_physical:
            is_pooled = store.commits.offset < store.max_physical
            (self._committing if is_pooled else self._flushing).wake()
        self._wake_probing()

    def _note_confirmed(self) -> None:
        if self._on_moved is not None:
            self._on_moved()
        safe = self._store.safe_offset
        if safe != self._safe:
            if safe >> _FILES_EVERY_SHIFT != self._safe >> _FILES_EVERY_SHIFT:
                self._making.wake()
            self._safe = safe
            self.on_safe()
        self.confirmed()

    def confirmed(self) -> None:
        """Release waiters for the confirm offset if it has moved."""
        confirmed = self._store.confirm_offset
        if confirmed != self._confirmed:
            self._confirmed = confirmed
            self._confirmations.advance(confirmed)
            self._dispatching.wake()
        self._confirmations.check_store()

    async def flush(self) -> bool:
        """Sync the log if a sync is due: one step of a job. All waiters share one sync."""
        task = self._store.flush_due(self._clock.monotonic_ms())
        if task is None:
            return False
        await self._run(task.run, partial(self._store.flush_done, task))
        self._note_confirmed()
        return True

    async def probe(self) -> bool:
        """Write a probe to the disk while senders do not wait for it: one step of a job.

        Appends wake the job.
        """
        probes = self._store.probes
        task = None if probes is None or self._store.failure is not None else probes.take()
        if task is not None:
            self._is_probed = True
            await self._run(task.run, lambda _: None)  # the store records its failure
            self._confirmations.check_store()
            # A pause of the step would be one of each clean leave, which waits for its end.
            asyncio.get_running_loop().call_later(_PROBE_PAUSE_S, self._probe_again)
        return False

    def _probe_again(self) -> None:
        self._is_probed = False
        self._wake_probing()

    def _wake_probing(self) -> None:
        if not self._is_probed and self._store.probes is not None and self._store.probes.is_due:
            self._probing.wake()

    async def flush_to(self, end: PhysicalOffset) -> None:
        """Sync until all bytes below `end` are on the disk, or the disk fails.

        Called after the jobs of the store have ended.
        """
        while self._store.flushed_offset < end and self._store.failure is None:
            await self.commit()
            task = self._store.flush_due(_EVER_MS)
            if task is None:
                return
            await self._run(task.run, partial(self._store.flush_done, task))

    async def commit(self) -> bool:
        """Write pooled records to the log: one step of a job. Later records wait for the next.

        Source: RocketMQ `CommitRealTimeService`.
        """
        task = self._store.commits.due()
        if task is None:
            return False
        await self._run(task.run, partial(self._store.commits.done, task))
        self._note_confirmed()
        self._committed.set()
        self._committed = asyncio.Event()
        return True

    async def checkpoint(self) -> bool:
        """Sync consume queues and checkpoint when they are due: one step of a job."""
        task = self._store.checkpoint_due(self._clock.monotonic_ms())
        if task is not None:
            await self._run(task.run, partial(self._store.checkpoint_done, task))
            self._note_confirmed()
        return False

    async def dispatch(self) -> bool:
        """Make messages readable: one bounded step of a job."""
        begun_ms = self._clock.monotonic_ms()
        count = _DISPATCH_MESSAGES_MAX if self.is_copying is None else _COPY_MESSAGES_MAX
        try:
            done = self._store.dispatch(messages_max=count)
        except OSError as error:
            self._confirmations.check_store()
            if self._store.failure is None and not self._is_waiting:
                self._is_waiting = True
                logger.error("dispatch waits for space on the disk err=%s", error)
            await asyncio.sleep(_SPACE_PAUSE_S)
            return True
        if self._is_waiting:
            self._is_waiting = False
            logger.info("dispatch resumes")
        if done.arrivals:
            self._on_arrivals(done.arrivals)
        if self._is_copying():
            await asyncio.sleep(_REST_FACTOR * (self._clock.monotonic_ms() - begun_ms) / 1000)
        return done.more

    def _is_copying(self) -> bool:
        return self.is_copying is not None and self.is_copying()

    async def make_files(self) -> bool:
        """Create the next file of the log, or fill the present one ahead of its writer.

        One step of a job. A file is filled to its end, in several steps.
        """
        task = self._store.file_due(is_copying=self._is_copying())
        if task is not None:
            await self._run(task.run, partial(self._store.file_ready, task))
            if self._store.cleaner.is_short:
                self._on_short()
            self._note_confirmed()
            self._file_made.set()
            self._file_made = asyncio.Event()
        return isinstance(task, FillTask)

    async def space_made(self) -> bool:
        """Wait for the space that a refused append lacked; return whether to try again."""
        match self._store.commits.busy_reason:
            case BusyReason.FILE:
                self._making.wake()
                await self._file_made.wait()
            case BusyReason.COMMIT:
                self._committing.wake()
                await self._committed.wait()
            case BusyReason.NOTHING:
                return False
        return True

    async def check_files(self) -> bool:
        """Check that the files of the store are still in their folders: one step of a job."""
        if self._store.failure is None:
            task = self._store.missing_files.check_due()
            await self._run(task.run, lambda _: self._store.missing_files.done(task))
            self._confirmations.check_store()
        return False

    async def sample(self) -> bool:
        """Sample the counters of the store: one step of a job."""
        self._store.statistics.step(self._clock.monotonic_ms())
        return False

    async def _run(self, task: Callable[[], None], done: Callable[[OSError | None], None]) -> None:
        """Run a task off the loop and report its outcome to the store.

        The task is never abandoned: the store could be closed while a thread still writes.
        """
        await run_shielded(self._blocking.run, task, done)
