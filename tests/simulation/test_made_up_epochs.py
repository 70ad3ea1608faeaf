"""Epochs that nobody began: whoever tells them ends no master, and nothing of them is kept."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_broker.replication.role.epoch_repair import load_record, repaired, save_record
from ternmq_broker.state.epochs import Epoch
from ternmq_model.epochs import EPOCH_STEP_MAX
from ternmq_model.errors import InvalidParameter
from ternmq_model.response_code import ResponseCode as Code
from ternmq_nameserver.epoch_store import FILE_NAME
from ternmq_nameserver.epoch_table import EpochTable
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting import service_methods
from ternmq_runtime.durable_file import replace_durably
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_replicas import (
    master_and_slave,
    promote,
    register_stranger,
    registered,
    replicated,
    status_of,
)

MADE_UP = 1 << 62
STATE = Path("/broker/config/replication.json")


async def say_hello(cluster: SimulatedCluster, *, epoch: int, broker_id: int = 9) -> common.Status:
    """Return what a slave is told by "a" that knows of an epoch."""
    client = await cluster.connect("a", "stranger")
    try:
        stream = client.connection.open(service_methods.FOLLOW)
        hello = replication.FollowHello(
            cluster="DefaultCluster",
            broker_name="a",
            broker_id=broker_id,
            incarnation="stranger",
            store_id=(await status_of(cluster, "a")).store_id,
            highest_epoch=epoch,
        )
        await stream.write(replication.FollowRequest(hello=hello))
        reply = await stream.read()
        assert reply is not None
        return reply.accepted.status
    finally:
        await client.connection.close()


def highest_kept(cluster: SimulatedCluster, name: str) -> int:
    """Return the highest epoch in a broker's file."""
    return int(json.loads(cluster.disks[name].nodes[STATE].data.tobytes())["highestEpoch"])


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER])
@pytest.mark.parametrize("epoch", [1 << 62, 1 + EPOCH_STEP_MAX + 1, 1 + EPOCH_STEP_MAX, 2])
def test_hello_of_stranger_ends_no_master_and_is_not_kept(epoch: int, role: BrokerRole) -> None:
    async def main() -> None:
        async with master_and_slave(role=role, durable_nameservers=True) as (cluster, client):
            for _ in range(20):
                status = await say_hello(cluster, epoch=epoch)
                is_possible = epoch <= 1 + EPOCH_STEP_MAX
                expected = Code.SERVICE_NOT_AVAILABLE if is_possible else Code.INVALID_PARAMETER
                assert status.code == expected
                await asyncio.sleep(0.5)
            assert not (await client.send("A", b"x")).status.code
            assert not (await status_of(cluster, "a")).is_fenced
            cluster.kill("a")
            await cluster.start("a")
            assert highest_kept(cluster, "a") == 2
            await replicated(cluster)
            client = await cluster.connect("a")
            assert not (await client.send("A", b"y")).status.code
            assert highest_kept(cluster, "a-1") == 2
            assert await registered(cluster) == {0: ("a", 2), 1: ("a-1", 2)}

    run_in_virtual_time(main())


@pytest.mark.parametrize("broker_id", [0, 1, 9])
def test_registration_of_stranger_with_made_up_epoch_is_refused(broker_id: int) -> None:
    async def main() -> None:
        async with master_and_slave(durable_nameservers=True) as (cluster, client):
            with pytest.raises(InvalidParameter, match="repair-epoch"):
                await register_stranger(cluster, epoch=1 << 62, broker_id=broker_id)
            await asyncio.sleep(3)
            assert not (await client.send("A", b"x")).status.code
            await cluster.nameservers.stop("ns")
            await cluster.nameservers.start("ns")
            cluster.kill("a")
            await cluster.start("a")
            await replicated(cluster)
            assert await registered(cluster) == {0: ("a", 2), 1: ("a-1", 2)}

    run_in_virtual_time(main())


def test_claim_of_slave_that_new_master_confirms_ends_old_one() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, client):
            cluster.network.partition("a", "ns")
            cluster.network.partition("a", "a-1")
            await promote(cluster, "a-1", is_forced=True)
            await say_hello(cluster, epoch=1_001_000)
            await asyncio.sleep(10)
            assert not (await client.send("A", b"x")).status.code, "nobody could be asked"
            cluster.network.heal()
            cluster.network.partition("a", "ns")
            await say_hello(cluster, epoch=7)
            await until(lambda: is_slave(cluster, "a"))
            assert (await status_of(cluster, "a")).highest_epoch == 1_001_000

    run_in_virtual_time(main())


async def is_slave(cluster: SimulatedCluster, name: str) -> bool:
    return (await status_of(cluster, name)).role == "slave"


def test_claim_of_slave_that_nameserver_confirms_ends_master() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            await register_stranger(cluster, epoch=5)
            await say_hello(cluster, epoch=7)
            await until(lambda: is_slave(cluster, "a"))
            assert (await status_of(cluster, "a")).highest_epoch == 5

    run_in_virtual_time(main())


@pytest.mark.parametrize("is_nameserver_back", [True, False])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_master_that_missed_registrations_of_stranger_follows_promoted_slave(
    steps: int, *, is_nameserver_back: bool
) -> None:
    async def main() -> None:
        async with master_and_slave(durable_nameservers=True) as (cluster, _):
            cluster.network.partition("a", "ns")
            cluster.network.partition("a", "a-1")
            for step in range(1, steps + 1):
                await register_stranger(cluster, epoch=1 + step * EPOCH_STEP_MAX)
            promoted = (await promote(cluster, "a-1", is_forced=True)).epoch
            assert promoted // EPOCH_STEP_MAX == steps
            cluster.network.heal()
            if not is_nameserver_back:
                await cluster.nameservers.stop("ns")
                await say_hello(cluster, epoch=promoted)
            await until(lambda: is_slave(cluster, "a"))
            await replicated(cluster)
            assert [highest_kept(cluster, each) for each in ("a", "a-1")] == [promoted, promoted]
            cluster.kill("a")
            await cluster.start("a")
            await replicated(cluster)
            await (await cluster.connect("a-1")).send("A", b"x")
            if is_nameserver_back:
                assert (await registered(cluster))[0] == ("a-1", promoted)

    run_in_virtual_time(main())


