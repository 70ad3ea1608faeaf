"""Delayed and timed messages, and transactions, as a scrape shows them."""

import asyncio
from typing import Any

import pytest

from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import world
from tests.support.metrics_text import Scraped, scraped
from tests.support.transactions import COMMIT, ROLLBACK, begin, end, open_producer

SETTINGS: dict[str, Any] = {"flush_mode": FlushMode.ASYNC}


def snapshot(shown: Scraped) -> dict[str, float]:
    """Return the counts of timed messages by their bound, without zeros."""
    found = shown.all("rocketmq_timer_message_snapshot")
    return {each.labels["timer_bound_s"]: each.value for each in found if each.value}


def test_waiting_messages_are_counted_until_their_delivery() -> None:
    async def main() -> None:
        async with world(**SETTINGS) as around, around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 1)
            for delay_s in (30, 40, 1_000, 90_000):
                properties = {"TIMER_DELAY_SEC": str(delay_s)}
                await client.send("A", queue_id=0, properties=properties)
            await client.send("A", queue_id=0, properties={"DELAY": "3"})
            await asyncio.sleep(1)
            shown = await scraped(broker)
            assert snapshot(shown) == {"60": 2, "3600": 1}
            assert shown.sum("rocketmq_timing_messages", topic="rmq_sys_wheel_timer") == 4
            assert shown.sum("rocketmq_timing_messages", topic="SCHEDULE_TOPIC_XXXX") == 1
            assert shown.sum("rocketmq_timer_dequeue_lag") == 0
            assert shown.sum("rocketmq_timer_enqueue_lag") == 0
            delays = "rocketmq_delay_message_latency_seconds"
            assert shown.sum(f"{delays}_count", topic="A") == 5
            assert shown.sum(f"{delays}_sum") == pytest.approx(91_080, abs=1)
            await asyncio.sleep(60)
            shown = await scraped(broker)
            assert snapshot(shown) == {"3600": 1}
            assert shown.sum("rocketmq_timing_messages") == 2
            assert shown.sum("rocketmq_messages_in_total", topic="A") == 3

    run_in_virtual_time(main())


def test_transactions_are_counted_by_topic_with_their_times() -> None:
    async def main() -> None:
        async with world(**SETTINGS) as around, around.broker() as broker:
            client = await around.connect(broker)
            for topic in ("flights", "hotels"):
                await client.put_topic(topic, 1)
            one, two, _ = await begin(client, b"1", b"2", b"3")
            await begin(client, b"4", topic="hotels")
            staged = await begin(
                client, *(b"s%d" % n for n in range(20)), staged_for="q/1", immunity_s=900
            )
            shown = await scraped(broker)
            assert shown.sum("rocketmq_half_messages", topic="flights") == 23
            assert shown.sum("rocketmq_half_messages", topic="hotels") == 1
            await asyncio.sleep(3)
            await end(client, one.end(COMMIT), staged[0].end(COMMIT), two.end(ROLLBACK))
            shown = await scraped(broker)
            assert shown.sum("rocketmq_half_messages", topic="flights") == 20
            assert shown.sum("rocketmq_commit_messages_total", topic="flights") == 2
            assert shown.sum("rocketmq_rollback_messages_total", topic="flights") == 1
            latency = "rocketmq_finish_message_latency_milliseconds"
            assert shown.sum(f"{latency}_sum") == pytest.approx(6_000, abs=100)
            assert shown.sum(f"{latency}_bucket", le="1000.0") == 0
            assert shown.sum(f"{latency}_bucket", le="5000.0") == 2
            request = admin.DeleteTopicRequest(topic="flights")
            await client.call(service_methods.DELETE_TOPIC, request)
            shown = await scraped(broker)
            assert not shown.all("rocketmq_commit_messages_total")
            assert shown.sum("rocketmq_half_messages", topic="flights") == 20

    run_in_virtual_time(main())


def test_open_transactions_keep_their_topics_over_a_restart() -> None:
    async def main() -> None:
        async with world(**SETTINGS) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("flights", 1)
                await begin(client, b"1", b"2")
                await begin(client, *(b"s%d" % n for n in range(20)), staged_for="q/1")
            async with around.broker() as broker:
                await asyncio.sleep(2)
                shown = await scraped(broker)
                assert shown.sum("rocketmq_half_messages", topic="flights") == 22
                assert not shown.all("rocketmq_commit_messages_total")

    run_in_virtual_time(main())


def test_questions_to_producers_are_counted_by_topic() -> None:
    async def main() -> None:
        settings = {**SETTINGS, "transaction_timeout_ms": 6_000}
        async with world(**settings) as around, around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("flights", 1)
            await open_producer(client)
            await begin(client, b"1", b"2")
            await asyncio.sleep(10)
            shown = await scraped(broker)
            assert shown.sum("ternmq_transaction_checks_total", topic="flights") == 2
            request = admin.DeleteTopicRequest(topic="flights")
            await client.call(service_methods.DELETE_TOPIC, request)
            assert not (await scraped(broker)).all("ternmq_transaction_checks_total")

    run_in_virtual_time(main())
