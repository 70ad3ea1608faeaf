"""A master dies under load and its slave is promoted, again and again: nothing promised is lost."""

import asyncio
from contextlib import suppress

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import TernError
from ternmq_producer.producer import Producer
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.examples import seeds
from tests.support.history import GroupRules, Outcome
from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import caught_up, compare_logs, promote

TOPIC = "payments"
GROUP = "ledger"
SEEDS = seeds(3, soak=1000)
MEMBERS = ("a", "a-1")


def other_than(name: str) -> str:
    return MEMBERS[1 - MEMBERS.index(name)]


async def send_until(cluster: SimulatedCluster, producer: Producer, over: asyncio.Event) -> None:
    while not over.is_set():
        await cluster.send(producer, TOPIC, size=cluster.random.randrange(2000))
        await asyncio.sleep(cluster.random.random() * 0.2)


async def end_master(cluster: SimulatedCluster, name: str) -> None:
    match cluster.random.randrange(4):
        case 0:
            cluster.kill(name)
        case 1 if cluster.mode is FlushMode.SYNC:
            cluster.lose_power(name)
        case 2:
            await cluster.stop(name)
        case _:
            cluster.destroy_disk(name)


async def take_turns(cluster: SimulatedCluster, times: int) -> None:
    """Let the master of the moment end, promote the other, and let the first come back."""
    for _ in range(times):
        await caught_up(cluster, "a")
        await asyncio.sleep(cluster.random.random() * 5)
        (master,) = cluster.masters()
        await end_master(cluster, master)
        await asyncio.sleep(cluster.random.random() * 3)
        epoch = (await promote(cluster, other_than(master))).epoch
        assert cluster.masters() == [other_than(master)]
        await asyncio.sleep(cluster.random.random() * 3)
        await cluster.start(master)
        assert cluster.masters() == [other_than(master)]
        told = await caught_up(cluster, "a")
        assert {each.epochs[-1].number for each in told.values()} == {epoch}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", list(FlushMode))
def test_messages_of_a_sync_master_survive_its_loss(mode: FlushMode, seed: int) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(
                seed,
                brokers=MEMBERS,
                mode=mode,
                nameservers=2,
                role=BrokerRole.SYNC_MASTER,
            ) as cluster,
            cluster.producer() as producer,
            PushConsumer(
                GROUP,
                TOPIC,
                listener=cluster.listener(GROUP),
                nameserver=cluster.nameservers.addresses,
                config=PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET),
                env=cluster.environment("consumer"),
            ),
        ):
            over = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(send_until(cluster, producer, over))
                await take_turns(cluster, 3)
                over.set()
            await cluster.consumed(GROUP)
            await compare_logs(cluster, "a")
            await cluster.scan(TOPIC)
            stored = [
                each for each in cluster.history.sent.values() if each.outcome is Outcome.STORED
            ]
            assert len(stored) > 30
            cluster.history.stored_twice_allowed = True
            cluster.history.check([GroupRules(GROUP, frozenset({TOPIC}))], seed=seed)

    run_in_virtual_time(main())


@pytest.mark.parametrize("seed", SEEDS)
def test_isolated_and_replaced_master_acknowledges_nothing_that_is_lost(
    seed: int,
) -> None:
    """It goes on alone, and tells so with each answer; when it returns its tail is cut."""

    async def cut_off(cluster: SimulatedCluster) -> None:
        (master,) = cluster.masters()
        slave = other_than(master)
        for host in (slave, *cluster.random.sample(["ns", "ns2"], cluster.random.randrange(3))):
            cluster.network.partition(master, host)
        await asyncio.sleep(cluster.random.random() * 8)
        while True:
            with suppress(TernError):
                await promote(cluster, slave)
                break
            await asyncio.sleep(1)
        await asyncio.sleep(cluster.random.random() * 8)
        cluster.network.heal()
        await caught_up(cluster, "a")
        assert cluster.masters() == [slave]

    async def main() -> None:
        async with (
            simulated_cluster(
                seed, brokers=MEMBERS, nameservers=2, role=BrokerRole.SYNC_MASTER
            ) as cluster,
            cluster.producer() as producer,
            cluster.producer("other") as other,
        ):
            await cluster.put_topic(TOPIC)
            over = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for sender in (producer, other, other):
                    group.create_task(send_until(cluster, sender, over))
                for _ in range(3):
                    await asyncio.sleep(3)
                    await cut_off(cluster)
                over.set()
            await compare_logs(cluster, "a")
            await cluster.scan(TOPIC)
            cluster.history.stored_twice_allowed = True
            cluster.history.check(seed=seed)

    run_in_virtual_time(main())


@pytest.mark.parametrize("seed", SEEDS)
def test_slave_with_the_complete_log_is_promoted(seed: int) -> None:
    """A message is at the master and at one slave: the other one is refused if it lacks any."""

    async def promote_who_may(cluster: SimulatedCluster, slaves: list[str]) -> str:
        for _ in range(60):
            for name in slaves:
                with suppress(TernError):
                    await promote(cluster, name)
                    return name
            await asyncio.sleep(1)
        raise AssertionError(f"seed {seed}: none of {slaves} may be promoted")

    async def main() -> None:
        async with (
            simulated_cluster(
                seed,
                brokers=["a", "a-1", "a-2"],
                nameservers=2,
                role=BrokerRole.SYNC_MASTER,
                in_sync_replicas=2,
            ) as cluster,
            cluster.producer() as producer,
        ):
            await cluster.put_topic(TOPIC)
            await caught_up(cluster, "a")
            over = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(send_until(cluster, producer, over))
                for _ in range(2):
                    (master,) = cluster.masters()
                    slaves = [each for each in ("a", "a-1", "a-2") if each != master]
                    cluster.random.shuffle(slaves)
                    cluster.network.partition(master, slaves[0], one_way=True)
                    await asyncio.sleep(cluster.random.random() * 6)
                    await end_master(cluster, master)
                    cluster.network.heal()
                    await promote_who_may(cluster, slaves)
                    await cluster.start(master)
                    await caught_up(cluster, "a")
                over.set()
            await compare_logs(cluster, "a")
            await cluster.scan(TOPIC)
            cluster.history.stored_twice_allowed = True
            cluster.history.check(seed=seed)

    run_in_virtual_time(main())
