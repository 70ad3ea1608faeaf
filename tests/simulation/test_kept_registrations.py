"""What NameServers tell of a member while it passes from one role to another."""

import asyncio
from collections.abc import Sequence

import pytest

from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_remoting.rpc import ClientStream
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.simulated_cluster import PORT, SimulatedCluster
from tests.support.simulated_replicas import (
    master_and_slave,
    promote,
    registered,
    start_slave,
)

Told = dict[int, tuple[str, int]]


async def look_on(cluster: SimulatedCluster, seen: list[Told]) -> None:
    """Note every change of what the NameServer tells of the broker name, until cancelled."""
    while True:
        told = await registered(cluster)
        if not seen or seen[-1] != told:
            seen.append(told)
        await asyncio.sleep(0.001)


def hosts(seen: Sequence[Told]) -> list[dict[int, str]]:
    """Return the members without their epochs."""
    return [{broker_id: host for broker_id, (host, _) in told.items()} for told in seen]


@pytest.mark.parametrize("host", ["a-1", "*"])
def test_promoted_slave_stays_registered_until_it_is_the_master(host: str) -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            # An address that names no host does not tell that both ids are one process.
            await cluster.stop("a-1")
            await start_slave(cluster, advertised=(f"{host}:{PORT}",))
            await cluster.stop("a")
            seen = list[Told]()
            looking = asyncio.create_task(look_on(cluster, seen))
            await promote(cluster, "a-1")
            await asyncio.sleep(1)
            looking.cancel()
            ids = [sorted(told) for told in seen]
            assert (ids[0], ids[-1]) == ([1], [0]), seen
            assert [] not in ids
            assert hosts(seen)[-1] == {0: host}
            await cluster.stop("a-1")
            assert await registered(cluster) == {}

    run_in_virtual_time(main())


def test_registration_that_a_silent_nameserver_kept_is_withdrawn_when_it_answers_again() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            await cluster.stop("a-1")
            await start_slave(cluster, advertised=(f"*:{PORT}",))
            await cluster.stop("a")
            cluster.network.partition("a-1", "ns")
            await asyncio.sleep(1.5)  # the look whether it is registered has begun, and lasts
            promoting = asyncio.create_task(promote(cluster, "a-1", is_forced=True))
            await until(lambda: _is_master(cluster, "a-1"))
            cluster.network.heal()
            await promoting
            await asyncio.sleep(3)
            assert sorted(await registered(cluster)) == [0]

    run_in_virtual_time(main())


async def _is_master(cluster: SimulatedCluster, name: str) -> bool:
    return cluster.is_master(name)


def test_replaced_master_is_not_registered_as_master_while_it_becomes_a_slave() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            cluster.network.partition("a", "a-1")
            cluster.network.partition("a", "ns")
            await asyncio.sleep(20)
            await promote(cluster, "a-1", is_forced=True)
            seen = list[Told]()
            looking = asyncio.create_task(look_on(cluster, seen))
            cluster.network.heal()
            await until(lambda: _is_registered(cluster, 100))
            looking.cancel()
            assert {told.get(0) for told in hosts(seen)} == {"a-1"}
            assert hosts(seen)[-1] == {0: "a-1", 100: "a"}

    run_in_virtual_time(main())


async def _is_registered(cluster: SimulatedCluster, broker_id: int) -> bool:
    return broker_id in await registered(cluster)


def test_promoted_slave_tells_sessions_when_it_is_registered() -> None:
    async def main() -> None:
        async with master_and_slave() as (cluster, _):
            await cluster.stop("a")
            cluster.network.partition("a-1", "ns")
            reply = await promote(cluster, "a-1", is_forced=True)
            client = await cluster.connect("a-1", "consumer")
            stream = client.connection.open(service_methods.SESSION)
            hello = groups.Hello(client_id="c", incarnation="1")
            await stream.write(groups.SessionRequest(hello=hello))
            assert (await heard(stream)).HasField("welcome")
            cluster.network.heal()
            told = (await heard(stream)).place_registered
            assert (told.broker_id, told.epoch) == (0, reply.epoch)
            assert await registered(cluster) == {0: ("a-1", reply.epoch)}
            stream.cancel()
            await client.connection.close()

    async def heard(
        stream: ClientStream[groups.SessionReply, groups.SessionRequest],
    ) -> groups.SessionReply:
        said = await stream.read()
        assert said is not None
        return said

    run_in_virtual_time(main())
