"""What clients make of a slave that becomes the master, and of the old master that comes back."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ternmq_consumer.config import ConsumeFrom, MessageModel, PushConsumerConfig
from ternmq_consumer.push import PushConsumer
from ternmq_model.message import Message
from ternmq_producer.producer import Producer
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import contracts
from tests.support.paired import NAMESERVER, TOPIC, Pair, paired
from tests.support.virtual_time import run_in_virtual_time, until

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, workers=1)


def consumer_at(pair: Pair, host: str, *, in_order: bool = False) -> PushConsumer:
    return PushConsumer(
        "g",
        TOPIC,
        nameserver=NAMESERVER,
        config=replace(FIRST, order_per_queue=in_order),
        env=pair.environment(host),
        listener=pair.listen,
    )


async def promote(pair: Pair) -> None:
    """Make the slave the master, while that is gone; return when it serves as one."""
    client = await pair.client("slave")
    await client.call(contracts.PROMOTE, admin.PromoteRequest(is_forced=True))
    await client.connection.close()
    await asyncio.sleep(2)


async def produce(pair: Pair, producer: Producer, count: int) -> None:
    """Send by a producer."""
    for _ in range(count):
        body = b"%d" % len(pair.sent)
        await producer.send(Message(TOPIC, body))
        pair.sent.append(body)


@pytest.mark.parametrize("in_order", [False, True])
def test_producers_and_consumers_follow_a_promotion_and_the_old_master_is_no_trouble(
    in_order: bool,
) -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.start_slave()
            producer = Producer("p", nameserver=NAMESERVER, env=pair.environment("p"))
            async with producer, consumer_at(pair, "c1", in_order=in_order) as consumer:
                await produce(pair, producer, 50)
                await until(pair.has_all)
                await pair.synced()
                await consumer.commit()
                await asyncio.sleep(1.5)
                await pair.stop()
                await promote(pair)
                await produce(pair, producer, 50)
                await until(pair.has_all)
                await pair.start()
                await produce(pair, producer, 50)
                await asyncio.sleep(30)
                await produce(pair, producer, 50)
                await until(pair.has_all)
                assert len(pair.heard) == 200
                await asyncio.sleep(6)
            assert await pair.committed("slave") == [100, 100]

    run_in_virtual_time(main())


def test_who_is_further_than_the_promoted_slave_reads_everything_that_comes() -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.send(20)
            await pair.start_slave()
            pair.network.partition("master", "slave")
            await pair.send(30)
            async with consumer_at(pair, "c1") as consumer:
                await until(pair.has_all)
                await consumer.commit()
                await pair.stop()
                await asyncio.sleep(5)
                await promote(pair)
                # Sent before the reader looks, and in the places of what was lost.
                heard = len(pair.heard)
                await pair.send(40, host="slave")
                await until(pair.has_all)
                assert {each.body for each in pair.heard[heard:]} == set(pair.sent[50:])
                assert len(pair.heard) == 90
                await asyncio.sleep(6)
            assert await pair.committed("slave") == [30, 30]

    run_in_virtual_time(main())


def test_a_member_that_broadcasts_and_was_further_when_it_left_reads_everything_that_came(
    tmp_path: Path,
) -> None:
    config = replace(FIRST, message_model=MessageModel.BROADCASTING, offsets_folder=tmp_path)

    def member(pair: Pair, host: str) -> PushConsumer:
        return PushConsumer(
            "g",
            TOPIC,
            nameserver=NAMESERVER,
            config=config,
            env=pair.environment(host),
            listener=pair.listen,
        )

    async def main() -> None:
        async with paired() as pair:
            await pair.send(20)
            await pair.start_slave()
            pair.network.partition("master", "slave")
            await pair.send(30)
            async with member(pair, "c1"):
                await until(pair.has_all)
            await pair.stop()
            await promote(pair)
            heard = len(pair.heard)
            await pair.send(40, host="slave")
            async with member(pair, "c2"):
                await until(pair.has_all)
                assert {each.body for each in pair.heard[heard:]} == set(pair.sent[50:])

    run_in_virtual_time(main())
