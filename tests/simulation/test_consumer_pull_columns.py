"""Pull consumers that poll columns in a simulated cluster, on virtual time."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ternmq_consumer.config import PullConsumerConfig
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_model.columns.column_names import COLUMNS
from ternmq_model.errors import CorruptRecord, MissingPackage, UsageError
from ternmq_model.message import Message
from ternmq_model.queue import MessageQueue
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.rows import row_of
from tests.support.simulated_cluster import NAMESERVER, simulated_cluster
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC

pytest.importorskip("pyarrow")


def consumer_at(
    cluster: ToyCluster, group: str = "", config: PullConsumerConfig | None = None
) -> PullConsumer:
    env = cluster.environment("reader")
    return PullConsumer(group, nameserver=cluster.nameserver, config=config, env=env)


async def read(consumer: PullConsumer, count: int) -> list[tuple[MessageQueue, int, str | None]]:
    """Return queue, offset and tag of `count` rows or more."""
    found: list[tuple[MessageQueue, int, str | None]] = []
    async with asyncio.timeout(120):
        while len(found) < count:
            found += places(await consumer.poll_columns())
    return found


def places(batch: Any) -> list[tuple[MessageQueue, int, str | None]]:
    names = ("topic", "brokerName", "queueId", "queueOffset", "tags")
    columns: Sequence[list[Any]] = [batch.column(name).to_pylist() for name in names]
    return [
        (MessageQueue(topic, broker, queue), offset, tag)
        for topic, broker, queue, offset, tag in zip(*columns, strict=True)
    ]


def in_cluster(test: Callable[[ToyCluster], Awaitable[None]]) -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2, queues=2) as cluster:
            await test(cluster)

    run_in_virtual_time(main())


def test_polled_columns_have_every_message_once_and_in_order() -> None:
    async def test(cluster: ToyCluster) -> None:
        count = cluster.fill(150)
        async with consumer_at(cluster) as consumer:
            consumer.assign(await consumer.queues(TOPIC))
            found = await read(consumer, count)
            for queue in cluster.queues:
                assert [at for of, at, _ in found if of == queue] == list(range(150))
                assert consumer.position(queue) == 150
            nothing = await consumer.poll_columns(timeout_s=5)
            assert nothing.num_rows == 0
            assert nothing.schema.names == list(COLUMNS)

    in_cluster(test)


def test_full_replies_are_gathered_to_longer_batches() -> None:
    async def test(cluster: ToyCluster) -> None:
        queue = cluster.queues[0]
        for _ in range(60):
            cluster.append(queue, bytes(24 << 10))
        async with consumer_at(cluster) as consumer:
            consumer.assign([queue])
            assert (await consumer.poll_columns()).num_rows == 60

    in_cluster(test)


def test_rows_equal_polled_messages_also_in_turns() -> None:
    async def test(cluster: ToyCluster) -> None:
        count = cluster.fill(60, tags=("Aa", "x"))
        async with consumer_at(cluster) as plain, consumer_at(cluster) as mixed:
            plain.assign(cluster.queues)
            mixed.assign(cluster.queues)
            rows: list[dict[str, Any]] = []
            expected: list[dict[str, Any]] = []
            async with asyncio.timeout(120):
                while len(rows) < count:
                    rows += (await mixed.poll_columns(timeout_s=0.01)).to_pylist()
                    rows += map(row_of, await mixed.poll(timeout_s=0.01, messages_max=7))
                while len(expected) < count:
                    expected += map(row_of, await plain.poll())

            def place(row: dict[str, Any]) -> tuple[object, ...]:
                return row["brokerName"], row["queueId"], row["queueOffset"]

            assert sorted(rows, key=place) == sorted(expected, key=place)

    in_cluster(test)


def test_columns_omit_unwanted_tags_with_an_equal_hash_code() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(90, tags=("Aa", "BB", "other"))
        async with consumer_at(cluster) as consumer:
            consumer.assign(cluster.queues, "Aa")
            found = await read(consumer, 120)
            assert {tag for _, _, tag in found} == {"Aa"}
            assert (await consumer.poll_columns(columns=["queueId"])).num_rows == 0
            assert {consumer.position(queue) for queue in cluster.queues} == {90}

    in_cluster(test)


def test_corrupt_records_fail_a_poll_of_columns_and_are_read_again() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(100)
        queue = cluster.queues[0]
        async with consumer_at(cluster) as consumer:
            consumer.assign([queue])
            await consumer.poll(messages_max=1)
            consumer.seek(queue, 0)
            cluster.first.corrupt_next = True
            with pytest.raises(CorruptRecord):
                await consumer.poll_columns()
            assert consumer.position(queue) == 0
            assert [at for _, at, _ in await read(consumer, 100)] == list(range(100))

    in_cluster(test)


def test_rows_that_come_just_before_the_timeout_are_returned() -> None:
    async def test(cluster: ToyCluster) -> None:
        queue = cluster.queues[0]

        def append() -> None:
            for _ in range(20):
                cluster.append(queue, bytes(24 << 10))

        async with consumer_at(cluster) as consumer:
            consumer.assign([queue])
            await consumer.poll_columns(timeout_s=0.5)
            asyncio.get_running_loop().call_later(0.9985, append)
            assert (await consumer.poll_columns(timeout_s=1)).num_rows == 20

    in_cluster(test)


def test_columns_follow_pauses_seeks_and_commits() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(100)
        queue = cluster.queues[0]
        config = PullConsumerConfig(auto_commit=True, auto_commit_s=1)
        async with consumer_at(cluster, "g", config) as consumer:
            consumer.assign([queue])
            await read(consumer, 100)
            consumer.seek(queue, 40)
            assert (await read(consumer, 60))[0][1] == 40
            consumer.pause(queue)
            consumer.seek(queue, 90)
            assert (await consumer.poll_columns(timeout_s=3)).num_rows == 0
            consumer.resume(queue)
            assert len(await read(consumer, 10)) == 10
            await consumer.poll_columns(timeout_s=0)  # the rows before are handled
        async with consumer_at(cluster, "g") as consumer:
            assert await consumer.committed(queue) == 100

    in_cluster(test)


def test_wrong_calls_and_a_missing_package_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(10)
        async with consumer_at(cluster) as consumer:
            with pytest.raises(UsageError, match="assign queues"):
                await consumer.poll_columns()
            consumer.assign(cluster.queues)
            with pytest.raises(UsageError, match="column 'bodies': does not exist"):
                await consumer.poll_columns(columns=["bodies"])
            with monkeypatch.context() as without:
                without.setitem(sys.modules, "pyarrow", None)
                with pytest.raises(MissingPackage, match=r"ternmq\[arrow\]"):
                    await consumer.poll_columns()
            assert len(await read(consumer, 40)) == 40

    in_cluster(test)


def test_polled_rows_can_be_sent_to_another_topic() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster:
            await cluster.put_topic("orders")
            await cluster.put_topic("mirror", 2)
            sent = [
                Message("orders", b"%d" % n, "t", ["k"], {"color": "red"}, f"key {n % 3}")
                for n in range(30)
            ]
            async with (
                cluster.producer() as producer,
                PullConsumer(
                    "", nameserver=NAMESERVER, env=cluster.environment("reader")
                ) as reader,
            ):
                await producer.send_many(sent)
                reader.assign(await reader.queues("orders"))
                copied = 0
                while copied < len(sent):
                    batch = await reader.poll_columns()
                    copied += len(await producer.send_columns("mirror", batch))
            found = [message for _, message in await cluster.records("mirror")]
            assert {each.body for each in found} == {each.body for each in sent}
            assert {(each.tags, *each.keys, each.properties["color"]) for each in found} == {
                ("t", "k", "red")
            }
            queues = dict[str, set[object]]()
            for queue, message in await cluster.records("mirror"):
                queues.setdefault(message.sharding_key, set()).add(queue)
            assert sorted(queues) == ["key 0", "key 1", "key 2"]
            assert all(len(each) == 1 for each in queues.values())

    run_in_virtual_time(main())
