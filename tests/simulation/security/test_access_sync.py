"""Tables of users that NameServers and brokers take from each other, or not."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import RefusedError
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_remoting import service_methods
from ternmq_security.access.access_table import AccessTable, Doubt, first_administrator
from ternmq_security.access.user import User
from ternmq_testing.memory.memory_network import Loss
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.shared_users import (
    GET,
    HOSTS,
    PORT,
    is_refused,
    named,
    shared,
    started,
)
from tests.support.users import Users, grant, put_table, token_of

LIST = pb.ListTopicsRequest()
USER = User("mallory", (token_of("mallory")[1],))


def test_doubt_of_a_peer_is_not_taken(tmp_path: Path) -> None:
    async def main() -> None:
        async with shared(tmp_path) as all_:
            file = tmp_path / "ns2" / "access.json"
            file.parent.mkdir()
            file.write_bytes(AccessTable(doubt=Doubt.REFUSED).to_json())
            await named(all_)
            client = await all_.client("ns1")
            for _ in range(2):  # ns1 has no file: it waits for its peer, and takes no doubt of it
                with pytest.raises(RefusedError, match="not known here yet"):
                    await client.call(service_methods.LIST_TOPICS, LIST)
                await all_.stop("ns1")
                assert not (tmp_path / "ns1" / "access.json").exists()
                await all_.start_nameserver("ns1")
                client = await all_.client("ns1")
            await all_.stop("ns2")
            file.write_bytes(all_.users.table.to_json())
            await all_.start_nameserver("ns2")
            await asyncio.sleep(3)
            client = await all_.client("ns1", "root")
            await client.call(service_methods.LIST_TOPICS, LIST)

    run_in_virtual_time(main())


def test_users_of_a_lower_version_replace_permissions_without_users(tmp_path: Path) -> None:
    async def main() -> None:
        async with shared(tmp_path) as all_:
            await named(all_)
            await all_.start_broker()
            granted = AccessTable()
            for action in ("publish", "subscribe", "admin", "replicate"):
                granted = granted.with_grant(grant("anonymous", f"{action} *"))
            network = all_.around.network.host("localhost")
            granted = replace(granted, version=900)
            await put_table(await network.connect([Address("ns1", PORT)]), granted, 0)
            await asyncio.sleep(2)
            for host in HOSTS:
                await all_.stop(host)
                shutil.rmtree(tmp_path / host)
            await named(all_)
            await all_.put()
            await asyncio.sleep(5)
            assert await is_refused((await all_.client("broker")).put_topic("orders", 1))
            await (await all_.client("broker", "root")).put_topic("orders", 1)

    run_in_virtual_time(main())


def test_nameserver_without_its_users_takes_no_calls_until_a_peer_has_told_it() -> None:
    async def main() -> None:
        async with shared() as all_:  # no data: a restart loses the users
            await started(all_)
            for host in HOSTS:
                await all_.stop(host)
            await all_.start_nameserver("ns2")
            client = await all_.client("ns2")
            request = pb.GetClusterRequest()
            with pytest.raises(RefusedError, match="not known here yet"):
                await client.call(service_methods.GET_CLUSTER, request)

    run_in_virtual_time(main())


def test_users_of_another_origin_are_taken_by_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        async with shared(tmp_path) as all_:
            await started(all_)
            mallory = Users(first_administrator(AccessTable(), USER, "mallory"))
            for name in ("names", "broker-a"):
                mallory.add(name, "replicate cluster")
            mallory.table = replace(mallory.table, version=all_.users.table.version + 9)
            await all_.stop("ns2")
            (tmp_path / "ns2" / "access.json").write_bytes(mallory.table.to_json())
            (tmp_path / "ns2" / "access.json.bak").write_bytes(mallory.table.to_json())
            await all_.start_nameserver("ns2")
            await asyncio.sleep(5)
            await (await all_.client("broker", "shop")).send("orders", b"1")
            client = await all_.client("ns1", "mallory")
            assert await is_refused(client.call(service_methods.LIST_TOPICS, LIST))
            status = await (await all_.client("broker", "root")).call(
                service_methods.DESCRIBE_BROKER, admin.DescribeBrokerRequest()
            )
            foreign = "NameServer ns2:9876 has users of another origin"
            assert any(foreign in each for each in status.warnings)

    run_in_virtual_time(main())


def test_older_nameserver_is_told_of(tmp_path: Path) -> None:
    async def main() -> None:
        async with shared(tmp_path) as all_:
            await started(all_)
            file = tmp_path / "ns1" / "access.json"
            backup = file.read_bytes()
            await all_.change(lambda users: users.remove("shop"))
            for host in HOSTS:
                await all_.stop(host)
                for name in ("access.json", "access.json.bak"):
                    (tmp_path / host / name).write_bytes(backup)
            for host in HOSTS:
                await all_.start_nameserver(host)
            await asyncio.sleep(60)
            status = await (await all_.client("broker", "root")).call(
                service_methods.DESCRIBE_BROKER, admin.DescribeBrokerRequest()
            )
            version = all_.users.table.version
            older = f"has version {version} of the users, and NameServer ns1:9876 has version"
            assert any(older in each for each in status.warnings)

    run_in_virtual_time(main())


@pytest.mark.parametrize("host", ["203.0.113.9", "localhost"])
def test_first_users_come_from_the_machine_of_the_nameserver(host: str) -> None:
    async def main() -> None:
        async with shared() as all_:
            await named(all_)
            connection = await all_.around.network.host(host).connect([Address("ns1", PORT)])
            putting = all_.users.put(connection)
            assert await is_refused(putting) is (host != "localhost")

    run_in_virtual_time(main())


def test_nameserver_takes_the_users_of_its_peer_before_it_serves(tmp_path: Path) -> None:
    async def main() -> None:
        async with shared(tmp_path) as all_:
            await named(all_)
            await all_.put()
            await all_.stop("ns2")
            shutil.rmtree(tmp_path / "ns2")
            await all_.start_nameserver("ns2")
            assert await is_refused(
                (await all_.client("ns2")).call(service_methods.GET_ACCESS, GET)
            )
            for host in HOSTS:
                await all_.stop(host)
            await all_.start_nameserver("ns2")
            reply = await (await all_.client("ns2", "root")).call(service_methods.GET_ACCESS, GET)
            assert reply.version == all_.users.table.version

    run_in_virtual_time(main())


def test_newer_table_without_users_is_asked_for_seldom() -> None:
    asked: list[float] = []

    async def main() -> None:
        async with shared() as all_:
            network = all_.around.network
            await all_.start_nameserver("ns2", peers=())
            granted = AccessTable().with_grant(grant("anonymous", "publish *"))
            granted = replace(granted, version=900)
            connection = await network.host("localhost").connect([Address("ns2", PORT)])
            await put_table(connection, granted, 0)
            await all_.start_nameserver("ns1", peers=())
            await all_.put()
            await all_.start_broker()

            def count(path: str) -> Loss:
                if path == service_methods.GET_ACCESS.path:
                    asked.append(asyncio.get_running_loop().time())
                return Loss.NONE

            network.loss = count
            await asyncio.sleep(100)
            assert len(asked) < 20
            assert await is_refused((await all_.client("broker")).put_topic("orders", 1))

    run_in_virtual_time(main())
