"""Counts of messages in and out, as a scrape shows them."""

import asyncio
from typing import Any

import pytest

from ternmq_broker.metrics.traffic import flag, is_system, message_type
from ternmq_model.names import HALF_TOPIC, SCHEDULE_TOPIC
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import world
from tests.support.metrics_text import scraped


@pytest.mark.parametrize(
    ("topic", "attribute", "label"),
    [
        ("A", "", "normal"),
        ("A", "FIFO", "fifo"),
        (SCHEDULE_TOPIC, "", "delay"),
        (HALF_TOPIC, "", "transaction"),
    ],
)
def test_message_type_is_that_of_the_topic(topic: str, attribute: str, label: str) -> None:
    assert message_type(topic, attribute) == label


def test_labels_of_truth_values_are_lower_case() -> None:
    assert (flag(True), flag(False)) == ("true", "false")
    assert is_system("G", "A") == "false"
    assert is_system("G", HALF_TOPIC) == is_system("CID_RMQ_SYS_TRANS", "A") == "true"


def test_traffic_is_counted_by_topic_and_group_until_its_topic_is_deleted() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around, around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 2)
            sender = await client.open_sender()
            bodies = [bytes(length) for length in (10, 2_000, 5_000, 10)]
            records = [sender.record("A", body, queue_id=n % 2) for n, body in enumerate(bodies)]
            await sender.send(*records)
            labels: dict[str, Any] = {"topic": "A"}
            for group, count in (("G", 2), ("H", 1)):
                await client.pull("A", group=group, messages_max=count)
            shown = await scraped(broker)
            assert shown.sum("rocketmq_messages_in_total", **labels) == 4
            # The stored form has no checksum here: records are as long as they were sent.
            length = shown.sum("rocketmq_throughput_in_total", **labels)
            assert length == shown.sum("rocketmq_message_size_sum", **labels)
            ranges = [
                shown.sum("rocketmq_message_size_bucket", le=border, **labels)
                for border in ("1024.0", "4096.0", "524288.0", "+Inf")
            ]
            assert ranges == [2, 3, 4, 4]
            out = {
                each.labels["consumer_group"]: each.value
                for each in shown.all("rocketmq_messages_out_total", **labels)
            }
            assert out == {"G": 2, "H": 1}
            assert shown.sum("ternmq_unanswered_sends_bytes") == 0
            await client.call(service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic="A"))
            shown = await scraped(broker)
            assert not [each for each in shown.samples if each.labels.get("topic") == "A"]

    run_in_virtual_time(main())


def test_message_without_room_in_a_reply_counts_once() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around, around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 3)
            sender, puller = await client.open_sender(), await client.open_puller("G")
            for queue_id in range(3):
                await sender.send(sender.record("A", bytes(600_000), queue_id=queue_id))
                await puller.subscribe(queue_id, "A", queue_id=queue_id, credit_messages=0)
            await asyncio.sleep(1)
            for queue_id in range(3):
                await puller.credit(queue_id, count=1)
            got = 0
            while got < 3:
                got += sum(bool(pulled.records) for pulled in await puller.read())
            shown = await scraped(broker)
            assert shown.sum("rocketmq_messages_out_total", topic="A") == 3

    run_in_virtual_time(main())
