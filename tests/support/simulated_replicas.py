"""Members of one broker name in a simulated cluster: promoting them, and comparing their logs."""

import asyncio
from contextlib import suppress
from typing import Final

import numpy as np

from ternmq_model.errors import TernError
from ternmq_model.route import MASTER_ID
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting import contracts
from tests.support.simulated_cluster import SimulatedCluster

Standing = replication.ReplicationStatusReply
_LOOK_S: Final = 0.1


async def promote(cluster: SimulatedCluster, name: str, *, is_forced: bool = False) -> int:
    """Make a slave the master by hand; return the epoch that it begins, when it serves.

    Raises:
        TernError: It refuses, or does not answer.
        AssertionError: It does not become the master within a minute.
    """
    request = admin.PromoteRequest(is_forced=is_forced)
    reply: admin.PromoteReply = await cluster.ask(name, contracts.PROMOTE, request)
    for _ in range(round(60 / _LOOK_S)):
        if cluster.is_master(name):
            return reply.epoch
        await asyncio.sleep(_LOOK_S)
    raise AssertionError(f"seed {cluster.seed}: {name} was promoted and is no master")


async def standing(cluster: SimulatedCluster, name: str) -> Standing:
    """Return how a member stands.

    Raises:
        TernError: It does not answer.
    """
    request = replication.ReplicationStatusRequest()
    reply: Standing = await cluster.ask(name, contracts.REPLICATION_STATUS, request)
    return reply


async def caught_up(
    cluster: SimulatedCluster, broker_name: str, *, timeout_s: float = 120
) -> dict[str, Standing]:
    """Wait until all members of a name that run have, and may serve, the same log.

    Returns:
        How each stands then.

    Raises:
        AssertionError: They did not in time.
    """
    told: dict[str, Standing] = {}
    for _ in range(round(timeout_s / _LOOK_S)):
        with suppress(TernError):
            told = {each: await standing(cluster, each) for each in cluster.members(broker_name)}
            masters = [each for each in told.values() if each.broker_id == MASTER_ID]
            ends = {end for each in told.values() for end in (each.log_end, each.confirm_offset)}
            reigns = {each.epochs[-1].number if each.epochs else 0 for each in told.values()}
            if len(masters) == len(ends) == len(reigns) == 1:
                return told
        await asyncio.sleep(_LOOK_S)
    raise AssertionError(f"seed {cluster.seed}: members of {broker_name} differ: {told}")


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
