"""A network that fails between a master and its slave: who answers what, and what stays.

Every test ends in the check of its history, and in a comparison of both logs, byte for byte.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from ternmq_remoting.grpc_options import KEEPALIVE_TIME_MS
from tests.support.client_process import TOPIC
from tests.support.history import Outcome
from tests.support.namespaces import PrivateNetwork
from tests.support.parted_cluster import NAMESERVERS, PartedCluster, parted_cluster
from tests.support.processes import eventually

NAME: Final = "broker"
MASTER: Final = "master"
SLAVE: Final = "slave"
FOUND_WITHIN_S: Final = 3 * KEEPALIVE_TIME_MS / 1000
OK: Final = "SEND_OK"
ALONE: Final = "SLAVE_NOT_AVAILABLE"


def _part(network: PrivateNetwork) -> None:
    network.part(MASTER, SLAVE)


def _lose_log(network: PrivateNetwork) -> None:
    network.drop(MASTER, SLAVE)


def _lose_acknowledgements(network: PrivateNetwork) -> None:
    network.drop(SLAVE, MASTER)


async def start(cluster: PartedCluster, role: str) -> None:
    """Start a master with a slave in sync, a reader and a sender."""
    await cluster.start_broker(MASTER, "--role", role, name=NAME)
    async with cluster.connect(MASTER) as client:
        await client.put_topic(TOPIC, 2)
    words = ("--role", role, "--broker-id", "1")
    await cluster.start_broker(SLAVE, *words, name=NAME, is_master=False)
    assert await eventually(lambda: is_in_sync(cluster))
    cluster.start_reader("reader")
    cluster.start_sender()
    await cluster.until_sent(0, NAME)


async def is_in_sync(cluster: PartedCluster) -> bool:
    """Tell whether the master, whoever it is, waits for a slave that has all."""
    async with cluster.admin() as admin:
        for view in await admin.member_views(broker=NAME):
            if view.is_master and view.status is not None:
                return any(each.is_in_sync for each in view.status.followers)
    return False


def first_ms(cluster: PartedCluster, status: str, since_ms: int) -> int | None:
    """Return when a send that began after a moment was first answered so."""
    found = [
        each.ended_ms
        for each in cluster.sends()
        if each.text == status and each.began_ms >= since_ms
    ]
    return min(found, default=None)


async def until_answered(cluster: PartedCluster, status: str, since_ms: int) -> int:
    """Wait for such an answer; return how many milliseconds after the moment it came."""
    assert await eventually(lambda: first_ms(cluster, status, since_ms) is not None), status
    found = first_ms(cluster, status, since_ms)
    assert found is not None
    return found - since_ms


@pytest.mark.parametrize("fail", [_part, _lose_log, _lose_acknowledgements])
def test_sync_master_without_its_slave_reports_it_until_it_returns(
    tmp_path: Path, fail: Callable[[PrivateNetwork], None]
) -> None:
    async def main() -> None:
        async with parted_cluster(tmp_path, NAMESERVERS[:1]) as cluster:
            await start(cluster, "sync_master")
            old = {(MASTER, SLAVE), (SLAVE, MASTER)}
            sockets = {pair: cluster.sockets(*pair) for pair in old}
            assert all(sockets.values()), "they are connected"
            cut_ms = cluster.clock.wall_ms()
            fail(cluster.network)
            alone_ms = await until_answered(cluster, ALONE, cut_ms)

            def is_found() -> bool:
                return not any(sockets[pair] & cluster.sockets(*pair) for pair in old)

            assert await eventually(is_found)
            found_ms = cluster.clock.wall_ms() - cut_ms
            cluster.network.heal()
            healed_ms = cluster.clock.wall_ms()
            back_ms = await until_answered(cluster, OK, healed_ms)
            await cluster.end_clients()
            await cluster.until_same_logs(MASTER, SLAVE)
            cluster.check(redeliveries_max=0)
            print(
                f"{fail.__name__}: said to be alone after {alone_ms} ms, connections found after"
                f" {found_ms} ms, in sync {back_ms} ms after the end"
            )
            assert found_ms <= FOUND_WITHIN_S * 1000

    asyncio.run(main())


@pytest.mark.parametrize("role", ["sync_master", "async_master"])
def test_slave_is_promoted_during_a_partition_and_master_returns_as_slave(
    tmp_path: Path, role: str
) -> None:
    async def main() -> None:
        async with parted_cluster(tmp_path, NAMESERVERS) as cluster:
            await start(cluster, role)
            cut_ms = cluster.clock.wall_ms()
            for other in (SLAVE, *NAMESERVERS):
                cluster.network.part(MASTER, other)
            # Clients still reach the old master, which does not know of its successor.
            await cluster.until_sent(cut_ms, NAME, 100 if role == "async_master" else 20)
            async with cluster.admin() as admin:
                reply = await admin.promote(NAME, 1, is_forced=True)
                await admin.until_master(NAME, reply.epoch)
            promoted_ms = cluster.clock.wall_ms()
            cluster.brokers = {SLAVE: NAME}
            healed_ms = cluster.clock.wall_ms()
            cluster.network.heal()
            assert await eventually(lambda: is_in_sync(cluster))
            followed_ms = cluster.clock.wall_ms() - healed_ms
            await cluster.until_sent(cluster.clock.wall_ms(), NAME)
            await cluster.end_clients()
            await cluster.until_same_logs(SLAVE, MASTER)
            lost = forgive_lost(cluster, cut_ms, role)
            cluster.check()
            print(
                f"{role}: promoted {promoted_ms - cut_ms} ms after the cut, the old master follows"
                f" {followed_ms} ms after its end, without {lost} messages that it alone had"
            )

    asyncio.run(main())


def forgive_lost(cluster: PartedCluster, cut_ms: int, role: str) -> int:
    """Expect no message that only the old master had; return how many of them are lost.

    A synchronous master said so of each; an asynchronous one acknowledged them. Consumers that
    still reached it had them, too.
    """
    history = cluster.history
    lying = {each.message_id for each in history.lying}
    alone = {
        each.message_id
        for each in cluster.sends()
        if (each.text != OK if role == "sync_master" else each.ended_ms >= cut_ms)
    }
    lost = alone - lying
    for name in alone:
        if history.sent[name].outcome is Outcome.STORED:
            history.sent[name].outcome = Outcome.UNKNOWN
    # A consumer that still reached it was given them from places where others lie by now.
    places = {(each.queue, each.queue_offset): each.message_id for each in history.lying}
    history.deliveries = [
        each
        for each in history.deliveries
        if each.message_id not in alone
        or places.get((each.queue, each.queue_offset)) == each.message_id
    ]
    return sum(
        each.outcome is Outcome.STORED for each in cluster.sends() if each.message_id in lost
    )
