"""What clients make of a slave that becomes the master, and of the old master that comes back."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ternmq_consumer.config import MessageModel
from ternmq_model.message import Message
from ternmq_producer.producer import Producer
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.numbered import FIRST, TOPIC, NumberedMessages, numbered
from tests.support.simulated_cluster import NAMESERVER
from tests.support.simulated_replicas import promote, replicated, start_slave


async def produce(messages: NumberedMessages, producer: Producer, count: int) -> None:
    """Send by a producer."""
    for _ in range(count):
        body = b"%d" % len(messages.sent)
        await producer.send(Message(TOPIC, body))
        messages.sent.append(body)


@pytest.mark.parametrize("in_order", [False, True])
def test_clients_follow_promotion_and_ignore_old_master(
    in_order: bool,
) -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await start_slave(cluster)
            config = replace(FIRST, order_per_queue=in_order)
            producer = Producer("p", nameserver=NAMESERVER, env=cluster.environment("p"))
            async with producer, messages.consumer(config=config) as consumer:
                await produce(messages, producer, 50)
                await until(messages.all_heard)
                await replicated(cluster)
                await consumer.commit()
                await asyncio.sleep(1.5)
                await cluster.stop("a")
                await promote(cluster, "a-1", is_forced=True)
                await asyncio.sleep(2)  # a send that is retried goes to another queue
                await produce(messages, producer, 50)
                await until(messages.all_heard)
                await cluster.start("a")
                await produce(messages, producer, 50)
                await asyncio.sleep(30)
                await produce(messages, producer, 50)
                await until(messages.all_heard)
                assert len(messages.heard) == 200
                await asyncio.sleep(6)
            assert await messages.committed("a-1") == [100, 100]

    run_in_virtual_time(main())


def test_consumer_ahead_of_promoted_slave_reads_every_new_message() -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await messages.send(20)
            await start_slave(cluster)
            cluster.network.partition("a", "a-1")
            await messages.send(30)
            async with messages.consumer("c1") as consumer:
                await until(messages.all_heard)
                await consumer.commit()
                await cluster.stop("a")
                await asyncio.sleep(5)
                await promote(cluster, "a-1", is_forced=True)
                # Sent before the reader looks, and in the places of what was lost.
                heard = len(messages.heard)
                await messages.send(40, to="a-1")
                await until(messages.all_heard)
                assert {each.body for each in messages.heard[heard:]} == set(messages.sent[50:])
                assert len(messages.heard) == 90
                await asyncio.sleep(6)
            assert await messages.committed("a-1") == [30, 30]

    run_in_virtual_time(main())


def test_broadcasting_consumer_that_left_ahead_of_promoted_slave_reads_every_new_message(
    tmp_path: Path,
) -> None:
    config = replace(FIRST, message_model=MessageModel.BROADCASTING, offsets_folder=tmp_path)

    async def main() -> None:
        async with numbered() as (cluster, messages):
            await messages.send(20)
            await start_slave(cluster)
            cluster.network.partition("a", "a-1")
            await messages.send(30)
            async with messages.consumer("c1", config):
                await until(messages.all_heard)
            await cluster.stop("a")
            await promote(cluster, "a-1", is_forced=True)
            heard = len(messages.heard)
            await messages.send(40, to="a-1")
            async with messages.consumer("c2", config):
                await until(messages.all_heard)
                assert {each.body for each in messages.heard[heard:]} == set(messages.sent[50:])

    run_in_virtual_time(main())
