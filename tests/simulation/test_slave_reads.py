"""Consumers whose master goes away: a slave of its name stands in, until it returns."""

import asyncio
from dataclasses import replace
from typing import Any

from ternmq_consumer.config import ConsumeFrom, MessageModel, OffsetsKept, PushConsumerConfig
from ternmq_consumer.pull import PullConsumer
from ternmq_consumer.push import PushConsumer
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from tests.support.paired import NAMESERVER, TOPIC, Pair, paired
from tests.support.virtual_time import run_in_virtual_time, until

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, workers=1)
QUEUES = [MessageQueue(TOPIC, "a", queue_id) for queue_id in range(2)]


def consumer_at(
    pair: Pair, host: str, config: PushConsumerConfig = FIRST, **more: Any
) -> PushConsumer:
    more.setdefault("listener", pair.listen)
    return PushConsumer(
        "g", TOPIC, nameserver=NAMESERVER, config=config, env=pair.environment(host), **more
    )


def test_consumers_go_on_at_the_slave_commit_there_and_return() -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.send(200)
            await pair.start_slave()
            async with consumer_at(pair, "c1") as one, consumer_at(pair, "c2") as two:
                await one.assigned()
                await two.assigned()
                owned = (one.assignment(), two.assignment())
                await until(lambda: len(pair.heard) >= 80)
                await pair.stop()
                await until(pair.has_all)
                assert len(pair.heard) == 200, "nothing was in hand that was not finished"
                await asyncio.sleep(10)
                assert await pair.committed("slave") == [100, 100]
                assert (one.assignment(), two.assignment()) == owned
                await pair.start()
                await asyncio.sleep(4)
                await pair.send(100)
                await until(pair.has_all)
                assert len(pair.heard) == 300
                await asyncio.sleep(6)
                assert await pair.committed("master") == [150, 150]
                assert (one.assignment(), two.assignment()) == owned

    run_in_virtual_time(main())


def test_a_master_that_is_lost_without_a_word_is_left_within_seconds() -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.send(200)
            await pair.start_slave()
            async with consumer_at(pair, "c1") as consumer:
                await consumer.assigned()
                await until(lambda: len(pair.heard) >= 50)
                pair.network.partition("c1", "master")
                await until(pair.has_all, within_s=5)
                pair.network.heal()
                await asyncio.sleep(3)
                await pair.send(10)
                await until(pair.has_all, within_s=1)
                assert len(pair.heard) == 210

    run_in_virtual_time(main())


def test_a_member_that_dies_while_the_master_is_away_leaves_its_queues_to_others() -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.send(100)
            await pair.start_slave()
            async with consumer_at(pair, "c1") as one:
                async with consumer_at(pair, "c2") as two:
                    await until(lambda: len(one.assignment()) == len(two.assignment()) == 1)
                    await until(lambda: len(pair.heard) >= 20)
                    await pair.stop()
                    await asyncio.sleep(0.5)
                await until(lambda: one.assignment() == QUEUES)
                await until(pair.has_all)
                assert len(pair.heard) <= 101

    run_in_virtual_time(main())


def test_a_consumer_that_starts_while_the_master_is_away_begins_where_the_slave_says() -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.send(20)
            async with consumer_at(pair, "c1") as consumer:
                await until(lambda: len(pair.heard) == 20)
                await consumer.commit()
            await pair.send(20)
            await pair.start_slave()
            await pair.stop()
            async with consumer_at(pair, "c2"):
                await until(pair.has_all)
            assert len(pair.heard) == 40
            assert await pair.committed("slave") == [20, 20]

    run_in_virtual_time(main())


def test_a_slave_that_is_behind_moves_nobody_back_and_is_waited_for() -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.send(20)
            await pair.start_slave()
            pair.network.partition("master", "slave")
            await pair.send(20)
            async with consumer_at(pair, "c1"):
                await until(pair.has_all)
                await pair.stop()
                await asyncio.sleep(60)
                assert len(pair.heard) == 40
                pair.network.heal()
                await pair.start()
                await pair.send(10)
                await until(pair.has_all)
                assert len(pair.heard) == 50
                await asyncio.sleep(6)
                assert await pair.committed("master") == [25, 25]

    run_in_virtual_time(main())


