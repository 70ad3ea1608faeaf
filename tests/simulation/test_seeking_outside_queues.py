"""Offsets outside a queue: seeks, resets and forced commits go to its nearest end."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.config import ClientConfig
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import TransportError, UsageError
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

QUEUE = MessageQueue("orders", "a", 0)
COUNT = 50
ABSURD = [COUNT + 1, 1000, (1 << 63) - 1, 1 << 63, 1 << 200]


async def filled(cluster: SimulatedCluster, count: int = COUNT) -> None:
    await cluster.put_topic("orders", 1)
    await more(cluster, count)


async def more(cluster: SimulatedCluster, count: int = 1) -> None:
    async with cluster.producer(f"producer-{cluster.random.random()}") as producer:
        for _ in range(count):
            await cluster.send(producer, "orders")


async def committed(cluster: SimulatedCluster, group: str = "g") -> int:
    config = ClientConfig(nameservers=(NAMESERVER,))
    async with AdminClient(client=config, env=cluster.environment("tool")) as admin:
        progress = (await admin.describe_group(group)).progress
    return next(each.committed_offset for each in progress if each.queue == QUEUE)


@pytest.mark.parametrize("offset", ABSURD)
def test_push_consumer_seeks_beyond_the_end_to_the_end(offset: int) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await filled(cluster)
            seen: list[int] = []

            async def listen(message: StoredMessage) -> None:
                seen.append(message.queue_offset)

            consumer = PushConsumer(
                "g",
                "orders",
                listener=listen,
                nameserver=NAMESERVER,
                config=PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET),
                env=cluster.environment("c"),
            )
            async with consumer:
                await until(lambda: len(seen) == COUNT)
                assert await consumer.seek(QUEUE, offset)
                assert await committed(cluster) == COUNT
                await asyncio.sleep(20)
                await more(cluster)
                await until(lambda: seen[COUNT:] == [COUNT])
            assert await committed(cluster) == COUNT + 1
            assert seen == [*range(COUNT + 1)]

    run_in_virtual_time(main())


@pytest.mark.parametrize("group", ["", "g"])
@pytest.mark.parametrize("polls_before", [0, 1])
@pytest.mark.parametrize("offset", ABSURD)
def test_pull_consumer_seeks_beyond_the_end_to_the_end(
    offset: int, polls_before: int, group: str
) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await filled(cluster)
            env = cluster.environment("c")
            async with PullConsumer(group, nameserver=NAMESERVER, env=env) as consumer:
                consumer.assign([QUEUE])
                for _ in range(polls_before):
                    assert await consumer.poll(messages_max=10)
                    if group:
                        assert await consumer.commit()
                consumer.seek(QUEUE, offset)
                assert await consumer.poll() == []
                assert consumer.position(QUEUE) == COUNT
                if group:
                    assert await consumer.commit()
                    assert await committed(cluster) == COUNT
                await more(cluster)
                assert [each.queue_offset for each in await consumer.poll()] == [COUNT]

    run_in_virtual_time(main())


def test_seeks_of_an_empty_queue_stay_at_its_one_end() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await filled(cluster, 0)
            env = cluster.environment("c")
            async with PullConsumer("g", nameserver=NAMESERVER, env=env) as consumer:
                consumer.assign([QUEUE])
                consumer.seek(QUEUE, 7)
                assert await consumer.poll() == []
                assert await consumer.commit()
                assert await committed(cluster) == 0
                await more(cluster)
                assert len(await consumer.poll()) == 1

    run_in_virtual_time(main())


@pytest.mark.parametrize("offset", ABSURD)
def test_reset_beyond_the_end_goes_to_the_end(offset: int) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await filled(cluster)
            config = ClientConfig(nameservers=(NAMESERVER,))
            async with AdminClient(client=config, env=cluster.environment("tool")) as admin:
                async with PullConsumer(
                    "g", nameserver=NAMESERVER, env=cluster.environment("c")
                ) as consumer:
                    consumer.assign([QUEUE])
                    await consumer.poll()
                done = await admin.reset_offsets("g", "orders", offset=offset)
                assert [each.after for each in done.changes] == [COUNT]
                for negative in (-1, -(1 << 64)):
                    with pytest.raises(UsageError, match="negative"):
                        await admin.reset_offsets("g", "orders", offset=negative)

    run_in_virtual_time(main())


def test_seeks_need_no_await_and_the_later_one_counts() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await filled(cluster)
            env = cluster.environment("c")
            async with PullConsumer(nameserver=NAMESERVER, env=env) as consumer:
                consumer.assign([QUEUE])
                consumer.seek_to_end()
                assert await consumer.poll() == []
                consumer.seek_to_begin()
                assert len(await consumer.poll()) == COUNT
                consumer.seek_to_begin()
                consumer.seek(QUEUE, 40)
                assert [each.queue_offset for each in await consumer.poll()] == [*range(40, 50)]
                consumer.seek(QUEUE, 40)
                consumer.seek_to_time(253_402_300_799_999)  # the last of the year 9999
                assert await consumer.poll() == []
                await consumer.seek(QUEUE, 49)
                await consumer.seek_to_begin(QUEUE)
                assert consumer.position(QUEUE) == 0

    run_in_virtual_time(main())


def test_seek_that_fails_and_is_not_awaited_comes_out_of_the_next_poll() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await filled(cluster)
            env = cluster.environment("c")
            async with PullConsumer(nameserver=NAMESERVER, env=env) as consumer:
                consumer.assign([QUEUE])
                assert len(await consumer.poll()) == COUNT
                cluster.kill("a")
                with pytest.raises(TransportError):
                    await consumer.seek_to_begin()
                assert await consumer.poll(timeout_s=0) == []
                consumer.seek_to_begin()
                with pytest.raises(TransportError):
                    await consumer.poll()
                await cluster.start("a")
                await until(lambda: bool(cluster.running))
                consumer.seek_to_begin()
                assert len(await consumer.poll()) == COUNT

    run_in_virtual_time(main())


@pytest.mark.parametrize(("verb", "got"), [("seek_to_end", []), ("seek_to_begin", [*range(20)])])
def test_seek_in_on_assigned_that_is_not_awaited_comes_before_any_message(
    verb: str, got: list[int]
) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await filled(cluster, 20)
            env = cluster.environment("before")
            async with PullConsumer("g", nameserver=NAMESERVER, env=env) as consumer:
                consumer.assign([QUEUE])
                consumer.seek(QUEUE, 10)
                await consumer.poll(timeout_s=0)
                assert await consumer.commit()
            env = cluster.environment("c")
            async with PullConsumer("g", nameserver=NAMESERVER, env=env) as consumer:

                def seek(queues: list[MessageQueue]) -> None:
                    getattr(consumer, verb)(*queues)

                await consumer.subscribe("orders", on_assigned=seek)
                found = [*await consumer.poll(), *await consumer.poll()]
                assert [each.queue_offset for each in found] == got

    run_in_virtual_time(main())


def test_poll_that_waits_gives_out_nothing_of_before_a_seek_that_begins_meanwhile() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await filled(cluster)
            env = cluster.environment("c")
            async with PullConsumer(nameserver=NAMESERVER, env=env) as consumer:
                consumer.assign([QUEUE])
                consumer.pause(QUEUE)
                assert await consumer.poll() == []
                polling = asyncio.create_task(consumer.poll(timeout_s=5))
                await asyncio.sleep(1)
                consumer.seek_to_end()
                consumer.resume(QUEUE)
                assert await polling == []
                assert consumer.position(QUEUE) == COUNT

    run_in_virtual_time(main())


def test_later_seek_of_a_push_consumer_counts_though_the_earlier_one_has_queues_left() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.put_topic("orders", 8)
            await more(cluster, 160)
            seen: list[tuple[int, int]] = []

            async def listen(message: StoredMessage) -> None:
                seen.append((message.queue.queue_id, message.queue_offset))

            consumer = PushConsumer(
                "g",
                "orders",
                listener=listen,
                nameserver=NAMESERVER,
                config=PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET),
                env=cluster.environment("c"),
            )
            async with consumer:
                await until(lambda: len(seen) == 160)
                for wait_ms in range(0, 40, 2):
                    await asyncio.sleep(5)
                    seen.clear()
                    first = consumer.seek_to_begin()
                    await asyncio.sleep(wait_ms / 1000)
                    assert await consumer.seek(QUEUE._replace(queue_id=7), 20)
                    before = [offset for number, offset in seen if number == 7]
                    assert await first
                    await until(lambda: len(seen) >= 140)
                    await asyncio.sleep(5)
                    assert [offset for number, offset in seen if number == 7] == before
                    assert await consumer.seek_to_end()

    run_in_virtual_time(main())


def test_seek_is_taken_wherever_a_coroutine_is() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await filled(cluster)
            env = cluster.environment("c")
            async with PullConsumer(nameserver=NAMESERVER, env=env) as consumer:
                consumer.assign([QUEUE])
                await asyncio.create_task(consumer.seek(QUEUE, 7))
                assert consumer.position(QUEUE) == 7
                await asyncio.create_task(consumer.seek_to_end())
                assert consumer.position(QUEUE) == COUNT
                await asyncio.wait_for(consumer.seek_to_begin(), 5)
                assert consumer.position(QUEUE) == 0
                task = asyncio.create_task(consumer.seek_to_end())
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                cluster.kill("a")
                failing = asyncio.create_task(consumer.seek_to_end())
                with pytest.raises(TransportError):
                    await failing

    run_in_virtual_time(main())


def test_seek_outside_the_event_loop_is_refused_at_once() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await filled(cluster)
            env = cluster.environment("c")
            async with PullConsumer(nameserver=NAMESERVER, env=env) as consumer:
                consumer.assign([QUEUE])
                assert len(await consumer.poll()) == COUNT
                with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="event loop"):
                    pool.submit(consumer.seek, QUEUE, 0).result()
                assert consumer.position(QUEUE) == COUNT, "nothing was sought"

    run_in_virtual_time(main())
