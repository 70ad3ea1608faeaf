"""In which role a member begins a life, and how a master learns that it is none any more."""

import asyncio

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_model.errors import ClosedError, RefusedError, TernError
from ternmq_model.response_code import ResponseCode
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.brokers import bodies
from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import (
    ask_to_promote,
    master_and_slave,
    registered,
    replicated,
    status_of,
)

PROMOTED = 1_001_000


async def epoch_of(cluster: SimulatedCluster, host: str) -> int:
    """Return the newest epoch of a member's log."""
    return (await status_of(cluster, host)).epochs[-1].number


async def has_role(cluster: SimulatedCluster, host: str, role: str) -> bool:
    """Tell whether a member serves in a role."""
    return (await status_of(cluster, host)).role == role


def test_broker_without_followers_starts_without_confirmation() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=()) as cluster:
            for epoch in (1, 2, 2):
                await cluster.start("a", nameservers=("away:9876",))
                client = await cluster.connect("a")
                await client.send("A", queue_id=0)
                assert await epoch_of(cluster, "a") == epoch
                if epoch == 1:
                    cluster.lose_power("a")
                else:
                    await cluster.stop("a")

    run_in_virtual_time(main())


def test_followed_master_waits_for_confirmation() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            await cluster.stop("a-1")
            await cluster.stop("a")
            await cluster.nameservers.stop("ns")
            serves = cluster.begin("a")
            await asyncio.sleep(20)
            assert not serves.is_set()
            with pytest.raises(ClosedError):
                _ = cluster.broker("a").address
            # One without memory confirms nothing.
            await cluster.nameservers.start("ns")
            await asyncio.sleep(20)
            assert not serves.is_set()
            await cluster.start("a-1")
            await until(serves.is_set, within_s=5)
            assert await epoch_of(cluster, "a") == 1
            await replicated(cluster)

    run_in_virtual_time(main())


def test_durable_nameserver_confirms_master() -> None:
    async def main() -> None:
        async with master_and_slave(durable_nameservers=True) as (cluster, _):
            await cluster.stop("a-1")
            cluster.kill("a")
            await cluster.nameservers.stop("ns")
            serves = cluster.begin("a")
            await asyncio.sleep(20)
            assert not serves.is_set()
            await cluster.nameservers.start("ns")
            await until(serves.is_set, within_s=5)
            assert await epoch_of(cluster, "a") == 2

    run_in_virtual_time(main())


def test_waiting_master_stops_at_once_and_begins_epoch_later() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            await cluster.stop("a-1")
            cluster.kill("a")
            await cluster.nameservers.stop("ns")
            serves = cluster.begin("a")
            await asyncio.sleep(5)
            assert not serves.is_set()
            begun_s = asyncio.get_running_loop().time()
            await cluster.stop("a")
            assert asyncio.get_running_loop().time() - begun_s < 1
            await cluster.start("a-1")
            await cluster.start("a")
            assert await epoch_of(cluster, "a") == 2

    run_in_virtual_time(main())


def test_force_starts_master_without_confirmation() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            await cluster.stop("a-1")
            cluster.kill("a")
            await cluster.nameservers.stop("ns")
            await cluster.start("a", force_master=True)
            assert await epoch_of(cluster, "a") == 2
            client = await cluster.connect("a")
            await client.send("A", b"2")
            await cluster.nameservers.start("ns")
            await cluster.start("a-1")
            await replicated(cluster)

    run_in_virtual_time(main())


def test_force_makes_slave_master_as_promotion_does() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            await cluster.stop("a")
            await cluster.stop("a-1")
            await cluster.start("a-1", force_master=True)
            assert await epoch_of(cluster, "a-1") == PROMOTED
            await cluster.start("a")
            await replicated(cluster)
            assert (await status_of(cluster, "a")).broker_id == 100

    run_in_virtual_time(main())


