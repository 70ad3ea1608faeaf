"""Epochs that nobody began: whoever tells them ends no master, and nothing of them is kept."""

import asyncio
import json
from pathlib import Path

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_model.epochs import EPOCH_STEP_MAX
from ternmq_model.errors import InvalidParameter
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting import contracts
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_replicas import (
    master_and_slave,
    promote,
    register_stranger,
    registered,
    replicated,
    status_of,
)
from tests.support.virtual_time import run_in_virtual_time, until

STATE = Path("/broker/config/replication.json")


async def say_hello(cluster: SimulatedCluster, *, epoch: int, broker_id: int = 9) -> common.Status:
    """Return what a slave is told by "a" that knows of an epoch."""
    client = await cluster.connect("a", "stranger")
    try:
        stream = client.connection.open(contracts.FOLLOW)
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


def test_claim_of_slave_that_nameserver_confirms_ends_master() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            await register_stranger(cluster, epoch=5)
            await say_hello(cluster, epoch=7)
            await until(lambda: is_slave(cluster, "a"))
            assert (await status_of(cluster, "a")).highest_epoch == 5

    async def is_slave(cluster: SimulatedCluster, name: str) -> bool:
        return (await status_of(cluster, name)).role == "slave"

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

    async def knows(cluster: SimulatedCluster, members: dict[int, tuple[str, int]]) -> bool:
        return await registered(cluster) == members

    run_in_virtual_time(main())