def test_orderly_consumers_wait_for_the_master() -> None:
    async def main() -> None:
        async with paired() as pair:
            pair.work_s = 0.1
            await pair.send(240)
            await pair.start_slave()
            config = replace(FIRST, order_per_queue=True)
            async with consumer_at(pair, "c1", config) as consumer:
                await until(lambda: len(pair.heard) >= 10)
                await pair.stop()
                await asyncio.sleep(10)
                heard = len(pair.heard)
                assert heard < 150, "a lock is trusted for 8 s"
                await asyncio.sleep(20)
                assert len(pair.heard) == heard
                assert [each for each in consumer.assignment() if each.topic == TOPIC] == QUEUES
                assert sum(await pair.committed("slave")) >= heard - 2
                await pair.start()
                await until(pair.has_all)
                for queue in QUEUES:
                    offsets = [each.queue_offset for each in pair.heard if each.queue == queue]
                    assert offsets == list(range(120))

    run_in_virtual_time(main())


def test_what_fails_is_given_back_when_the_master_is_there_again() -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.send(10)
            await pair.start_slave()
            fails = True

            async def listen(message: Any) -> bool:
                await pair.listen(message)
                return not fails or message.body != b"7"

            async with consumer_at(pair, "c1", listener=listen):
                await pair.stop()
                await until(pair.has_all)
                await asyncio.sleep(30)
                assert (await pair.committed("slave"))[1] == 3, "7 is the fourth of its queue"
                await pair.start()
                await until(lambda: any(each.reconsume_times for each in pair.heard))
                fails = False
                await asyncio.sleep(60)
                assert await pair.committed("master") == [5, 5]

    run_in_virtual_time(main())


def test_broadcasting_offsets_that_brokers_keep_are_kept_by_the_slave() -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.send(100)
            await pair.start_slave()
            config = replace(
                FIRST,
                message_model=MessageModel.BROADCASTING,
                offsets_kept=OffsetsKept.AT_BROKERS,
            )
            async with consumer_at(pair, "c1", config):
                await until(lambda: len(pair.heard) >= 20)
                await pair.stop()
                await until(pair.has_all)
            async with consumer_at(pair, "c1", config):
                await asyncio.sleep(20)
            assert len(pair.heard) == 100

    run_in_virtual_time(main())


def test_assigned_queues_are_polled_and_committed_at_the_slave() -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.send(100)
            await pair.start_slave()
            consumer = PullConsumer("g", nameserver=NAMESERVER, env=pair.environment("c1"))
            async with consumer:
                consumer.assign(await consumer.queues(TOPIC))
                found = await consumer.poll(messages_max=30)
                await pair.stop()
                while len(found) < 100:
                    found += await consumer.poll(messages_max=30, timeout_s=5)
                assert sorted((each.body for each in found), key=int) == pair.sent
                assert await consumer.commit()
                assert await consumer.committed(QUEUES[0]) == 50
            assert await pair.committed("slave") == [50, 50]

    run_in_virtual_time(main())


def test_a_pull_consumers_share_stays_its_own_at_the_slave() -> None:
    async def main() -> None:
        async with paired() as pair:
            await pair.send(100)
            await pair.start_slave()
            changes: list[str] = []
            consumer = PullConsumer("g", nameserver=NAMESERVER, env=pair.environment("c1"))
            async with consumer:
                await consumer.subscribe(
                    TOPIC,
                    on_assigned=lambda queues: changes.extend(["+"] * len(queues)),
                    on_revoked=lambda queues: changes.extend(["-"] * len(queues)),
                )
                await consumer.assigned()
                await pair.stop()
                found: list[StoredMessage] = []
                while len(found) < 100:
                    found += await consumer.poll(messages_max=30, timeout_s=5)
                assert await consumer.commit()
                await asyncio.sleep(60)
                assert changes == ["+", "+"]
            assert await pair.committed("slave") == [50, 50]

    run_in_virtual_time(main())
