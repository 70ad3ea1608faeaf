"""Many topics created and deleted, by lists and by callers at once, on virtual time."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from ternmq_broker.state.table_formats import parse_table
from ternmq_model.errors import InvalidParameter, RefusedError, StoreFull
from ternmq_model.message import SendResult
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_remoting import service_methods
from ternmq_store.disk.state_file import read_generations
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import MemoryFileSystem, PowerLossFileSystem
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import CONFIG, Client, World, serving, world
from tests.support.simulated_cluster import simulated_cluster

TOPICS = CONFIG.data / "config" / "topics.json"


def config(topic: str, queues: int = 1) -> common.TopicConfig:
    return common.TopicConfig(topic=topic, read_queues=queues, write_queues=queues, permissions=6)


async def put_topics(client: Client, *topics: common.TopicConfig) -> admin.PutTopicsReply:
    reply: admin.PutTopicsReply = await client.call(
        service_methods.PUT_TOPICS, admin.PutTopicsRequest(topics=topics)
    )
    return reply


def delete(client: Client, topic: str) -> asyncio.Task[admin.DeleteTopicReply]:
    request = admin.DeleteTopicRequest(topic=topic)
    return asyncio.ensure_future(client.call(service_methods.DELETE_TOPIC, request))


def topics_on(files: MemoryFileSystem) -> set[str]:
    """Return the topics that a start would find."""
    return set((read_generations(files, TOPICS, parse_table) or {})["topicConfigTable"])


async def seconds_of_creating(around: World, client: Client, count: int) -> float:
    """Create topics at once; return how long that takes when each call to the disk takes 1 s."""
    around.sync_s = 1.0
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await asyncio.gather(*(client.put_topic(f"topic-{number}") for number in range(count)))
    return loop.time() - began_s


def test_topics_of_a_list_are_created_or_refused_each_alone() -> None:
    async def main() -> None:
        async with serving(topics={"known": 1}) as (around, client):
            reply = await put_topics(
                client, config("new"), config("no good"), config("known", 2), config("TBW102")
            )
            assert [(each.created, each.status.code) for each in reply.results] == [
                (True, 0),
                (False, Code.INVALID_PARAMETER),
                (False, 0),
                (False, Code.NO_PERMISSION),
            ]
            assert "'no good'" in reply.results[1].status.remark
            assert topics_on(around.files) >= {"new", "known"}
            again = await put_topics(client, config("new"))
            assert [(each.created, each.status.code) for each in again.results] == [(False, 0)]

    run_in_virtual_time(main())


def test_list_of_topics_is_one_write() -> None:
    async def main() -> None:
        async with serving() as (around, client):
            around.sync_s = 1.0
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            await put_topics(client, *(config(f"topic-{number}") for number in range(1024)))
            assert loop.time() - began_s < 2.5
            assert len(topics_on(around.files)) > 1024

    run_in_virtual_time(main())


def test_overlong_list_creates_no_topic() -> None:
    async def main() -> None:
        async with serving() as (around, client):
            with pytest.raises(InvalidParameter, match="1025 topics; must be at most 1024"):
                await put_topics(client, *(config(f"topic-{number}") for number in range(1025)))
            assert not any(name.startswith("topic-") for name in topics_on(around.files))

    run_in_virtual_time(main())


def test_concurrent_creations_share_writes() -> None:
    async def main() -> None:
        async with serving() as (around, client):
            assert await seconds_of_creating(around, client, 64) < 4.5

    run_in_virtual_time(main())


def test_first_sends_to_many_topics_share_writes() -> None:
    async def main() -> None:
        async with serving() as (around, client):
            around.sync_s = 1.0
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            await asyncio.gather(*(client.send(f"topic-{number}") for number in range(64)))
            assert loop.time() - began_s < 6.5
            assert len(topics_on(around.files)) > 64

    run_in_virtual_time(main())


def test_creations_that_a_disk_refuses_are_told_as_not_saved() -> None:
    async def main() -> None:
        async with serving() as (around, client):
            around.files.sync_error = OSError("broken disk")
            with pytest.raises(RefusedError, match="broken disk") as caught:
                await put_topics(client, config("new"), config("newer"))
            assert caught.value.may_have_happened
            around.files.sync_error = None
            reply = await put_topics(client, config("new"))
            assert [each.status.code for each in reply.results] == [0]
            assert topics_on(around.files) >= {"new", "newer"}

    run_in_virtual_time(main())


def test_answered_creations_survive_power_loss_at_any_moment() -> None:
    async def main() -> None:
        files = PowerLossFileSystem()
        chance = random.Random(5)
        async with world() as around:
            around.files, around.config = files, replace(around.config, auto_create_topics=True)
            async with around.broker() as broker:
                client = await around.connect(broker)
                around.sync_s = 0.01
                answered: set[str] = set()

                async def create(worker: int) -> None:
                    for number in range(8):
                        topic = f"topic-{worker}-{number}"
                        if worker % 2:
                            await client.put_topic(topic)
                        else:
                            await put_topics(client, config(topic), config(topic + "x"))
                        answered.add(topic)

                creating = asyncio.gather(*map(create, range(16)))
                while not creating.done():
                    await asyncio.sleep(chance.random() * 0.02)
                    expected = set(answered)
                    assert topics_on(files.lose_power(chance)) >= expected
                await creating
                assert len(answered) == 128

    run_in_virtual_time(main())


@pytest.mark.parametrize(("count", "syncs_max"), [(1, 16), (33, 16), (100, 32)])
def test_concurrent_deletions_share_writes(count: int, syncs_max: int) -> None:
    async def main() -> None:
        async with serving() as (around, client):
            await put_topics(client, *(config(f"topic-{number}") for number in range(count)))
            before = around.files.syncs
            await asyncio.gather(*(delete(client, f"topic-{number}") for number in range(count)))
            assert around.files.syncs - before < syncs_max
            assert not any(name.startswith("topic-") for name in topics_on(around.files))

    run_in_virtual_time(main())


def test_deletions_that_wait_together_hold_the_loop_for_32_topics_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delete_topic, groups = MessageStore.delete_topic, list[int]()

    def count(store: MessageStore, *topics: str) -> None:
        groups.append(len(topics))
        delete_topic(store, *topics)

    monkeypatch.setattr(MessageStore, "delete_topic", count)

    async def main() -> None:
        async with serving() as (around, client):
            names = [f"topic-{number}" for number in range(100)]
            await put_topics(client, *map(config, names))
            await asyncio.gather(*(delete(client, name) for name in names))
            assert not set(names) & topics_on(around.files)

    run_in_virtual_time(main())
    assert max(groups) == 32
    assert sum(groups) == 100


async def queue_deletions(around: World, client: Client) -> list[asyncio.Task[Any]]:
    """Let two callers wait to delete topic A while topic X is deleted; return all three."""
    around.sync_s = 1.0
    first = delete(client, "X")
    await asyncio.sleep(0.1)
    return [first, delete(client, "A"), delete(client, "A")]


def test_deletion_outlasts_cancellation_of_another_of_its_topic() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1, "X": 1}) as (around, client):
            _, cancelled, waiting = await queue_deletions(around, client)
            await asyncio.sleep(0.1)
            cancelled.cancel()
            await waiting
            assert not {"A", "X"} & topics_on(around.files)

    run_in_virtual_time(main())


def test_deletion_outlasts_refusal_of_another_of_its_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delete_topic, refusals = MessageStore.delete_topic, [StoreFull("no space")]

    def refuse_once(store: MessageStore, *topics: str) -> None:
        if "A" in topics and refusals:
            raise refusals.pop()
        delete_topic(store, *topics)

    monkeypatch.setattr(MessageStore, "delete_topic", refuse_once)

    async def main() -> None:
        async with serving(topics={"A": 1, "X": 1}) as (around, client):
            _, refused, waiting = await queue_deletions(around, client)
            with pytest.raises(RefusedError, match="no space"):
                await refused
            await waiting
            assert not {"A", "X"} & topics_on(around.files)

    run_in_virtual_time(main())


def test_first_sends_to_a_retry_topic_name_the_one_queue_that_it_gets() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster, cluster.producer() as producer:
            for _ in range(8):
                result = await cluster.send(producer, "%RETRY%new-group")
                assert isinstance(result, SendResult), result
                assert result.queue.queue_id == 0

    run_in_virtual_time(main())
