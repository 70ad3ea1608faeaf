"""Lags of groups in messages and in time, as a scrape shows them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ternmq_broker.broker import Broker
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_runtime.metrics.port import Scrape
from ternmq_runtime.metrics.scrape import SeriesTable
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import SMALL_STORE, Client, World, world
from tests.support.metrics_text import Scraped, scraped

LABELS = {"consumer_group": "G", "topic": "A"}


async def commit(client: Client, *offsets: int, topic: str = "A") -> None:
    """Commit offsets of queues 0, 1, …."""
    rows = [
        groups.QueueOffset(topic=topic, queue_id=number, offset=offset)
        for number, offset in enumerate(offsets)
    ]
    request = groups.CommitOffsetsRequest(group="G", client_id="a@1", offsets=rows)
    await client.call(service_methods.COMMIT_OFFSETS, request)


def counts(shown: Scraped) -> tuple[float, ...]:
    """Return lag, messages in flight and ready messages of the group."""
    names = ("lag", "inflight", "ready")
    return tuple(shown.sum(f"rocketmq_consumer_{name}_messages", **LABELS) for name in names)


def ages_s(shown: Scraped) -> Any:
    """Return the ages of the next message, the next one to get, and the oldest one in flight."""
    found = (
        shown.sum("rocketmq_consumer_lag_latency_milliseconds", **LABELS) / 1000,
        shown.sum("rocketmq_consumer_queueing_latency_milliseconds", **LABELS) / 1000,
        shown.sum("ternmq_consumer_oldest_unacknowledged_seconds", **LABELS),
    )
    return pytest.approx(found, abs=0.1)


def test_lag_counts_from_the_commit_and_ages_from_the_store_times() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around, around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 2)
            await commit(client, 0, 0)
            for _ in range(4):
                await client.send("A", queue_id=0)
                await asyncio.sleep(10)
            shown = await scraped(broker)
            assert counts(shown) == (4, 0, 4)
            assert ages_s(shown) == (40, 40, 0)
            await client.pull("A", group="G", messages_max=3)
            assert counts(await scraped(broker)) == (4, 3, 1)
            assert ages_s(await scraped(broker)) == (40, 10, 40)
            await commit(client, 2, 0)
            await asyncio.sleep(5)
            shown = await scraped(broker)
            assert counts(shown) == (2, 1, 1)
            assert ages_s(shown) == (25, 15, 25)
            queues = shown.all("ternmq_consumer_queue_lag_seconds", **LABELS)
            lags_s = {each.labels["queue_id"]: each.value for each in queues}
            assert lags_s == {"0": pytest.approx(25, abs=0.1), "1": 0}
            await client.send("A", queue_id=1)  # the worst queue is not the last one
            await client.pull("A", group="G", queue_id=1)
            assert counts(await scraped(broker)) == (3, 2, 1)
            assert ages_s(await scraped(broker)) == (25, 15, 25)
            await commit(client, 4, 1)
            shown = await scraped(broker)
            assert counts(shown) == (0, 0, 0)
            assert ages_s(shown) == (0, 0, 0)

    run_in_virtual_time(main())


def test_reset_leaves_no_message_in_flight() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around, around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 1)
            for _ in range(4):
                await client.send("A", queue_id=0)
            await client.pull("A", group="G")
            await commit(client, 4)
            request = admin.ResetOffsetsRequest(group="G", topic="A", offset=1)
            await client.call(service_methods.RESET_OFFSETS, request)
            assert counts(await scraped(broker)) == (3, 0, 3)

    run_in_virtual_time(main())


def test_known_store_times_are_not_looked_up_again() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            around.store_config = replace(SMALL_STORE, access_message_in_memory_max_ratio=0)
            async with around.broker() as broker:
                await look_twice(around, broker)

    async def look_twice(around: World, broker: Broker) -> None:
        client = await around.connect(broker)
        await client.put_topic("A", 1)
        await commit(client, 0)
        await client.send("A", queue_id=0)
        await scraped(broker)
        around.sync_s = 8.0  # a look-up takes that long: that of the oldest message
        async with asyncio.timeout(10):
            shown = await scraped(broker)
        assert counts(shown) == (1, 0, 1)

    run_in_virtual_time(main())


def test_topic_of_many_queues_is_collected_with_rests() -> None:
    class CountedScrape(Scrape):
        rests = 0

        async def rest(self) -> None:
            self.rests += 1

    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around, around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 64)
            await commit(client, *[0] * 64)
            scrape = CountedScrape(SeriesTable(1_000))
            await broker.collect(scrape)
            assert scrape.rests >= 2 * 64  # beside the look-up of a queue, and beside its series

    run_in_virtual_time(main())


def test_messages_of_a_recreated_topic_have_ages_of_their_own() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around, around.broker() as broker:
            client = await around.connect(broker)
            for age_s in (1_000, 5):
                await client.put_topic("A", 1)
                await client.send("A", queue_id=0)
                await commit(client, 0)
                await asyncio.sleep(age_s)
                assert ages_s(await scraped(broker)) == (age_s, age_s, 0)
                request = admin.DeleteTopicRequest(topic="A")
                await client.call(service_methods.DELETE_TOPIC, request)

    run_in_virtual_time(main())


def test_retry_topics_have_their_label() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around, around.broker() as broker:
            client = await around.connect(broker)
            retry = "%RETRY%G"
            await client.put_topic(retry, 1)
            await commit(client, 0, topic=retry)
            shown = await scraped(broker)
            (one,) = shown.all("rocketmq_consumer_lag_messages", topic=retry)
            assert (one.labels["is_retry"], one.labels["is_system"]) == ("true", "false")
            for name in ("queue_lag", "oldest_unacknowledged"):
                (one,) = shown.all(f"ternmq_consumer_{name}_seconds", topic=retry)
                assert one.labels["is_system"] == "false"

    run_in_virtual_time(main())
