"""Metrics of the store: its size, what is not synced or dispatched yet, and the disk."""

from typing import Final

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.metrics.disk_forecast import DiskForecast
from ternmq_broker.metrics.families import (
    DISK_VALUES,
    DISPATCH_BEHIND,
    FLUSH_BEHIND,
    FREE_BYTES,
    RESERVE_TIME,
    STORAGE_SIZE,
    TIME_TO_FULL,
)
from ternmq_model.record.format import find_header
from ternmq_runtime.metrics.port import Scrape
from ternmq_runtime.metrics.scrape import LabelValues


class StoreMetrics:
    """Size and delays of one store. Owned by the broker's loop."""

    def __init__(self, env: BrokerEnvironment) -> None:
        self._env = env
        self._forecast: Final = DiskForecast()

    async def collect(self, scrape: Scrape, node: LabelValues) -> None:
        """Add the state of the store.

        Raises:
            RefusedError: The disk cannot be read.
        """
        store, clock = self._env.store, self._env.clock
        values = (*node, *DISK_VALUES)
        size = store.reads.log_files * store.log_file_bytes
        scrape.add(STORAGE_SIZE, values, size)
        scrape.add(FLUSH_BEHIND, values, store.max_physical - store.flushed_offset)
        scrape.add(DISPATCH_BEHIND, values, store.max_physical - store.dispatched_offset)
        scrape.add(RESERVE_TIME, values, await self._oldest_ms())
        free_bytes = store.cleaner.free_bytes
        if free_bytes is None:
            return
        log_bytes, now_ms = store.max_physical - store.min_physical, clock.monotonic_ms()
        scrape.add(FREE_BYTES, node, free_bytes)
        full_s = self._forecast.seconds_to_full(log_bytes, free_bytes, now_ms=now_ms)
        scrape.add(TIME_TO_FULL, node, full_s)

    async def _oldest_ms(self) -> int:
        """Return the age of the first record of the log; 0 without one."""
        store = self._env.store
        record = await self._env.reader.record(store.min_physical, is_checked=False)
        header = None if record is None else find_header(record)
        if header is None:
            return 0
        return max(0, self._env.clock.wall_ms() - header.stored_at_ms)
