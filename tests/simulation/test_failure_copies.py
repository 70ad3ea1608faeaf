"""A failure leaves one copy of its message, however often its broker and members die."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.queue import MessageQueue
from ternmq_model.route import TopicConfig
from ternmq_model.stored_message import StoredMessage
from ternmq_store.disk.state_file import replace_file
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.simulated_cluster import (
    CLUSTER_STORE,
    NAMESERVER,
    SimulatedCluster,
    simulated_cluster,
)

TOPIC = "orders"
LETTERS, RETRIES = "%DLQ%G", "%RETRY%G"
CONCURRENT = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, retries_max=0)
ORDERLY = replace(CONCURRENT, order_per_queue=True)
RETRIED = replace(CONCURRENT, retries_max=16)


def always_failing(
    cluster: SimulatedCluster, config: PushConsumerConfig, host: str = "member"
) -> PushConsumer:
    def listen(_: StoredMessage) -> bool:
        return False

    env = cluster.environment(host)
    return PushConsumer("G", TOPIC, nameserver=NAMESERVER, listener=listen, config=config, env=env)


def admin_of(cluster: SimulatedCluster) -> AdminClient:
    return AdminClient(nameserver=NAMESERVER, env=cluster.environment("tool"))


async def fill(cluster: SimulatedCluster, count: int) -> None:
    """Send messages to a topic of one queue."""
    async with cluster.producer() as producer, admin_of(cluster) as admin:
        await admin.create_topic(TopicConfig(TOPIC, 1, 1))
        for _ in range(count):
            await cluster.send(producer, TOPIC)


async def copies(cluster: SimulatedCluster, topic: str) -> Counter[tuple[bytes, int]]:
    """Return how many copies there are of each failure: of a body, for the nth time."""
    found = await cluster.records(topic)
    return Counter((message.body, message.reconsume_times) for _, message in found)


@pytest.mark.parametrize("kills_broker", [True, False])
@pytest.mark.parametrize(
    ("config", "topic"), [(ORDERLY, LETTERS), (CONCURRENT, LETTERS), (RETRIED, RETRIES)]
)
def test_failure_leaves_one_copy_while_members_die_before_they_commit(
    config: PushConsumerConfig, topic: str, kills_broker: bool
) -> None:
    async def main() -> None:
        async with simulated_cluster(1, brokers=["a"]) as cluster, AsyncExitStack() as stack:
            await fill(cluster, 3)

            for number in range(6):
                member = always_failing(cluster, config, f"member-{number}")
                await stack.enter_async_context(member)
                await asyncio.sleep(3)
                cluster.network.kill(f"member-{number}")
                if kills_broker:
                    cluster.kill("a")
                    await cluster.start("a")
                else:
                    await asyncio.sleep(40)  # its session and its lock end
            await asyncio.sleep(20)
            found = await copies(cluster, topic)
            assert len(found) >= 3
            assert set(found.values()) == {1}

    run_in_virtual_time(main())


@pytest.mark.parametrize("config", [ORDERLY, CONCURRENT])
@pytest.mark.parametrize("seed", range(2))
def test_message_has_one_dead_letter_while_its_broker_dies(
    config: PushConsumerConfig, seed: int
) -> None:
    async def main() -> None:
        chance = Random(seed)
        async with (
            simulated_cluster(seed, brokers=["a"]) as cluster,
            always_failing(cluster, config),
        ):
            for _ in range(6):
                await fill(cluster, 20)
                await asyncio.sleep(chance.random() * 6)
                cluster.kill("a")
                await cluster.start("a")
            await asyncio.sleep(60)
            letters = await copies(cluster, LETTERS)
            assert len(letters) == 120
            assert set(letters.values()) == {1}

    run_in_virtual_time(main())


@pytest.mark.parametrize("config", [ORDERLY, CONCURRENT])
def test_message_has_one_dead_letter_though_the_disk_is_slow(config: PushConsumerConfig) -> None:
    async def main() -> None:
        store = replace(CLUSTER_STORE, sync_flush_timeout_ms=1000)
        async with simulated_cluster(1, brokers=["a"], store=store) as cluster:
            await fill(cluster, 3)
            async with always_failing(cluster, config):
                cluster.disk_s["a"] = 6.0
                await asyncio.sleep(60)
                cluster.disk_s["a"] = 0.0
                await asyncio.sleep(60)
                letters = await copies(cluster, LETTERS)
                assert list(letters.values()) == [1, 1, 1]

    run_in_virtual_time(main())


@pytest.mark.parametrize("is_reset", [True, False])
def test_message_that_is_consumed_again_after_a_seek_fails_anew(is_reset: bool) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(1, brokers=["a"]) as cluster,
            always_failing(cluster, CONCURRENT) as member,
            admin_of(cluster) as admin,
        ):
            await fill(cluster, 3)
            for times in (1, 2, 3):

                async def have_failed(times: int = times) -> bool:
                    letters = await copies(cluster, LETTERS)
                    return len(letters) == 3 and set(letters.values()) == {times}

                await until(have_failed)
                await asyncio.sleep(10)
                assert await have_failed()
                if is_reset:
                    await admin.reset_offsets("G", TOPIC, offset=0)
                else:
                    await member.seek(MessageQueue(TOPIC, "a", 0), 0)

    run_in_virtual_time(main())


@pytest.mark.parametrize("config", [ORDERLY, CONCURRENT])
def test_reset_after_seeks_that_share_a_commit_finds_no_copy(config: PushConsumerConfig) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(1, brokers=["a"]) as cluster,
            always_failing(cluster, config) as member,
            admin_of(cluster) as admin,
        ):
            await fill(cluster, 3)
            await asyncio.sleep(10)
            cluster.disk_s["a"] = 1.0
            await asyncio.gather(*(member.seek(MessageQueue(TOPIC, "a", 0), 0) for _ in range(3)))
            await asyncio.sleep(2)
            cluster.disk_s["a"] = 0.0
            for _ in range(3):
                await asyncio.sleep(30)
                before = await copies(cluster, LETTERS)
                await admin.reset_offsets("G", TOPIC, offset=0)
                await asyncio.sleep(30)
                assert (await copies(cluster, LETTERS)).total() == before.total() + 3

    run_in_virtual_time(main())


@pytest.mark.parametrize("config", [ORDERLY, CONCURRENT])
def test_failure_is_stored_though_its_broker_lost_the_version(config: PushConsumerConfig) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(1, brokers=["a"]) as cluster,
            always_failing(cluster, config) as member,
        ):
            await fill(cluster, 3)
            await asyncio.sleep(10)
            assert await member.seek(MessageQueue(TOPIC, "a", 0), 0)
            await asyncio.sleep(10)
            cluster.kill("a")
            kept = Path("/broker/config/offsetVersions.json")
            assert b'"0":1' in cluster.disks["a"].nodes[kept].data.tobytes().replace(b" ", b"")
            replace_file(cluster.disks["a"], kept, b"{}")
            await cluster.start("a")
            await fill(cluster, 1)
            await asyncio.sleep(20)
            assert (await copies(cluster, LETTERS)).total() == 7

    run_in_virtual_time(main())


def test_group_that_was_deleted_fails_anew() -> None:
    async def main() -> None:
        async with simulated_cluster(1, brokers=["a"]) as cluster, admin_of(cluster) as admin:
            await fill(cluster, 3)
            for times in (1, 2):

                async def have_failed(times: int = times) -> bool:
                    letters = await copies(cluster, LETTERS)
                    return len(letters) == 3 and set(letters.values()) == {times}

                async with always_failing(cluster, CONCURRENT):
                    await until(have_failed)
                await asyncio.sleep(10)
                await admin.delete_group("G")

    run_in_virtual_time(main())
