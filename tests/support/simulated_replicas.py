"""Members of one broker name in a simulated cluster: promoting them, and comparing their logs."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import numpy as np

from ternmq_model.address import parse_address
from ternmq_model.errors import TernError
from ternmq_model.route import MASTER_ID
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import until
from tests.support.brokers import Client
from tests.support.simulated_cluster import (
    NAMESERVER,
    SimulatedCluster,
    broker_name_of,
    simulated_cluster,
)

Status = replication.ReplicationStatusReply
_LOOK_S: Final = 0.1
_TABLES_S: Final = 1.5
"""A slave has its master's tables after this time, if nothing is in its way."""


async def ask_to_promote(
    cluster: SimulatedCluster, name: str, *, is_forced: bool = False
) -> admin.PromoteReply:
    """Promote a slave; return as soon as it answers.

    Raises:
        TernError: It refuses, or does not answer.
    """
    request = admin.PromoteRequest(is_forced=is_forced)
    return await cluster.ask(name, service_methods.PROMOTE, request)


async def promote(
    cluster: SimulatedCluster, name: str, *, is_forced: bool = False, within_s: float = 60
) -> admin.PromoteReply:
    """Promote a slave; return its answer when it answers as the master.

    Raises:
        TernError: It refuses, or does not answer.
        AssertionError: It does not become the master in time.
    """

    async def is_master() -> bool:
        return (await status_of(cluster, name)).broker_id == MASTER_ID

    reply = await ask_to_promote(cluster, name, is_forced=is_forced)
    await until(is_master, within_s)
    return reply


async def status_of(cluster: SimulatedCluster, name: str) -> Status:
    """Return the replication status of a member.

    Raises:
        TernError: It does not answer.
    """
    request = replication.ReplicationStatusRequest()
    return await cluster.ask(name, service_methods.REPLICATION_STATUS, request)


async def registered(
    cluster: SimulatedCluster, broker_name: str = "a"
) -> dict[int, tuple[str, int]]:
    """Return host and epoch of every member that the first NameServer knows, by id."""
    network = cluster.network.host("admin")
    connection = await network.connect([parse_address(NAMESERVER, setting="nameservers")])
    request = nameserver.GetClusterRequest(broker_name=broker_name)
    reply = await connection.call(service_methods.GET_CLUSTER, request, timeout_s=5)
    await connection.close()
    return {
        member.broker_id: (member.endpoints[0].host, member.epoch)
        for data in reply.brokers
        for member in data.members
    }


async def register_stranger(cluster: SimulatedCluster, *, epoch: int, broker_id: int = 9) -> None:
    """Register a member of "a" that there is not, with the first NameServer.

    Raises:
        TernError: It refuses, or does not answer.
    """
    network = cluster.network.host("stranger")
    connection = await network.connect([parse_address(NAMESERVER, setting="nameservers")])
    request = nameserver.RegisterBrokerRequest(
        cluster="DefaultCluster",
        broker_name="a",
        broker_id=broker_id,
        endpoints=[common.Endpoint(host="stranger", port=1)],
        incarnation="stranger",
        epoch=epoch,
    )
    try:
        await connection.call(service_methods.REGISTER_BROKER, request, timeout_s=5)
    finally:
        await connection.close()


async def start_slave(cluster: SimulatedCluster, name: str = "a-1", **settings: Any) -> None:
    """Start a slave, and return when it has the log and the tables of its master."""
    await cluster.start(name, **settings)
    await replicated(cluster, broker_name_of(name))


@asynccontextmanager
async def master_and_slave(
    *, messages: int = 20, **settings: Any
) -> AsyncGenerator[tuple[SimulatedCluster, Client]]:
    """Give a cluster of "a" and its slave "a-1", and a client of "a".

    Both have a topic "A" of one queue. The NameServer forgets epochs at a restart.

    Args:
        messages: How many the topic has: "0", "1" and so on.
        settings: Of the cluster, other than these.
    """
    settings = {"brokers": ("a", "a-1"), "durable_nameservers": False, **settings}
    async with simulated_cluster(**settings) as cluster:
        client = await cluster.connect("a", "client")
        await client.put_topic("A", 1)
        for number in range(messages):
            await client.send("A", b"%d" % number)
        await replicated(cluster)
        yield cluster, client
        await client.connection.close()


async def caught_up(
    cluster: SimulatedCluster, broker_name: str, *, timeout_s: float = 120
) -> dict[str, Status]:
    """Wait until all members of a name that run have, and may serve, the same log, and follow on.

    Returns:
        The status of each then.

    Raises:
        AssertionError: They did not in time.
    """
    told: dict[str, Status] = {}
    for _ in range(round(timeout_s / _LOOK_S)):
        with suppress(TernError):
            told = {each: await status_of(cluster, each) for each in cluster.members(broker_name)}
            slaves = [each for each in told.values() if each.broker_id != MASTER_ID]
            ends = {end for each in told.values() for end in (each.log_end, each.confirm_offset)}
            epochs = {each.epochs[-1].number if each.epochs else 0 for each in told.values()}
            is_one = len(told) - len(slaves) == len(ends) == len(epochs) == 1
            if is_one and all(each.following.is_connected for each in slaves):
                return told
        await asyncio.sleep(_LOOK_S)
    raise AssertionError(f"seed {cluster.seed}: members of {broker_name} differ: {told}")


async def replicated(cluster: SimulatedCluster, broker_name: str = "a") -> None:
    """Wait, for half a minute at most, until all members that run have the same log and tables."""
    await caught_up(cluster, broker_name, timeout_s=30)
    await asyncio.sleep(_TABLES_S)


async def compare_logs(cluster: SimulatedCluster, *broker_names: str) -> None:
    """Compare the logs of all members, byte for byte, once they have caught up.

    Raises:
        AssertionError: They differ below the offset up to which each may serve its log.
    """
    for broker_name in broker_names:
        members = await caught_up(cluster, broker_name)
        start = max(each.log_start for each in members.values())
        end = min(each.confirm_offset for each in members.values())
        logs = {each: log_bytes(cluster, each, start, end) for each in members}
        first, *others = logs
        for other in others:
            at = _differ_at(logs[first], logs[other])
            where = f"seed {cluster.seed}: {first} and {other} differ at {start + at}"
            assert at == end - start, where


def log_bytes(cluster: SimulatedCluster, name: str, start: int, end: int) -> bytes:
    """Return a part of a member's log as it lies in its files."""
    found = bytearray()
    for path, node in sorted(cluster.disks[name].nodes.items()):
        if path.parent.name == "commitlog" and path.name.isdigit():
            at = int(path.name)
            found += node.data[max(start - at, 0) : max(end - at, 0)].tobytes()
    assert len(found) == end - start, f"{name} has {len(found)} bytes of [{start}, {end})"
    return bytes(found)


def _differ_at(one: bytes, other: bytes) -> int:
    """Return how many bytes two logs of one length begin with alike."""
    unlike = np.frombuffer(one, np.uint8) != np.frombuffer(other, np.uint8)
    return int(np.argmax(unlike)) if unlike.any() else len(one)
