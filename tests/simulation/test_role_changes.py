"""Changes of role at awkward moments: nobody becomes a second master, none is forgotten."""

import asyncio
import json
from pathlib import Path

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_broker.replication.role.epoch_poll import EpochAnswer, EpochPollResult
from ternmq_broker.replication.role.start_policy import NameServerAnswer
from ternmq_model.address import Address
from ternmq_model.epochs import EPOCH_MAX
from ternmq_model.errors import RefusedError
from ternmq_store.disk.state_file import replace_file
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.brokers import bodies
from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import (
    ask_to_promote,
    master_and_slave,
    promote,
    registered,
    replicated,
    status_of,
)

AWAY = ("away:9876",)
STATE = Path("/broker/config/replication.json")


def test_promotion_of_slave_refused_by_its_living_master_needs_force() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=(), durable_nameservers=False) as cluster:
            await cluster.start("a-1", broker_id=0, nameservers=AWAY)
            client = await cluster.connect("a-1")
            await client.put_topic("A", 1)
            for _ in range(20):
                await client.send("A", b"of another store")
            await cluster.stop("a-1")
            await cluster.start("a")
            await cluster.start("a-1")
            with pytest.raises(RefusedError, match="its master is alive"):
                await ask_to_promote(cluster, "a-1")
            assert cluster.is_master("a")

    run_in_virtual_time(main())


def test_promotion_is_refused_when_master_returns_while_others_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            await cluster.stop("a")
            epoch_poll = cluster.broker("a-1").term.member.epoch_poll
            ask = epoch_poll.ask

            async def ask_slowly(*, own_id: int | None = None) -> EpochPollResult:
                asked = await ask(own_id=own_id)
                await cluster.start("a")
                await replicated(cluster)
                return asked

            monkeypatch.setattr(epoch_poll, "ask", ask_slowly)
            with pytest.raises(RefusedError, match="its master is alive"):
                await ask_to_promote(cluster, "a-1")
            assert cluster.is_master("a")

    run_in_virtual_time(main())


def test_promotion_without_a_number_left_is_refused_before_slave_leaves_its_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, client):
            life = cluster.broker("a-1").term

            async def ask(*, own_id: int | None = None) -> EpochPollResult:
                return EpochPollResult(
                    (EpochAnswer(NameServerAnswer(EPOCH_MAX), (Address("ns", 1),)),), ()
                )

            monkeypatch.setattr(life.member.epoch_poll, "ask", ask)
            with pytest.raises(RefusedError, match=f"the last one is {EPOCH_MAX}"):
                await ask_to_promote(cluster, "a-1", is_forced=True)
            assert cluster.broker("a-1").term is life
            assert (await status_of(cluster, "a-1")).following.is_connected
            await client.send("A", b"x")
            await replicated(cluster)

    run_in_virtual_time(main())


def test_promotion_is_refused_while_another_slave_follows_master() -> None:
    async def main() -> None:
        async with master_and_slave(role=BrokerRole.SYNC_MASTER) as (cluster, client):
            await cluster.start("a-2")
            await replicated(cluster)
            cluster.network.partition("a", "a-1")
            await until(lambda: is_left(cluster, "a-1"))
            # With "a-2" the master goes on to acknowledge what "a-1" will never have.
            with pytest.raises(RefusedError, match="its master is alive"):
                await ask_to_promote(cluster, "a-1")
            assert not (await client.send("A", b"2")).status.code
            cluster.kill("a")
            await until(lambda: is_left(cluster, "a-2"))
            await promote(cluster, "a-2")

    async def is_left(cluster: SimulatedCluster, host: str) -> bool:
        return not (await status_of(cluster, host)).following.is_connected

    run_in_virtual_time(main())


def test_master_without_its_disk_is_slave_while_slave_has_its_log() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            cluster.destroy_disk("a")
            await cluster.start("a")
            await until(lambda: slave_of_nobody(cluster))
            await promote(cluster, "a-1")
            await replicated(cluster)

    async def slave_of_nobody(cluster: SimulatedCluster) -> bool:
        return (await status_of(cluster, "a")).role == "slave"

    run_in_virtual_time(main())


def test_broker_without_slave_and_disk_begins_anew() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=(), durable_nameservers=False) as cluster:
            await cluster.start("a")
            await cluster.stop("a")
            del cluster.disks["a"]
            await cluster.start("a")
            await (await cluster.connect("a")).send("A", queue_id=0)
            assert (await status_of(cluster, "a")).highest_epoch == 1

    run_in_virtual_time(main())


