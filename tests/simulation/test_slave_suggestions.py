"""Who is far behind reads from a slave, as the group's settings say, and comes back."""

import asyncio
from dataclasses import replace

import pytest

from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.numbered import FIRST, GROUP, TOPIC, numbered
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_replicas import start_slave

FEW = replace(FIRST, pull_threshold_messages=20)
NOTHING_IS_IN_MEMORY = 1


async def read_at(cluster: SimulatedCluster, name: str) -> int:
    """Return how many messages a member has given to the group."""
    key = f"{TOPIC}@{GROUP}"
    request = admin.DescribeStatisticsRequest(name="GROUP_GET_NUMS", key=key)
    reply = await cluster.ask(name, service_methods.DESCRIBE_STATISTICS, request)
    return sum(item.total for item in reply.items)


@pytest.mark.parametrize("broker_id_when_slow", [1, 7])
def test_backlog_that_is_not_in_memory_is_read_from_slave(broker_id_when_slow: int) -> None:
    async def main() -> None:
        async with numbered(memory_bytes=NOTHING_IS_IN_MEMORY) as (cluster, messages):
            settings = admin.GroupSettings(
                group=GROUP,
                consume_enabled=True,
                retry_queues=1,
                retries_max=16,
                broker_id_when_slow=broker_id_when_slow,
            )
            await cluster.ask(
                "a", service_methods.PUT_GROUP, admin.PutGroupRequest(settings=settings)
            )
            await messages.send(200)
            await start_slave(cluster)
            async with messages.consumer(config=FEW):
                await until(messages.all_heard)
                assert len(messages.heard) == 200
                assert await read_at(cluster, "a-1") > 100
                await asyncio.sleep(6)
            assert await messages.committed("a") == [100, 100]

    run_in_virtual_time(main())


@pytest.mark.parametrize("is_enabled", [True, False])
def test_consumers_stay_at_master_without_slave_that_may_be_read(
    is_enabled: bool,
) -> None:
    async def main() -> None:
        settings = {"memory_bytes": NOTHING_IS_IN_MEMORY, "slave_read_enabled": is_enabled}
        async with numbered(**settings) as (cluster, messages):
            await messages.send(100)
            await start_slave(cluster)
            if is_enabled:
                await cluster.stop("a-1")
            async with messages.consumer(config=FEW):
                await until(messages.all_heard)
            assert await read_at(cluster, "a") == 100

    run_in_virtual_time(main())


def test_consumers_return_to_master_when_slave_stops() -> None:
    async def main() -> None:
        async with numbered(memory_bytes=NOTHING_IS_IN_MEMORY) as (cluster, messages):
            await messages.send(200)
            await start_slave(cluster)
            async with messages.consumer(config=FEW):
                await until(lambda: len(messages.heard) > 50)
                await cluster.stop("a-1")
                await until(messages.all_heard)
                assert len(messages.heard) == 200

    run_in_virtual_time(main())


def test_consumers_wait_for_master_when_slave_may_not_be_read() -> None:
    async def main() -> None:
        async with numbered(slave_read_enabled=False) as (cluster, messages):
            await messages.send(100)
            await start_slave(cluster)
            async with messages.consumer(config=FEW):
                await until(lambda: len(messages.heard) > 20)
                await cluster.stop("a")
                await asyncio.sleep(60)
                assert len(messages.heard) < 100
                await cluster.start("a")
                await until(messages.all_heard)
                assert len(messages.heard) == 100

    run_in_virtual_time(main())
