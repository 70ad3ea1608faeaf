"""Consumers of topics that may not be read, or not any more, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ternmq_consumer.config import ConsumeFrom, PullConsumerConfig, PushConsumerConfig
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import PermissionRefused, TopicNotFound
from ternmq_model.queue import MessageQueue
from ternmq_model.route import READ_WRITE, Permission
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

FROM_FIRST = PullConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
Scenario = Callable[[SimulatedCluster], Awaitable[None]]


def in_cluster(scenario: Scenario) -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster:
            await scenario(cluster)

    run_in_virtual_time(main())


async def allow(cluster: SimulatedCluster, topic: str, permissions: Permission) -> None:
    for name in cluster.masters():
        client = await cluster.connect(name)
        await client.put_topic(topic, 2, permissions)
        await client.connection.close()


async def send(cluster: SimulatedCluster, topic: str, count: int) -> set[str]:
    async with cluster.producer(host=f"producer-{cluster.next_id()}") as producer:
        names = {cluster.next_id() for _ in range(count)}
        for name in sorted(names):
            await cluster.send(producer, topic, name)
    return names


def name_of(message: StoredMessage) -> str:
    return bytes(message.body).decode().partition("|")[0]


def puller(cluster: SimulatedCluster, group: str = "") -> PullConsumer:
    return PullConsumer(
        group, nameserver=NAMESERVER, config=FROM_FIRST, env=cluster.environment("puller")
    )


async def names_read(consumer: PullConsumer, count: int) -> set[str]:
    """Poll until `count` messages came, and nothing more; refusals are passed over."""
    found: list[str] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            try:
                found += [name_of(each) for each in await consumer.poll()]
            except PermissionRefused:
                continue
    assert len(found) == len(set(found)) == count
    return set(found)


async def refused(consumer: PullConsumer, *, within_s: float) -> str:
    """Poll until that is refused, and return why. Nothing comes before."""
    async with asyncio.timeout(within_s):
        with pytest.raises(PermissionRefused) as caught:
            await empty_polls(consumer)
    return caught.value.remark


async def empty_polls(consumer: PullConsumer) -> None:
    while True:
        assert not await consumer.poll()


def test_poll_raises_while_an_assigned_topic_may_not_be_read() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await allow(cluster, "orders", READ_WRITE)
        sent = await send(cluster, "orders", 20)
        async with puller(cluster) as consumer:
            queues = await consumer.queues("orders")
            await allow(cluster, "orders", Permission.WRITE)
            consumer.assign(queues)
            for _ in range(3):  # again and again, not once
                assert "'orders' may not be read" in await refused(consumer, within_s=15)
            sent |= await send(cluster, "orders", 20)
            await allow(cluster, "orders", READ_WRITE)
            assert await names_read(consumer, 40) == sent

    in_cluster(scenario)


def test_queues_of_an_unreadable_topic_are_refused() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await allow(cluster, "orders", Permission.WRITE)
        await asyncio.sleep(1)
        async with puller(cluster) as consumer:
            with pytest.raises(PermissionRefused, match="'orders' may not be read"):
                await consumer.queues("orders")

    in_cluster(scenario)


def test_permission_taken_while_reading_loses_no_message() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await allow(cluster, "orders", READ_WRITE)
        async with puller(cluster, "readers") as consumer:
            consumer.assign(await consumer.queues("orders"))
            sent = await send(cluster, "orders", 20)
            assert await names_read(consumer, 20) == sent
            await allow(cluster, "orders", Permission.WRITE)
            async with asyncio.timeout(10):  # although nothing arrives that could be read
                with pytest.raises(PermissionRefused, match="'orders' may not be read"):
                    await consumer.poll(timeout_s=10)
            later = await send(cluster, "orders", 20)
            await allow(cluster, "orders", READ_WRITE)
            assert await names_read(consumer, 20) == later
            assert await consumer.commit()

    in_cluster(scenario)


def test_other_topics_are_served_between_refusals() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await allow(cluster, "orders", READ_WRITE)
        await allow(cluster, "secrets", READ_WRITE)
        async with puller(cluster) as consumer:
            queues = await consumer.queues("secrets") + await consumer.queues("orders")
            await allow(cluster, "secrets", Permission.WRITE)
            consumer.assign(queues)
            refusals: list[str] = []
            found: set[str] = set()
            sent = await send(cluster, "orders", 20)
            async with asyncio.timeout(40):
                while len(refusals) < 3 or found < sent:
                    try:
                        messages = await consumer.poll()
                    except PermissionRefused as error:
                        refusals.append(error.remark)
                    else:
                        found |= {name_of(each) for each in messages}
                        if not messages:
                            sent |= await send(cluster, "orders", 1)
            assert all("'secrets' may not be read" in each for each in refusals)

    in_cluster(scenario)


def test_poll_raises_while_the_group_may_not_consume() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await allow(cluster, "orders", READ_WRITE)
        sent = await send(cluster, "orders", 20)

        async def let_consume(is_allowed: bool) -> None:
            for name in cluster.masters():
                settings = admin.GroupSettings(
                    group="readers", consume_enabled=is_allowed, retry_queues=1, retries_max=16
                )
                request = admin.PutGroupRequest(settings=settings)
                await cluster.ask(name, service_methods.PUT_GROUP, request)

        await let_consume(is_allowed=False)
        async with puller(cluster, "readers") as consumer:
            consumer.assign(await consumer.queues("orders"))
            assert "'readers' may not consume" in await refused(consumer, within_s=15)
            await asyncio.sleep(10)
            await refused(consumer, within_s=0.1)
            assert await consumer.poll(timeout_s=0) == [], "once, however many queues there are"
            await let_consume(is_allowed=True)
            assert await names_read(consumer, 20) == sent

    in_cluster(scenario)


def test_poll_raises_while_a_subscribed_topic_may_not_be_read() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await allow(cluster, "orders", Permission.WRITE)
        sent = await send(cluster, "orders", 20)
        async with puller(cluster, "readers") as consumer:
            await consumer.subscribe("orders")
            for _ in range(2):
                assert "'orders' may not be read" in await refused(consumer, within_s=60)
            assert consumer.assignment() == []
            await asyncio.wait_for(consumer.assigned(), 60)
            await allow(cluster, "orders", READ_WRITE)
            assert await names_read(consumer, 20) == sent
            await allow(cluster, "orders", Permission.WRITE)
            with pytest.raises(PermissionRefused, match="'orders' may not be read"):
                await consumer.poll(timeout_s=60)
            later = await send(cluster, "orders", 20)
            await allow(cluster, "orders", READ_WRITE)
            assert await names_read(consumer, 20) == later

    in_cluster(scenario)


def test_push_consumer_logs_an_unreadable_topic_and_resumes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await allow(cluster, "orders", Permission.WRITE)
        sent = await send(cluster, "orders", 20)
        found: list[str] = []
        refusals: list[str] = []

        def listen(message: StoredMessage) -> None:
            found.append(name_of(message))

        async with PushConsumer(
            "readers",
            "orders",
            listener=listen,
            on_refused=lambda error: refusals.append(error.remark),
            nameserver=NAMESERVER,
            config=PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET),
            env=cluster.environment("pusher"),
        ) as consumer:
            await asyncio.wait_for(consumer.assigned(), 60)
            await asyncio.sleep(60)
            said = [each for each in caplog.messages if "a, b permit no reading" in each]
            assert len(said) == 1
            assert len(refusals) > 1
            assert all("a, b permit no reading" in each for each in refusals)
            for permissions in (READ_WRITE, Permission.WRITE, READ_WRITE):
                refusals.clear()
                await allow(cluster, "orders", permissions)
                sent |= await send(cluster, "orders", 5)
                await asyncio.sleep(60)
                taken = [each for each in refusals if "(W)" in each or "-W-" in each]
                assert bool(taken) == (permissions == Permission.WRITE), refusals
        assert sorted(found) == sorted(sent)

    in_cluster(scenario)


def test_poll_raises_for_an_assigned_topic_that_does_not_exist() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await allow(cluster, "orders", READ_WRITE)
        async with puller(cluster) as consumer:
            broker_name = (await consumer.queues("orders"))[0].broker_name
            for queue in (
                MessageQueue("nowhere", broker_name, 0),
                MessageQueue("orders", broker_name, 99),
            ):
                consumer.assign([queue])
                with pytest.raises(TopicNotFound, match=queue.topic):
                    await consumer.poll(timeout_s=30)

    in_cluster(scenario)