def test_sync_master_with_empty_store_waits_for_one_answer() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=(), durable_nameservers=False) as cluster:
            await cluster.nameservers.stop("ns")
            serves = cluster.begin("a", role=BrokerRole.SYNC_MASTER)
            await asyncio.sleep(10)
            assert not serves.is_set()
            await cluster.nameservers.start("ns")
            await until(serves.is_set, within_s=5)

    run_in_virtual_time(main())


def test_master_without_its_disk_returns_as_slave_of_promoted_one() -> None:
    async def main() -> None:
        async with master_and_slave(messages=1, role=BrokerRole.SYNC_MASTER) as (cluster, _):
            cluster.destroy_disk("a")
            await ask_to_promote(cluster, "a-1")
            await until(lambda: has_role(cluster, "a-1", "sync_master"))
            await cluster.start("a")
            await replicated(cluster)
            assert bodies(await (await cluster.connect("a")).pull("A")) == [b"0"]
            assert (await status_of(cluster, "a-1")).in_sync_now == 2

    run_in_virtual_time(main())


def test_standalone_broker_without_its_disk_serves_only_by_force() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=(), durable_nameservers=False) as cluster:
            await cluster.start("a")
            cluster.lose_power("a")
            await cluster.start("a")
            assert await epoch_of(cluster, "a") == 2
            await cluster.stop("a")
            del cluster.disks["a"]
            await cluster.start("a")
            await until(lambda: has_role(cluster, "a", "slave"))
            with pytest.raises(RefusedError, match="slave"):
                await (await cluster.connect("a")).send("A", queue_id=0)
            await cluster.stop("a")
            await cluster.start("a", force_master=True)
            assert await epoch_of(cluster, "a") > 2
            await (await cluster.connect("a")).send("A", queue_id=0)

    run_in_virtual_time(main())


def test_running_master_learns_of_promotion_from_nameserver_within_seconds() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, client):
            cluster.network.partition("a", "a-1")
            await ask_to_promote(cluster, "a-1", is_forced=True)
            promoted_s = asyncio.get_running_loop().time()
            while True:
                try:
                    await client.send("A", b"x")
                except TernError:
                    break
                await asyncio.sleep(0.05)
            assert asyncio.get_running_loop().time() - promoted_s < 3
            await until(lambda: has_role(cluster, "a", "slave"), within_s=5)
            cluster.network.heal()
            await replicated(cluster)
            assert await registered(cluster) == {0: ("a-1", PROMOTED), 100: ("a", PROMOTED)}

    run_in_virtual_time(main())


def test_send_that_waits_while_master_is_fenced_may_have_happened() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, client):
            cluster.disk_s["a"] = 4.0
            sending = asyncio.ensure_future(client.send("A", b"x"))
            await asyncio.sleep(0.1)
            cluster.network.partition("a", "a-1")
            begun_s = asyncio.get_running_loop().time()
            await ask_to_promote(cluster, "a-1", is_forced=True)
            with pytest.raises(TernError) as caught:
                await sending
            assert asyncio.get_running_loop().time() - begun_s < 3.5
            assert caught.value.may_have_happened
            cluster.disk_s.clear()

    run_in_virtual_time(main())


def test_master_is_fenced_by_memory_of_nameserver() -> None:
    async def main() -> None:
        async with master_and_slave(durable_nameservers=True) as (cluster, _):
            cluster.network.partition("a", "ns")
            cluster.network.partition("a", "a-1")
            await ask_to_promote(cluster, "a-1", is_forced=True)
            await until(lambda: has_role(cluster, "a-1", "async_master"))
            await cluster.stop("a-1")
            assert await has_role(cluster, "a", "async_master")
            cluster.network.heal()
            await until(lambda: has_role(cluster, "a", "slave"), within_s=5)
            with pytest.raises(RefusedError) as caught:
                await (await cluster.connect("a")).send("A", b"x")
            assert caught.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
            await cluster.start("a-1")
            await replicated(cluster)

    run_in_virtual_time(main())
