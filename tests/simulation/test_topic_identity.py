"""What tells a topic from one of its name that was deleted: the same at all members, for good."""

import asyncio
import json
from dataclasses import replace

import pytest

from ternmq_broker.state.table_formats import TOPICS, parse_table
from ternmq_broker.state.topics import TopicTable
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_store.config import FlushMode
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.state_file import read_generations, replace_file
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import CONFIG, Client, world
from tests.support.simulated_cluster import CLUSTER_STORE, SimulatedCluster
from tests.support.simulated_replicas import master_and_slave, promote, replicated, status_of

TOPICS_PATH = CONFIG.data / "config" / TOPICS.name


async def told(client: Client, topic: str = "A") -> tuple[int, int]:
    """Return where the log ended when a topic was created, and the wall clock then."""
    request = admin.DescribeTopicRequest(topic=topic)
    reply: admin.DescribeTopicReply = await client.call(service_methods.DESCRIBE_TOPIC, request)
    assert reply.HasField("created_log_offset")
    return reply.created_log_offset, reply.created_at_ms


async def create_again(client: Client, messages: int, topic: str = "A") -> None:
    await client.call(service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic=topic))
    await client.put_topic(topic, 1)
    for number in range(messages):
        await client.send(topic, b"%d" % number)


async def told_by(cluster: SimulatedCluster, name: str, topic: str = "A") -> tuple[int, int]:
    return await told(await cluster.connect(name), topic)


def test_topic_created_again_is_told_apart_by_every_member_for_good() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, client):
            first = await told(client)
            await client.put_topic("A", 2)
            assert await told(client) == first
            await create_again(client, messages=40)
            again = await told(client)
            assert again > first
            assert again[1] >= first[1] > 0
            await replicated(cluster)
            cluster.lose_power("a")
            assert await told_by(cluster, "a-1") == again
            await promote(cluster, "a-1")
            assert await told_by(cluster, "a-1") == again
            await cluster.start("a")
            await replicated(cluster)
            assert await told_by(cluster, "a") == again
            client = await cluster.connect("a-1")
            await create_again(client, messages=1)
            assert await told(client) > again

    run_in_virtual_time(main())


@pytest.mark.parametrize("topic", ["ByASend", "%RETRY%G"])
def test_topics_that_sends_create_are_told_apart(topic: str) -> None:
    async def main() -> None:
        async with master_and_slave() as (_, client):
            before = await told(client)
            await client.send(topic)
            first = await told(client, topic)
            assert first > before
            await client.call(service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic=topic))
            await client.send(topic)
            assert await told(client, topic) > first

    run_in_virtual_time(main())


def test_topic_that_promoted_member_finds_in_its_log_was_not_created_again() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, client):
            await client.send("New", queue_id=0)
            known = await told(client, "New")
            cluster.kill("a")
            await promote(cluster, "a-1")
            client = await cluster.connect("a-1")
            assert (await told(client, "New"))[0] <= known[0]
            await create_again(client, messages=3, topic="New")
            assert (await told(client, "New"))[0] > known[0]

    run_in_virtual_time(main())


def rewrite_as_rocketmq_4(files: FileSystem) -> None:
    """Write the topics as a RocketMQ does that knows no attributes, and no checksums."""
    table = read_generations(files, TOPICS_PATH, parse_table)
    assert table is not None
    for settings in table["topicConfigTable"].values():
        del settings["attributes"]
    replace_file(files, TOPICS_PATH, json.dumps(table).encode(), in_both=True)


def test_topic_whose_creation_was_forgotten_is_older_until_created_again() -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("Other", 1)
                await client.put_topic("A", 1)
                await client.send("A")
                await create_again(client, messages=2)
                known = await told(client)
            rewrite_as_rocketmq_4(around.files)
            async with around.broker() as broker:
                client = await around.connect(broker)
                # The store has noted where the log ended when the topic was deleted.
                assert await told(client) == (known[0], 0)
                assert await told(client, "Other") == (0, 0)
                await create_again(client, messages=2)
                assert await told(client) > known

    run_in_virtual_time(main())


def test_attributes_keep_creations_beside_rocketmqs_own() -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await client.send("A")
                await create_again(client, messages=0)
                offset, at_ms = await told(client)
            table = read_generations(around.files, TOPICS_PATH, parse_table)
            assert table is not None
            assert table["topicConfigTable"]["A"]["attributes"] == {
                "ternmq.created.log.offset": str(offset),
                "ternmq.created.ms": str(at_ms),
            }
            reread = TopicTable.from_dict(table, now_ms=0)
            assert reread.created("A") == (offset, at_ms)

    run_in_virtual_time(main())


def test_creation_that_a_start_settles_is_kept_by_slaves() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, client):
            await client.send("A")
            await create_again(client, messages=2)
            known, _ = await told(client)
            await replicated(cluster)
            for name in ("a-1", "a"):
                await cluster.stop(name)
                rewrite_as_rocketmq_4(cluster.disks[name])
            for name in ("a", "a-1"):
                await cluster.start(name)
            await replicated(cluster)
            await asyncio.sleep(2)
            assert await told_by(cluster, "a-1") == (known, 0)
            cluster.kill("a")
            await cluster.stop("a-1")
            await cluster.start("a-1")
            assert await told_by(cluster, "a-1") == (known, 0)

    run_in_virtual_time(main())


def test_creation_in_a_tail_that_was_cut_is_not_later_at_a_promoted_slave() -> None:
    lazy = replace(CLUSTER_STORE, flush_interval_ms=60_000, flush_thorough_interval_ms=600_000)

    async def main() -> None:
        async with master_and_slave(seed=1, mode=FlushMode.ASYNC, store=lazy) as (cluster, client):
            for _ in range(50):
                await client.send("A", b"x" * 100)
            await client.put_topic("T", 1)
            await asyncio.sleep(1.5)
            await cluster.stop("a-1")
            made, end = (await told(client, "T"))[0], (await status_of(cluster, "a")).log_end
            cluster.lose_power("a")
            await cluster.start("a")
            assert (await status_of(cluster, "a")).log_end < end
            known, _ = await told_by(cluster, "a", "T")
            await cluster.start("a-1")
            client = await cluster.connect("a")
            for _ in range(100):
                await client.send("A", b"x" * 100)
            await replicated(cluster)
            await asyncio.sleep(2)
            cluster.kill("a")
            await cluster.stop("a-1")
            await cluster.start("a-1")
            await promote(cluster, "a-1", is_forced=True)
            assert (await told_by(cluster, "a-1", "T"))[0] <= known <= made

    run_in_virtual_time(main())
