"""A master and its slave, whoever dies: what was acknowledged stays, and both keep one log."""

import asyncio

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_producer.producer import Producer
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.examples import seeds
from tests.support.history import Outcome
from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import compare_logs

TOPIC = "payments"
SEEDS = seeds(4, soak=1000)


async def send_on(cluster: SimulatedCluster, producer: Producer, times: int) -> None:
    """Send one message after the other, whatever becomes of them."""
    for _ in range(times):
        await cluster.send(producer, TOPIC, size=cluster.random.randrange(3000))
        await asyncio.sleep(cluster.random.random() * 0.2)


async def senders(cluster: SimulatedCluster, producer: Producer, *, times: int = 120) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(send_on(cluster, producer, times))


async def scan_and_check(cluster: SimulatedCluster, seed: int) -> None:
    """End a scenario: one log in all members, and in it what was acknowledged."""
    cluster.network.heal()
    await compare_logs(cluster, "a")
    await cluster.scan(TOPIC)
    cluster.history.stored_twice_allowed = True
    cluster.history.check(seed=seed)
    assert any(each.outcome is Outcome.STORED for each in cluster.history.sent.values())


async def end(cluster: SimulatedCluster, name: str) -> None:
    """End a member in one way or another; one that flushes late keeps its power."""
    match cluster.random.randrange(3):
        case 0:
            cluster.kill(name)
        case 1 if cluster.mode is FlushMode.SYNC:
            cluster.lose_power(name)
        case _:
            await cluster.stop(name)


async def members_come_and_go(cluster: SimulatedCluster, times: int) -> None:
    """End members, or the network between them, and let all come back."""
    for _ in range(times):
        await asyncio.sleep(cluster.random.random() * 5)
        if cluster.random.random() < 0.4:
            parted = cluster.random.sample(["a", "a-1", "ns", "ns2", "producer"], 2)
            one_way = cluster.random.random() < 0.5
            cluster.network.partition(*parted, one_way=one_way)
            await asyncio.sleep(cluster.random.random() * 20)
            cluster.network.heal()
            continue
        name = cluster.random.choice(["a", "a-1"])
        await end(cluster, name)
        await asyncio.sleep(cluster.random.random() * 5)
        serves = cluster.begin(name)
        if cluster.random.random() < 0.5:
            await serves.wait()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", list(FlushMode))
@pytest.mark.parametrize("role", [BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER])
def test_messages_survive_and_logs_stay_equal_while_members_come_and_go(
    role: BrokerRole, mode: FlushMode, seed: int
) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(
                seed, brokers=["a", "a-1"], mode=mode, nameservers=2, role=role
            ) as cluster,
            cluster.producer() as producer,
        ):
            await cluster.put_topic(TOPIC)
            async with asyncio.TaskGroup() as group:
                group.create_task(senders(cluster, producer))
                group.create_task(members_come_and_go(cluster, 6))
            await scan_and_check(cluster, seed)

    run_in_virtual_time(main())
