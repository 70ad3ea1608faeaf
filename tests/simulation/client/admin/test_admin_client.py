"""Administration against NameServers, over the in-memory network on virtual time."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_console.access.cluster_access import change_access, read_access
from ternmq_model.address import Address
from ternmq_model.errors import IllegalName, RefusedError, Unreachable, UsageError
from ternmq_model.response_code import ResponseCode
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_remoting import service_methods
from ternmq_remoting.environment import Environment
from ternmq_security.access.access_table import AccessTable
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time
from tests.support.users import Users, authorization_of

HOSTS = ("ns-1", "ns-2")


def environment(network: MemoryNetwork, host: str) -> Environment:
    return Environment(
        clock=VirtualClock(),
        network=network.host(host),
        random=Random(1),
        blocking=InlineBlocking(),
    )


@asynccontextmanager
async def two_nameservers(
    client: str = "client",
) -> AsyncGenerator[tuple[MemoryNetwork, AdminClient]]:
    config = NameServerConfig(listen="0.0.0.0")
    async with (
        MemoryNetwork(Random(1)) as network,
        NameServer(config, environment(network, "ns-1")),
        NameServer(config, environment(network, "ns-2")),
        AdminClient(
            nameserver=[f"{host}:9876" for host in HOSTS],
            env=environment(network, client),
        ) as admin,
    ):
        yield network, admin


async def register(network: MemoryNetwork, *nameservers: str, life: str = "1") -> None:
    for host in nameservers:
        connection = await network.connect([_address(host)])
        topics = [
            common.TopicConfig(topic=topic, read_queues=1, write_queues=1, permissions=6)
            for topic in "tu"
        ]
        request = pb.RegisterBrokerRequest(
            cluster="c",
            broker_name="a",
            endpoints=[common.Endpoint(host="a-0", port=10911)],
            data_version=common.DataVersion(timestamp_ms=1),
            topics=topics,
            incarnation=life,
        )
        await connection.call(service_methods.REGISTER_BROKER, request, timeout_s=3.0)
        await connection.close()


async def permissions(network: MemoryNetwork, host: str) -> int:
    connection = await network.connect([_address(host)])
    request = pb.GetTopicRouteRequest(topic="t")
    reply = await connection.call(service_methods.GET_TOPIC_ROUTE, request, timeout_s=3.0)
    await connection.close()
    return reply.route.queues[0].permissions


def _address(host: str) -> Address:
    return Address(host, 9876)


def test_write_permission_is_wiped_at_every_nameserver() -> None:
    async def main() -> None:
        async with two_nameservers() as (network, admin):
            await register(network, *HOSTS)
            assert await admin.wipe_write_permission("a") == 2
            assert [await permissions(network, host) for host in HOSTS] == [4, 4]
            assert await admin.wipe_write_permission("a") == 0
            await register(network, *HOSTS, life="2")
            assert [await permissions(network, host) for host in HOSTS] == [6, 6]

    run_in_virtual_time(main())


def test_write_permission_is_restored_at_every_nameserver() -> None:
    async def main() -> None:
        async with two_nameservers() as (network, admin):
            await register(network, *HOSTS)
            await admin.wipe_write_permission("a")
            assert await admin.add_write_permission("a") == 2
            assert [await permissions(network, host) for host in HOSTS] == [6, 6]
            assert await admin.add_write_permission("a") == 0
            with pytest.raises(RefusedError, match="no broker b is registered"):
                await admin.add_write_permission("b")

    run_in_virtual_time(main())


def test_topic_order_is_kept_by_every_nameserver_and_reaches_its_route() -> None:
    async def main() -> None:
        async with two_nameservers() as (network, admin):
            await register(network, *HOSTS)
            assert await admin.topic_order("t") == ""
            await admin.set_topic_order("t", "a:4;b:2")
            assert await admin.topic_order("t") == "a:4;b:2"
            for host in HOSTS:
                assert await order_in_route(network, host) == "a:4;b:2"
            await admin.set_topic_order("t", "")
            assert await order_in_route(network, "ns-2") == ""
            with pytest.raises(UsageError, match="'a=4'"):
                await admin.set_topic_order("t", "a=4")
            with pytest.raises(IllegalName, match="no good"):
                await admin.set_topic_order("no good", "a:4")
            with pytest.raises(IllegalName, match="SCHEDULE_TOPIC_XXXX"):
                await admin.set_topic_order("SCHEDULE_TOPIC_XXXX", "a:4")

    run_in_virtual_time(main())


async def order_in_route(network: MemoryNetwork, host: str) -> str:
    connection = await network.connect([_address(host)])
    request = pb.GetTopicRouteRequest(topic="t")
    reply = await connection.call(service_methods.GET_TOPIC_ROUTE, request, timeout_s=3.0)
    await connection.close()
    return reply.route.order_topic_conf


def test_unreached_nameserver_is_named_and_the_other_was_updated() -> None:
    async def main() -> None:
        async with two_nameservers() as (network, admin):
            await register(network, *HOSTS)
            network.partition("client", "ns-1")
            with pytest.raises(
                Unreachable, match=r"no answer from 1 of 2 nameservers: ns-1:9876"
            ) as told:
                await admin.wipe_write_permission("a")
            assert told.value.may_have_happened
            assert [await permissions(network, host) for host in HOSTS] == [6, 4]
            network.heal()
            assert await admin.wipe_write_permission("a") == 2

    run_in_virtual_time(main())


def test_broker_is_unknown_when_no_nameserver_knows_it() -> None:
    async def main() -> None:
        async with two_nameservers() as (network, admin):
            with pytest.raises(RefusedError, match="no broker a is registered") as caught:
                await admin.wipe_write_permission("a")
            assert caught.value.code == ResponseCode.BROKER_NOT_EXIST
            await register(network, "ns-2")
            assert await admin.wipe_write_permission("a") == 2
            with pytest.raises(IllegalName, match="broker name"):
                await admin.wipe_write_permission("a b")

    run_in_virtual_time(main())


def test_unreachable_nameservers_mean_nothing_has_happened() -> None:
    async def main() -> None:
        async with two_nameservers() as (network, admin):
            for host in HOSTS:
                network.partition("client", host)
            with pytest.raises(Unreachable, match="no answer from 2 of 2 nameservers") as told:
                await admin.wipe_write_permission("a")
            assert not told.value.may_have_happened

    run_in_virtual_time(main())


def test_newest_table_of_users_is_read_and_one_nameserver_changes_it() -> None:
    first = AccessTable().with_denied_certificate(serial="1")
    second = first.with_denied_certificate(serial="2")

    async def main() -> None:
        async with two_nameservers("localhost") as (
            network,
            admin,
        ):  # which do not share their tables
            assert await admin.access_table() == (0, AccessTable().to_json())
            await admin.put_access_table(first.to_json(), 0)
            assert await admin.access_table() == (1, first.to_json())
            with pytest.raises(RefusedError, match="version 1") as refused:
                await admin.put_access_table(first.to_json(), 0)
            assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
            network.partition("localhost", "ns-1")
            assert (await admin.access_table())[0] == 0
            await admin.put_access_table(second.to_json(), 0)
            network.heal()
            assert await admin.access_table() == (2, second.to_json())
            with pytest.raises(RefusedError, match="version 1"):
                await admin.put_access_table(second.to_json(), 2)
            for host in HOSTS:
                network.partition("localhost", host)
            with pytest.raises(Unreachable):
                await admin.access_table()
            with pytest.raises(Unreachable):
                await admin.put_access_table(second.to_json(), 2)

    run_in_virtual_time(main())


def test_changes_of_users_at_the_same_time_are_all_made() -> None:
    serials = [f"{each:x}" for each in range(1, 11)]

    async def main() -> None:
        async def deny(admin: AdminClient, serial: str) -> None:
            await change_access(admin, lambda table: table.with_denied_certificate(serial=serial))

        async with two_nameservers("localhost") as (_, admin):
            await asyncio.gather(*(deny(admin, serial) for serial in serials))
            table = await read_access(admin)
            assert table.denied_serials == tuple(sorted(serials))
            assert table.version == len(serials)

    run_in_virtual_time(main())


def test_nameserver_that_knows_no_users_leaves_their_change_to_the_next() -> None:
    users = Users()

    async def main() -> None:
        config = NameServerConfig(listen="0.0.0.0")
        ignorant = NameServerConfig(listen="0.0.0.0", peers=("ns-1:9876",))
        async with MemoryNetwork(Random(1)) as network:
            env = environment(network, "localhost")
            network.host("localhost").authorization = authorization_of("root")
            async with (
                NameServer(config, environment(network, "ns-1")),
                AdminClient(nameserver="ns-1:9876", env=env) as first,
                AdminClient(nameserver="ns-2:9876,ns-1:9876", env=env) as admin,
            ):
                await first.put_access_table(users.table.to_json(), 0)
                async with NameServer(ignorant, environment(network, "ns-2")):
                    await asyncio.sleep(2)  # its peer refuses it
                    version = users.table.version
                    users.add("shop")
                    await admin.put_access_table(users.table.to_json(), version)
                    assert await read_access(admin) == users.table

    run_in_virtual_time(main())
