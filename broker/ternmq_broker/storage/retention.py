"""Retention of the store, driven by the broker's loop.

The store selects the files; its tasks run in the blocking pool. A separate job measures the use of
the disk every second, so that deletions do not delay it.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from typing import Final

from ternmq_broker.steady_clock import SteadyClock
from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import TopicConfig
from ternmq_remoting.environment import Blocking
from ternmq_runtime.clock import local_hour
from ternmq_runtime.service import Job
from ternmq_runtime.shielded_call import run_shielded
from ternmq_store.message_store import MessageStore
from ternmq_store.retention.clean_tasks import CleanTask
from ternmq_store.retention.retention import DiskLevel

_DISK_PAUSE_S: Final = 1.0
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


class StoreRetention:
    """Drives the retention of one store. Owned by the broker's loop.

    Args:
        store: An open store.
        clock: Clock for ages, which are ignored while it is in doubt, and for the hour of the day.
        blocking: Pool in which tasks run.
        topics: Topics of the broker, some with their own retention.
        is_slave: True when another clock gave the store times: then ages count to the newest
            record at most.
        interval_s: Pause between two passes.

    Attributes:
        cleaning: Job of the passes.
        checkpoint: Step that checkpoints the store if that is due, run before each pass: only files
            below the checkpoint are removed. None = another job alone does so.
    """

    def __init__(
        self,
        store: MessageStore,
        clock: SteadyClock,
        blocking: Blocking,
        topics: Iterable[TopicConfig],
        *,
        is_slave: bool,
        interval_s: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._blocking = blocking
        self._topics = topics
        self._is_slave = is_slave
        self._interval_s = interval_s
        self.checkpoint: Callable[[], Awaitable[bool]] | None = None
        self._passed_in_hour = 0
        """Hours since the beginning of 1970, at the last pass."""
        self._again_at_ms: int | None = None
        """Time of the next pass after one that removed a file, monotonic."""
        self._next_deletions = frozenset[int](), 0
        """Hours of deletions, and a time within the next one, Unix ms."""
        self.cleaning: Final = Job(
            name="store-clean", interval_s=interval_s, step=self.clean, due_in_s=self._due_in_s
        )
        self.passes = asyncio.Lock()
        """Held during a pass, so that no file disappears while another holder works."""

    def jobs(self) -> tuple[Job, ...]:
        """Return the jobs that measure the disk and remove expired files."""
        return (
            Job(name="store-disk", interval_s=_DISK_PAUSE_S, step=self.measure),
            self.cleaning,
        )

    async def begin(self) -> None:
        """Advance the starts of topics by their own retention, before the first read or write."""
        await self.measure()
        if (now_ms := self._now_ms()) is not None:
            await self._run(self._store.cleaner.end_topics(now_ms))

    def _now_ms(self) -> int | None:
        if self._clock.is_doubted:
            return None
        now_ms = self._clock.wall_ms()
        return min(now_ms, self._store.last_stored_at_ms) if self._is_slave else now_ms

    async def measure(self) -> bool:
        """Measure the use of the disk: one step of a job."""
        task = self._store.cleaner.disk_use()
        await self._blocking.run(task.run)
        if self._store.cleaner.note_disk_use(task):
            self.cleaning.wake()
        return False

    async def clean(self) -> bool:
        """Remove expired files in one pass: one step of a job."""
        if self.checkpoint is not None:
            await self.checkpoint()
        before, wall_ms = self._store.cleaner.removed_files, self._clock.wall_ms()
        await self._run(self._store.clean(self._now_ms(), hour=local_hour(wall_ms)))
        self._passed_in_hour = wall_ms // _HOUR_MS
        has_removed = self._store.cleaner.removed_files > before
        again_at_ms = self._clock.monotonic_ms() + int(self._interval_s * 1000)
        self._again_at_ms = again_at_ms if has_removed else None
        return has_removed and self._store.cleaner.level >= DiskLevel.FORCE

    def _due_in_s(self) -> float:
        """Return the time until a pass in an hour of deletions may find a file, s."""
        now_ms, hours = self._clock.wall_ms(), self._store.cleaner.config.delete_hours
        if local_hour(now_ms) in hours:
            if self._again_at_ms is not None:
                return (self._again_at_ms - self._clock.monotonic_ms()) / 1000
            if self._passed_in_hour != now_ms // _HOUR_MS:
                return 0.0
        known, at_ms = self._next_deletions
        if known != hours or not now_ms < at_ms <= now_ms + _DAY_MS:
            later_ms = (now_ms + hour * _HOUR_MS for hour in range(1, 25))
            at_ms = next(each_ms for each_ms in later_ms if local_hour(each_ms) in hours)
            self._next_deletions = hours, at_ms
        return (at_ms - now_ms) / 1000

    async def _run(self, tasks: Generator[CleanTask]) -> None:
        async with self.passes:
            self._store.cleaner.keep_topics(own_retention(self._topics))
            with contextlib.closing(tasks):
                for task in tasks:
                    await run_shielded(self._blocking.run, task.run, _raise_any)

    async def clean_now(self) -> int:
        """Delete expired files at any hour; return the number of deleted log files.

        Raises:
            RefusedError: The clock is in doubt, so ages are unknown.
        """
        if self._clock.is_doubted:
            remark = "the clock and the newest record differ: ages of files are not known yet"
            raise refusal(ResponseCode.SYSTEM_BUSY, remark)
        before = self._store.cleaner.removed_files
        self._store.cleaner.request()
        while self._store.cleaner.is_requested and self._store.failure is None:
            await self.clean()
        return self._store.cleaner.removed_files - before


def _raise_any(error: OSError | None) -> None:
    if error is not None:
        raise error


def own_retention(topics: Iterable[TopicConfig]) -> Mapping[str, int]:
    """Return the topics that have a retention of their own, in milliseconds."""
    return {config.topic: config.retention_ms for config in topics if config.retention_ms}
