"""A network that fails between clients and brokers costs time, and no message.

Every test ends in the check of its history: what was acknowledged lies in its queue, and the group
had all of it.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_remoting.grpc_options import KEEPALIVE_TIME_MS
from tests.support.client_process import TOPIC, deliveries_of
from tests.support.history import Outcome
from tests.support.namespaces import PrivateNetwork
from tests.support.parted_cluster import NAMESERVERS, PartedCluster, parted_cluster
from tests.support.processes import eventually

FOUND_WITHIN_S: Final = 3 * KEEPALIVE_TIME_MS / 1000
BACK_WITHIN_S: Final = 15.0
"""Half of the time after which a broker would register in any case."""
IDLERS: Final = "idlers"
BROKERS: Final = ("broker-a", "broker-b")


def _part(network: PrivateNetwork) -> None:
    network.part("sender", "broker-a")


def _lose_requests(network: PrivateNetwork) -> None:
    network.drop("sender", "broker-a")


def _lose_replies(network: PrivateNetwork) -> None:
    network.drop("broker-a", "sender")


async def start(cluster: PartedCluster, *, duplicates_allowed: bool = True) -> None:
    """Start two brokers with a topic, a sender and a reader; return when all are at work."""
    for name in BROKERS:
        await cluster.start_broker(name)
        await put_topic(cluster, name, TOPIC)
    cluster.start_reader("reader")
    cluster.start_sender(duplicates_allowed=duplicates_allowed)
    for name in BROKERS:
        await cluster.until_sent(0, name)
    assert await eventually(lambda: bool(deliveries_of(cluster.notes()))), "nobody reads"


async def put_topic(cluster: PartedCluster, machine: str, topic: str) -> None:
    """Make a topic of two queues on one broker."""
    async with cluster.connect(machine) as client:
        await client.put_topic(topic, 2)


@pytest.mark.parametrize(
    ("fail", "duplicates_allowed"), [(_part, True), (_lose_requests, True), (_lose_replies, False)]
)
def test_senders_switch_brokers_while_the_network_fails_and_return(
    tmp_path: Path, fail: Callable[[PrivateNetwork], None], *, duplicates_allowed: bool
) -> None:
    async def main() -> None:
        async with parted_cluster(tmp_path) as cluster:
            cluster.history.stored_twice_allowed = duplicates_allowed
            await start(cluster, duplicates_allowed=duplicates_allowed)
            cut_ms = cluster.clock.wall_ms()
            fail(cluster.network)
            elsewhere_ms = await cluster.until_sent(cut_ms + 1, "broker-b", 50)
            healed_ms = cluster.clock.wall_ms()
            cluster.network.heal()
            back_ms = await cluster.until_sent(healed_ms + 1, "broker-a")
            await cluster.end_clients()
            cluster.check()
            print(
                f"{fail.__name__}: cut for {healed_ms - cut_ms} ms, elsewhere after"
                f" {elsewhere_ms - cut_ms} ms, back after {back_ms - healed_ms} ms,"
                f" {len(cluster.history.sent)} sent"
            )

    asyncio.run(main())


def _part_from_names(network: PrivateNetwork) -> None:
    for name in NAMESERVERS:
        for other in ("broker-a", "sender", "reader"):
            network.part(name, other)


def _lose_replies_of_names(network: PrivateNetwork) -> None:
    for name in NAMESERVERS:
        for other in ("broker-a", "sender", "reader"):
            network.drop(name, other)


async def is_everywhere(cluster: PartedCluster, topic: str) -> bool:
    """Tell whether every NameServer knows the routes of a topic."""
    for address in cluster.nameservers:
        async with cluster.admin(address) as admin:
            if topic not in await admin.topics():
                return False
    return True


@pytest.mark.parametrize("fail", [_part_from_names, _lose_replies_of_names])
def test_clients_survive_loss_of_all_nameservers_and_news_arrives_at_once(
    tmp_path: Path, fail: Callable[[PrivateNetwork], None]
) -> None:
    async def main() -> None:
        async with parted_cluster(tmp_path, NAMESERVERS) as cluster:
            await start(cluster)
            fail(cluster.network)
            await put_topic(cluster, "broker-a", "new")
            cut_ms = cluster.clock.wall_ms()
            for name in BROKERS:
                await cluster.until_sent(cut_ms, name, 200)
            healed_ms = cluster.clock.wall_ms()
            cluster.network.heal()
            assert await eventually(lambda: is_everywhere(cluster, "new"))
            back_ms = cluster.clock.wall_ms() - healed_ms
            await cluster.end_clients()
            cluster.check(redeliveries_max=0)
            assert all(each.outcome is Outcome.STORED for each in cluster.history.sent.values())
            print(f"cut for {healed_ms - cut_ms} ms, back after {back_ms} ms")
            assert back_ms <= BACK_WITHIN_S * 1000

    asyncio.run(main())


def test_half_open_connections_are_found_on_both_sides_by_the_second_keepalive(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with parted_cluster(tmp_path, NAMESERVERS) as cluster:
            await start(cluster)
            await put_topic(cluster, "broker-a", "quiet")
            cluster.start_reader("idle", group=IDLERS, topic="quiet")
            assert await eventually(lambda: has_members(cluster, "broker-a", IDLERS, 1))
            parted = ("sender", "reader", "idle")
            pairs = [pair for one in parted for pair in ((one, "broker-a"), ("broker-a", one))]
            old = {pair: cluster.sockets(*pair) for pair in pairs}
            assert all(old.values()), "each is connected"
            cut_ms = cluster.clock.wall_ms()
            for name in parted:
                cluster.network.part(name, "broker-a")
            found_ms: dict[tuple[str, str], int] = {}

            def is_found() -> bool:
                for pair in old.keys() - found_ms.keys():
                    if not old[pair] & cluster.sockets(*pair):
                        found_ms[pair] = cluster.clock.wall_ms() - cut_ms
                return len(found_ms) == len(old)

            assert await eventually(is_found), f"found: {found_ms}"
            assert await eventually(lambda: has_members(cluster, "broker-a", IDLERS, 0))
            gone_ms = cluster.clock.wall_ms() - cut_ms
            cluster.network.heal()
            await cluster.until_sent(cluster.clock.wall_ms(), "broker-a")
            assert await eventually(lambda: has_members(cluster, "broker-a", IDLERS, 1))
            await cluster.end_clients()
            cluster.history.stored_twice_allowed = True
            cluster.check()
            print(f"found after {found_ms} ms, a member is gone after {gone_ms} ms")
            assert max(found_ms.values()) <= FOUND_WITHIN_S * 1000
            assert gone_ms <= FOUND_WITHIN_S * 1000

    asyncio.run(main())


async def has_members(cluster: PartedCluster, machine: str, group: str, count: int) -> bool:
    """Tell whether a broker knows so many members of a group."""
    request = groups.ListMembersRequest(group=group)
    async with cluster.connect(machine) as client:
        return len((await client.call(service_methods.LIST_MEMBERS, request)).client_ids) == count