def test_slave_that_missed_registrations_of_stranger_follows_promoted_one() -> None:
    async def main() -> None:
        settings: dict[str, Any] = {"brokers": ("a", "a-1", "a-2"), "role": BrokerRole.SYNC_MASTER}
        async with master_and_slave(durable_nameservers=True, **settings) as (cluster, _):
            for one, other in (("a", "ns"), ("a", "a-1"), ("a-2", "ns"), ("a-2", "a-1")):
                cluster.network.partition(one, other)
            await register_stranger(cluster, epoch=1 + EPOCH_STEP_MAX)
            promoted = (await promote(cluster, "a-1", is_forced=True)).epoch
            cluster.network.heal()
            await until(lambda: is_slave(cluster, "a"))
            await replicated(cluster)
            for name in ("a", "a-1", "a-2"):
                assert (await status_of(cluster, name)).epochs[-1].number == promoted

    run_in_virtual_time(main())


def test_slave_is_promoted_above_registrations_of_stranger() -> None:
    async def main() -> None:
        async with master_and_slave(durable_nameservers=True) as (cluster, _):
            for step in (1, 2, 3):
                await register_stranger(cluster, epoch=1 + step * EPOCH_STEP_MAX)
            await until(lambda: is_slave(cluster, "a"))
            promoted = (await promote(cluster, "a-1")).epoch
            assert 3 * EPOCH_STEP_MAX < promoted < 4 * EPOCH_STEP_MAX
            await replicated(cluster)
            assert (await registered(cluster))[0] == ("a-1", promoted)
            await (await cluster.connect("a-1")).send("A", b"x")

    run_in_virtual_time(main())


async def poison_nameserver(cluster: SimulatedCluster, *, epoch: int = MADE_UP) -> None:
    """Restart the NameServer with the epoch that an older version took from a stranger."""
    assert cluster.nameservers.folder is not None
    path = cluster.nameservers.folder / "ns" / FILE_NAME
    await cluster.nameservers.stop("ns")
    replace_durably(path, EpochTable({("DefaultCluster", "a"): epoch}).to_json(), in_both=True)
    await cluster.nameservers.start("ns")


def test_nameserver_that_kept_made_up_epoch_deposes_nobody_and_is_repaired(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with master_and_slave(durable_nameservers=True) as (cluster, client):
            await poison_nameserver(cluster)
            await asyncio.sleep(5)
            assert not (await client.send("A", b"x")).status.code
            assert set(await registered(cluster)) == {1}
            not_taken = [each for each in caplog.messages if each.startswith("epoch refused")]
            assert len(not_taken) == 2  # once at each member
            cluster.kill("a")
            await cluster.start("a")  # its slave confirms it
            await replicated(cluster)
            assert [highest_kept(cluster, name) for name in ("a", "a-1")] == [2, 2]
            await poison_nameserver(cluster, epoch=2)
            await until(lambda: knows(cluster, {0: ("a", 2), 1: ("a-1", 2)}))

    run_in_virtual_time(main())


async def knows(cluster: SimulatedCluster, members: dict[int, tuple[str, int]]) -> bool:
    return await registered(cluster) == members


@pytest.mark.parametrize("entries", [[], [MADE_UP + 1], [MADE_UP + 1, MADE_UP + 2]])
def test_members_that_kept_made_up_epochs_are_repaired(entries: list[int]) -> None:
    async def main() -> None:
        async with master_and_slave(durable_nameservers=True) as (cluster, _):
            for name in ("a", "a-1"):
                await cluster.stop(name)
            await poison_nameserver(cluster)
            for name in ("a", "a-1"):
                files = cluster.disks[name]
                kept, _ = load_record(files, STATE.parent.parent)
                poisoned = tuple(Epoch(number, kept.confirmed) for number in entries)
                kept = replace(
                    kept, epochs=(*kept.epochs, *poisoned), highest_epoch=max([MADE_UP, *entries])
                )
                save_record(files, STATE.parent.parent, kept)
                save_record(files, STATE.parent.parent, repaired(kept, real=1))
            cluster.begin("a")
            await cluster.start("a-1")
            await replicated(cluster)
            epoch = (await status_of(cluster, "a")).epochs[-1].number
            assert epoch == 1 + len(entries)
            await (await cluster.connect("a")).send("A", b"x", queue_id=0)

    run_in_virtual_time(main())


def test_promotions_in_a_row_pass_nameserver_that_missed_most_of_them() -> None:
    async def main() -> None:
        async with master_and_slave(durable_nameservers=True, nameservers=2) as (cluster, _):
            await cluster.nameservers.stop("ns")
            for number in range(1, 7):
                old, new = ("a", "a-1") if number % 2 else ("a-1", "a")
                cluster.kill(old)
                reply = await promote(cluster, new)
                assert reply.epoch // 1_000_000 == number
                await cluster.start(old)
                await replicated(cluster)
            await cluster.nameservers.start("ns")
            await until(lambda: knows(cluster, {0: ("a", 6_000_000), 1: ("a-1", 6_000_000)}))

    run_in_virtual_time(main())
