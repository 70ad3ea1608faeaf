"""State of the store, as a scrape shows it."""

import asyncio
import errno
import math

import pytest

from ternmq_store.config import FlushMode
from ternmq_testing.memory.memory_files import MemoryFileSystem
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import SMALL_STORE, world
from tests.support.metrics_text import scraped


def test_store_shows_its_size_age_and_the_time_until_the_disk_is_full() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around, around.broker() as broker:
            client = await around.connect(broker)
            shown = await scraped(broker)
            assert shown.sum("rocketmq_storage_message_reserve_time_milliseconds") == 0
            assert shown.sum("ternmq_storage_time_to_full_seconds") == math.inf
            await client.put_topic("A", 1)
            await client.send("A", bytes(10_000), queue_id=0)
            around.files.used = 0.5
            await asyncio.sleep(100)
            status = await client.replication_status()
            shown = await scraped(broker)
            age_ms = shown.sum("rocketmq_storage_message_reserve_time_milliseconds")
            assert age_ms == pytest.approx(100_000, rel=0.01)
            free_bytes = shown.sum("ternmq_storage_free_bytes")
            assert free_bytes == pytest.approx(0.4 * (1 << 40))  # 90 % are full
            full_s = free_bytes / status.log_end * 100
            shown_s = shown.sum("ternmq_storage_time_to_full_seconds")
            assert shown_s == pytest.approx(full_s, rel=0.01)
            size = shown.sum("rocketmq_storage_size_bytes", storage_medium="disk")
            assert size % SMALL_STORE.commit_log_file_bytes == 0
            assert size > 0
            assert shown.sum("rocketmq_storage_dispatch_behind_bytes") == 0
            assert shown.all("rocketmq_storage_flush_behind_bytes")

    run_in_virtual_time(main())


def test_disk_that_does_not_tell_its_space_is_not_shown_as_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_arguments: object) -> None:
        raise OSError(errno.EIO, "no answer")

    async def main() -> None:
        monkeypatch.setattr(MemoryFileSystem, "space", fails)
        async with world(flush_mode=FlushMode.ASYNC) as around, around.broker() as broker:
            shown = await scraped(broker)
            assert shown.all("rocketmq_storage_size_bytes")
            assert not shown.all("ternmq_storage_free_bytes")
            assert not shown.all("ternmq_storage_time_to_full_seconds")

    run_in_virtual_time(main())
