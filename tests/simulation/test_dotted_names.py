"""Topics and groups whose names have dots: who may make them, and what becomes of them later."""

from dataclasses import replace

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.config import ClientConfig
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import IllegalName, InvalidParameter, TopicNotFound
from ternmq_model.group_settings import GroupSettings
from ternmq_model.message import Message, SendResult
from ternmq_model.route import TopicConfig
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import promote, replicated, start_slave

TOPIC, GROUP = "orders.created", "billing.eu"
NO_DOTS = r"% \| _ -; this broker allows no dots \(broker\.dots_in_names_allowed\)"


def admin_of(cluster: SimulatedCluster) -> AdminClient:
    return AdminClient(
        client=ClientConfig(nameservers=(NAMESERVER,)), env=cluster.environment("tool")
    )


async def consumed(
    cluster: SimulatedCluster, count: int, *, topic: str = TOPIC, fails: bool = False
) -> list[bytes]:
    """Return the bodies that a member of the group gets; the first call of each may fail."""
    bodies: list[bytes] = []
    tried: set[bytes] = set()

    async def listen(message: StoredMessage) -> None:
        if fails and message.body not in tried:
            tried.add(message.body)
            raise ValueError("try again")
        bodies.append(message.body)

    consumer = PushConsumer(
        GROUP,
        topic,
        listener=listen,
        nameserver=NAMESERVER,
        config=PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET),
        env=cluster.environment(f"c{cluster.next_id()}"),
    )
    async with consumer:
        await until(lambda: len(bodies) == count)
    return bodies


def test_dots_are_refused_by_brokers_with_the_characters_that_are_allowed() -> None:
    async def main() -> None:
        async with (
            simulated_cluster(brokers=("a",)) as cluster,
            admin_of(cluster) as admin,
            cluster.producer() as producer,
        ):
            await cluster.put_topic("plain", 1)
            with pytest.raises(InvalidParameter, match=NO_DOTS):
                await producer.send(Message(TOPIC, b"x"))
            with pytest.raises(InvalidParameter, match=NO_DOTS):
                await admin.create_topic(TopicConfig(TOPIC, 1, 1))
            with pytest.raises(InvalidParameter, match=NO_DOTS):
                await admin.put_group(GroupSettings(GROUP))
            with pytest.raises(InvalidParameter, match=NO_DOTS):
                await consumed(cluster, 1, topic="plain")
            env = cluster.environment("puller")
            async with PullConsumer(GROUP, nameserver=NAMESERVER, env=env) as puller:
                puller.assign(queues := await puller.queues("plain"))
                puller.seek(queues[0], 0)
                with pytest.raises(InvalidParameter, match=NO_DOTS):
                    await puller.poll()
            with pytest.raises(IllegalName, match="except at the start"):
                await producer.send(Message(".hidden", b"x"))
            assert TOPIC not in await admin.topics()
            with pytest.raises(TopicNotFound):
                await admin.describe_topic(TOPIC)

    run_in_virtual_time(main())


def test_dotted_names_go_on_when_the_setting_is_switched_off() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",), dots_in_names_allowed=True) as cluster:
            async with cluster.producer() as producer:
                for _ in range(3):
                    assert isinstance(await cluster.send(producer, TOPIC), SendResult)
            assert len(await consumed(cluster, 3, fails=True)) == 3
            async with admin_of(cluster) as admin:
                await admin.create_topic(TopicConfig("a.b", 2, 2))
            cluster.broker_settings["dots_in_names_allowed"] = False
            for stop in (cluster.stop, None):
                if stop is not None:
                    await stop("a")
                else:
                    cluster.kill("a")
                await cluster.start("a")
                async with cluster.producer("p2") as producer:
                    assert isinstance(await cluster.send(producer, TOPIC), SendResult)
                assert len(await consumed(cluster, 1, fails=True)) == 1
            async with admin_of(cluster) as admin:
                assert {TOPIC, "a.b", f"%RETRY%{GROUP}"} <= set(await admin.topics())
                assert GROUP in await admin.groups()
                (topic,) = (await admin.describe_topic(TOPIC)).configs[0][1:]
                await admin.create_topic(replace(topic, read_queues=8, write_queues=8))
                with pytest.raises(InvalidParameter, match=NO_DOTS):
                    await admin.create_topic(TopicConfig("b.c", 1, 1))
                done = await admin.reset_offsets(GROUP, TOPIC, first=True)
                assert done.changes
                await admin.delete_group(GROUP)
                await admin.delete_topic("a.b")
                assert "a.b" not in await admin.topics()

    run_in_virtual_time(main())


def test_slave_without_the_setting_follows_and_takes_over_dotted_names() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",), dots_in_names_allowed=True) as cluster:
            cluster.broker_settings["dots_in_names_allowed"] = False
            await start_slave(cluster, "a-1")
            async with cluster.producer() as producer:
                for _ in range(3):
                    assert isinstance(await cluster.send(producer, TOPIC), SendResult)
            assert len(await consumed(cluster, 3)) == 3
            await replicated(cluster)
            await cluster.stop("a")
            await promote(cluster, "a-1")
            async with cluster.producer("p2") as producer:
                assert isinstance(await cluster.send(producer, TOPIC), SendResult)
            assert len(await consumed(cluster, 1, fails=True)) == 1

    run_in_virtual_time(main())
