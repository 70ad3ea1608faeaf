"""A master and its slave as whole brokers: what one is told, the other has within a second."""

import asyncio
from collections.abc import Awaitable
from typing import Final

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_model.errors import TernError
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.brokers import Client
from tests.support.simulated_cluster import simulated_cluster
from tests.support.simulated_replicas import caught_up, replicated

SECOND_S: Final = 1.0
SYNC: Final = BrokerRole.SYNC_MASTER


async def commit(client: Client, offset: int, version: int = 0) -> groups.CommitOffsetsReply:
    told = groups.QueueOffset(topic="T", queue_id=0, offset=offset, version=version)
    request = groups.CommitOffsetsRequest(group="G", offsets=[told])
    reply: groups.CommitOffsetsReply = await client.call(service_methods.COMMIT_OFFSETS, request)
    return reply


async def offset_at(client: Client) -> int:
    request = groups.QueryOffsetRequest(group="G", topic="T", queue_id=0)
    reply = await client.call(service_methods.QUERY_OFFSET, request)
    return int(reply.offset)


async def has_topic(client: Client, topic: str = "T") -> bool:
    try:
        await client.call(service_methods.DESCRIBE_TOPIC, admin.DescribeTopicRequest(topic=topic))
    except TernError:
        return False
    return True


async def has_group(client: Client, group: str = "G") -> bool:
    reply = await client.call(service_methods.LIST_GROUPS, admin.ListGroupsRequest())
    return group in reply.groups


def test_topics_groups_and_offsets_reach_slave_within_one_second() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "a-1"), role=SYNC) as cluster:
            master, slave = await cluster.connect("a"), await cluster.connect("a-1")
            await replicated(cluster)
            await master.put_topic("T", 1)
            await until(lambda: has_topic(slave), SECOND_S)
            for number in range(8):
                await master.send("T", b"%d" % number)
            await commit(master, 3)
            await until(lambda: has_group(slave), SECOND_S)
            await until(lambda: is_at(slave, 3), SECOND_S)
            request = admin.ResetOffsetsRequest(group="G", topic="T", offset=1)
            await master.call(service_methods.RESET_OFFSETS, request)
            await until(lambda: is_at(slave, 1), SECOND_S)
            reply = await slave.pull("T", 0, group="G")
            assert len(reply.record_sizes) // 4 == 8
            await master.call(service_methods.DELETE_GROUP, admin.DeleteGroupRequest(group="G"))
            await master.call(service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic="T"))
            await until(lambda: is_not(has_topic(slave)), SECOND_S)
            await until(lambda: is_not(has_group(slave)), SECOND_S)
            await master.put_topic("T", 1)
            await master.send("T", b"of the topic made anew")
            await until(lambda: has_topic(slave), SECOND_S)
            await until(lambda: reads(slave, 1), SECOND_S)

    run_in_virtual_time(main())


async def is_at(client: Client, offset: int) -> bool:
    return await offset_at(client) == offset


async def is_not(answer: Awaitable[bool]) -> bool:
    return not await answer


async def reads(client: Client, count: int) -> bool:
    reply: messages.PullReply = await client.pull("T", 0, wait_ms=0)
    return len(reply.record_sizes) // 4 == count


@pytest.mark.parametrize("pause_s", [0.0, 0.2, 0.4, 0.6])
def test_tables_of_a_stopping_master_are_at_its_slave(pause_s: float) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "a-1"), role=SYNC) as cluster:
            master, slave = await cluster.connect("a"), await cluster.connect("a-1")
            await replicated(cluster)
            await master.put_topic("T", 1)
            for number in range(8):
                await master.send("T", b"%d" % number)
            await replicated(cluster)
            await asyncio.sleep(pause_s)  # the slave asks again and again
            await commit(master, 3)
            await master.put_topic("T2", 1)
            await cluster.stop("a")
            assert await offset_at(slave) == 3
            assert await has_topic(slave, "T2")

    run_in_virtual_time(main())


def test_master_stops_soon_although_its_slave_is_silent() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "a-1")) as cluster:
            master = await cluster.connect("a")
            await replicated(cluster)
            await master.put_topic("T", 1)
            cluster.network.partition("a-1", "a", one_way=True)
            await commit(master, 0)
            began_ms = cluster.environment("clock").clock.monotonic_ms()
            await cluster.stop("a")
            assert cluster.environment("clock").clock.monotonic_ms() - began_ms < 10_000

    run_in_virtual_time(main())


def test_offsets_committed_at_slave_are_at_returned_master() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a-1", "a"), role=SYNC) as cluster:
            master, slave = await cluster.connect("a"), await cluster.connect("a-1")
            await replicated(cluster)
            await master.put_topic("T", 1)
            for number in range(8):
                await master.send("T", b"%d" % number)
            await commit(master, 3)
            await until(lambda: is_at(slave, 3), SECOND_S)
            await cluster.stop("a")
            assert not (await commit(slave, 6)).refused
            await cluster.start("a")
            master = await cluster.connect("a")
            assert await offset_at(master) == 6, "before anybody else is served"
            await replicated(cluster)
            await commit(master, 7)
            await until(lambda: is_at(slave, 7), SECOND_S)

    run_in_virtual_time(main())


def test_slave_finds_master_at_its_old_place_without_nameserver() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "a-1"), role=SYNC) as cluster:
            await caught_up(cluster, "a", timeout_s=35)
            await cluster.stop("a-1")
            await cluster.nameservers.stop("ns")
            await cluster.start("a-1")
            await caught_up(cluster, "a", timeout_s=35)
            master, slave = await cluster.connect("a"), await cluster.connect("a-1")
            await master.put_topic("T", 1)
            await until(lambda: has_topic(slave), SECOND_S)

    run_in_virtual_time(main())
