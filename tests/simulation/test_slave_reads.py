"""Consumers whose master goes away: a slave of its name stands in, until it returns."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ternmq_consumer.config import MessageModel, OffsetsKept
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.numbered import FIRST, GROUP, TOPIC, NumberedMessages, numbered
from tests.support.simulated_cluster import NAMESERVER
from tests.support.simulated_replicas import start_slave

QUEUES = [MessageQueue(TOPIC, "a", queue_id) for queue_id in range(2)]


def queues_of(consumer: PushConsumer) -> list[MessageQueue]:
    """Return the topic's queues that a consumer reads; it may have a retry queue, too."""
    return [each for each in consumer.assignment() if each.topic == TOPIC]


@asynccontextmanager
async def settled(messages: NumberedMessages) -> AsyncGenerator[PushConsumer]:
    """Run the first member of the group, which owns all queues, that of its retry topic too."""
    async with messages.consumer("c1") as consumer:
        await until(lambda: len(consumer.assignment()) == messages.queues + 1)
        yield consumer


def test_consumers_go_on_at_slave_commit_there_and_return() -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await messages.send(200)
            await start_slave(cluster)
            async with settled(messages) as one, messages.consumer("c2") as two:
                await until(lambda: len(queues_of(one)) == len(queues_of(two)) == 1)
                owned = (one.assignment(), two.assignment())
                await until(lambda: len(messages.heard) >= 80)
                await cluster.stop("a")
                await until(messages.all_heard)
                assert len(messages.heard) == 200, "nothing was in hand that was not finished"
                await asyncio.sleep(10)
                assert await messages.committed("a-1") == [100, 100]
                assert (one.assignment(), two.assignment()) == owned
                await cluster.start("a")
                await asyncio.sleep(4)
                await messages.send(100)
                await until(messages.all_heard)
                assert len(messages.heard) == 300
                await asyncio.sleep(6)
                assert await messages.committed("a") == [150, 150]
                assert (one.assignment(), two.assignment()) == owned

    run_in_virtual_time(main())


def test_consumer_leaves_unreachable_master_within_seconds() -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await messages.send(200)
            await start_slave(cluster)
            async with messages.consumer("c1") as consumer:
                await consumer.assigned()
                await until(lambda: len(messages.heard) >= 50)
                cluster.network.partition("c1", "a")
                await until(messages.all_heard, within_s=5)
                cluster.network.heal()
                await asyncio.sleep(3)
                await messages.send(10)
                await until(messages.all_heard, within_s=1)
                assert len(messages.heard) == 210

    run_in_virtual_time(main())


def test_consumer_that_stops_while_master_is_away_leaves_its_queues_to_others() -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await messages.send(100)
            await start_slave(cluster)
            async with settled(messages) as one:
                async with messages.consumer("c2") as two:
                    await until(lambda: len(queues_of(one)) == len(queues_of(two)) == 1)
                    await until(lambda: len(messages.heard) >= 20)
                    await cluster.stop("a")
                    await asyncio.sleep(0.5)
                await until(lambda: queues_of(one) == QUEUES)
                await until(messages.all_heard)
                assert len(messages.heard) <= 101

    run_in_virtual_time(main())


def test_consumer_that_starts_while_master_is_away_begins_at_offsets_of_slave() -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await messages.send(20)
            async with messages.consumer("c1") as consumer:
                await until(lambda: len(messages.heard) == 20)
                await consumer.commit()
            await messages.send(20)
            await start_slave(cluster)
            await cluster.stop("a")
            async with messages.consumer("c2"):
                await until(messages.all_heard)
            assert len(messages.heard) == 40
            assert await messages.committed("a-1") == [20, 20]

    run_in_virtual_time(main())


def test_slave_that_is_behind_moves_no_consumer_back() -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await messages.send(20)
            await start_slave(cluster)
            cluster.network.partition("a", "a-1")
            await messages.send(20)
            async with messages.consumer("c1"):
                await until(messages.all_heard)
                await cluster.stop("a")
                await asyncio.sleep(60)
                assert len(messages.heard) == 40
                cluster.network.heal()
                await cluster.start("a")
                await messages.send(10)
                await until(messages.all_heard)
                assert len(messages.heard) == 50
                await asyncio.sleep(6)
                assert await messages.committed("a") == [25, 25]

    run_in_virtual_time(main())