def test_member_forced_before_its_log_is_cut_has_epoch_that_it_begins() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            await cluster.stop("a")
            await cluster.stop("a-1")
            kept = json.loads(cluster.disks["a-1"].nodes[STATE].data.tobytes())
            cut = {"keep_to": kept["confirmed"], "starts_over": False, "file_bytes": 1 << 20}
            kept["cut"] = cut
            replace_file(cluster.disks["a-1"], STATE, json.dumps(kept).encode())
            await cluster.start("a-1", force_master=True)
            status = await status_of(cluster, "a-1")
            assert status.epochs[-1].number == status.highest_epoch == 1_001_000
            await cluster.start("a")
            await replicated(cluster)

    run_in_virtual_time(main())


def test_slave_forced_in_vain_serves_only_confirmed_messages() -> None:
    async def main() -> None:
        async with master_and_slave(messages=1) as (cluster, client):
            await cluster.start("a-2")
            await replicated(cluster)
            confirmed = (await status_of(cluster, "a-1")).confirm_offset
            await client.send("A", b"not confirmed")
            await replicated(cluster)
            for host in cluster.running:
                await cluster.stop(host)
            change("a-1", cluster, confirmed=confirmed)
            change("a-2", cluster, highestEpoch=1_001_000)
            await cluster.start("a-2")
            await cluster.start("a-1", force_master=True)
            await until(lambda: is_slave(cluster, "a-1"))
            assert bodies(await (await cluster.connect("a-1")).pull("A")) == [b"0"]
            assert (await status_of(cluster, "a-1")).confirm_offset == confirmed

    def change(host: str, cluster: SimulatedCluster, **changes: int) -> None:
        kept = json.loads(cluster.disks[host].nodes[STATE].data.tobytes())
        replace_file(cluster.disks[host], STATE, json.dumps({**kept, **changes}).encode())

    async def is_slave(cluster: SimulatedCluster, host: str) -> bool:
        return (await status_of(cluster, host)).broker_id == 1

    run_in_virtual_time(main())


def test_slave_that_never_followed_and_was_forced_stays_master() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=(), durable_nameservers=False) as cluster:
            await cluster.start("a-1", force_master=True)
            await (await cluster.connect("a-1")).send("A", queue_id=0)
            await cluster.stop("a-1")
            await cluster.start("a-1")
            assert cluster.is_master("a-1")

    run_in_virtual_time(main())


def test_slave_with_log_of_another_broker_deposes_no_master() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=(), durable_nameservers=False) as cluster:
            another = {"broker_id": 0, "nameservers": AWAY}
            await cluster.start("a-1", **another)
            await (await cluster.connect("a-1")).send("A", b"of another store", queue_id=0)
            cluster.lose_power("a-1")
            await cluster.start("a-1", **another)
            assert (await status_of(cluster, "a-1")).highest_epoch == 2
            await cluster.stop("a-1")
            await cluster.start("a")
            client = await cluster.connect("a", "client")
            await client.put_topic("A", 1)
            await client.send("A", b"1")
            await cluster.start("a-1")
            await asyncio.sleep(10)
            assert await registered(cluster) == {0: ("a", 1), 1: ("a-1", 0)}
            await client.send("A", b"2")
            await cluster.stop("a")
            await cluster.start("a")
            assert cluster.is_master("a")

    run_in_virtual_time(main())


@pytest.mark.parametrize("after_ms", [2, 9, 21, 33, 60, 400, 1000])
def test_master_that_dies_while_it_becomes_slave_follows_at_next_start(
    after_ms: int,
) -> None:
    async def main() -> None:
        async with master_and_slave(messages=1, latency_s=0) as (cluster, client):
            cluster.disk_s["a"] = 0.001
            cluster.network.partition("a", "a-1")
            for _ in range(5):
                await client.send("A", b"lost")
            cluster.kill("a")
            await promote(cluster, "a-1")
            await (await cluster.connect("a-1")).send("A", b"new", queue_id=0)
            cluster.network.heal()
            for end in (cluster.kill, cluster.lose_power):
                cluster.begin("a")
                await asyncio.sleep(after_ms / 1000)
                end("a")
            await cluster.start("a")
            await replicated(cluster)
            assert (await status_of(cluster, "a")).role == "slave"
            reply = await (await cluster.connect("a")).pull("A")
            assert bodies(reply) == [b"0", b"new"]

    run_in_virtual_time(main())
