"""Metrics of a whole broker: while it serves, between terms, with a failed disk, with a slave."""

import asyncio
import gc
from dataclasses import replace

import pytest

from ternmq_broker.broker import Broker
from ternmq_broker.storage.reader import StoreReader
from ternmq_model.errors import refusal
from ternmq_model.response_code import ResponseCode
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import SMALL_STORE, world
from tests.support.metrics_text import scraped
from tests.support.simulated_replicas import master_and_slave

NODE = ("DefaultCluster", "broker", "broker-a")


def reason(broker: Broker) -> str:
    """Return why a broker is not ready, as it is now."""
    return broker.unready


def test_broker_shows_its_version_alone_before_it_serves() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            broker = around.broker()
            assert broker.node == NODE
            assert (
                reason(broker)
                == "broker broker-a is not registered: it starts, or waits for a confirmation"
            )
            (one,) = (await scraped(broker)).samples
            assert (one.name, one.labels["node_id"]) == ("ternmq_build_info", "broker-a")
            async with broker:
                assert reason(broker) == ""
                assert (await scraped(broker)).all("rocketmq_topic_number")
                broker.stop_waiting()
                assert reason(broker) == "broker broker-a stops"
            assert not (await scraped(broker)).all("rocketmq_topic_number")

    run_in_virtual_time(main())


def test_metrics_without_a_disk_are_those_that_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuses(*_arguments: object, **_named: object) -> None:
        raise refusal(ResponseCode.SYSTEM_ERROR, "the disk cannot be read")

    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around, around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 1)
            await client.send("A", queue_id=0)
            monkeypatch.setattr(StoreReader, "record", refuses)
            shown = await scraped(broker)
            assert shown.sum("rocketmq_messages_in_total", topic="A") == 1
            assert not shown.all("rocketmq_storage_message_reserve_time_milliseconds")
            assert shown.all("rocketmq_timing_messages")

    run_in_virtual_time(main())


def test_slave_and_its_master_show_the_bytes_that_it_lacks() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, client):
            master, slave = (cluster.broker(name) for name in ("a", "a-1"))
            for broker, is_master in ((master, 1), (slave, 0)):
                shown = await scraped(broker)
                assert shown.sum("ternmq_broker_is_master") == is_master
                (one,) = shown.all("ternmq_replica_behind_bytes")
                assert (one.labels["replica"], one.value) == ("1", 0)
                assert shown.sum("rocketmq_broker_permission") == (6 if is_master else 4)
            # A slave that is away is behind, too.
            cluster.network.partition("a", "a-1")
            before = (await client.replication_status()).log_end
            await client.send("A", bytes(5_000), queue_id=0)
            lacking = (await client.replication_status()).log_end - before
            shown = await scraped(master)
            assert shown.sum("ternmq_replica_behind_bytes", replica="1") == lacking > 5_000
            assert not (await scraped(slave)).all("rocketmq_timing_messages")

    run_in_virtual_time(main())


def test_scrape_that_is_cut_off_leaves_no_part_unawaited() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            around.store_config = replace(SMALL_STORE, access_message_in_memory_max_ratio=0)
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await client.send("A", queue_id=0)
                around.sync_s = 1_000.0
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(30):
                        await scraped(broker)
                gc.collect()  # a coroutine that nobody awaited fails the test

    run_in_virtual_time(main())