def test_orderly_consumers_wait_for_master() -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await messages.send(2_000)
            await start_slave(cluster)
            config = replace(FIRST, order_per_queue=True)
            async with messages.consumer("c1", config) as consumer:
                await until(lambda: len(messages.heard) >= 100)
                await cluster.stop("a")
                await asyncio.sleep(10)
                heard = len(messages.heard)
                assert heard < 1_500, "a lock is trusted for 8 s"
                await asyncio.sleep(20)
                assert len(messages.heard) == heard
                assert queues_of(consumer) == QUEUES
                assert sum(await messages.committed("a-1")) >= heard - 2
                await cluster.start("a")
                await until(messages.all_heard)
                for queue in QUEUES:
                    offsets = [each.queue_offset for each in messages.heard if each.queue == queue]
                    assert offsets == list(range(1_000))

    run_in_virtual_time(main())


def test_failed_message_is_sent_back_when_master_returns() -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await messages.send(10)
            await start_slave(cluster)
            fails = True

            async def listen(message: Any) -> bool:
                await messages.listen(message)
                return not fails or message.body != b"7"

            async with messages.consumer("c1", listener=listen):
                await cluster.stop("a")
                await until(messages.all_heard)
                await asyncio.sleep(30)
                assert (await messages.committed("a-1"))[1] == 3, "7 is the fourth of its queue"
                await cluster.start("a")
                await until(lambda: any(each.reconsume_times for each in messages.heard))
                fails = False
                await asyncio.sleep(60)
                assert await messages.committed("a") == [5, 5]

    run_in_virtual_time(main())


def test_broadcasting_offsets_kept_at_brokers_are_kept_by_slave() -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await messages.send(100)
            await start_slave(cluster)
            config = replace(
                FIRST,
                message_model=MessageModel.BROADCASTING,
                offsets_kept=OffsetsKept.AT_BROKERS,
            )
            async with messages.consumer("c1", config):
                await until(lambda: len(messages.heard) >= 20)
                await cluster.stop("a")
                await until(messages.all_heard)
            async with messages.consumer("c1", config):
                await asyncio.sleep(20)
            assert len(messages.heard) == 100

    run_in_virtual_time(main())


def test_assigned_queues_are_polled_and_committed_at_slave() -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await messages.send(100)
            await start_slave(cluster)
            consumer = PullConsumer(GROUP, nameserver=NAMESERVER, env=cluster.environment("c1"))
            async with consumer:
                consumer.assign(await consumer.queues(TOPIC))
                found = await consumer.poll(messages_max=30)
                await cluster.stop("a")
                while len(found) < 100:
                    found += await consumer.poll(messages_max=30, timeout_s=5)
                assert sorted((each.body for each in found), key=int) == messages.sent
                await until(consumer.commit, within_s=5)
                assert await consumer.committed(QUEUES[0]) == 50
            assert await messages.committed("a-1") == [50, 50]

    run_in_virtual_time(main())


def test_pull_consumer_keeps_its_share_at_slave() -> None:
    async def main() -> None:
        async with numbered() as (cluster, messages):
            await messages.send(100)
            await start_slave(cluster)
            changes: list[str] = []
            consumer = PullConsumer(GROUP, nameserver=NAMESERVER, env=cluster.environment("c1"))
            async with consumer:
                await consumer.subscribe(
                    TOPIC,
                    on_assigned=lambda queues: changes.extend(["+"] * len(queues)),
                    on_revoked=lambda queues: changes.extend(["-"] * len(queues)),
                )
                await consumer.assigned()
                await cluster.stop("a")
                found: list[StoredMessage] = []
                while len(found) < 100:
                    found += await consumer.poll(messages_max=30, timeout_s=5)
                await until(consumer.commit, within_s=5)
                await asyncio.sleep(60)
                assert changes == ["+", "+"]
            assert await messages.committed("a-1") == [50, 50]

    run_in_virtual_time(main())
