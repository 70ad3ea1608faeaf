"""Users of a cluster: changes, and services that know them or not."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import PermissionRefused, RefusedError, TernError
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_remoting import service_methods
from ternmq_remoting.environment import UNSAFE, Safeguards
from ternmq_runtime.service import JobRunner
from ternmq_security.access_control import AccessControl
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import world
from tests.support.shared_users import (
    GET,
    HOSTS,
    PORT,
    is_refused,
    named,
    shared,
    started,
)
from tests.support.users import Users


def test_change_is_in_force_everywhere_within_a_second() -> None:
    async def main() -> None:
        async with shared() as all_:
            await started(all_)
            shop = await all_.client("broker", "shop")
            await shop.send("orders", b"1")
            sender = await shop.open_sender()
            await sender.send(sender.record("orders", b"2"))
            await all_.change(lambda users: users.allow("shop", "deny publish topic:orders"), "ns2")
            await asyncio.sleep(1)
            with pytest.raises(PermissionRefused, match="user 'shop' may not publish"):
                await sender.stream.read()
            assert await is_refused(shop.send("orders", b"3"))
            for host in HOSTS:
                reply = await (await all_.client(host, "root")).call(
                    service_methods.GET_ACCESS, GET
                )
                assert reply.version == all_.users.table.version
            await all_.change(lambda users: users.remove("shop"))
            await asyncio.sleep(1)
            with pytest.raises(PermissionRefused, match="token is wrong, revoked or expired"):
                await (await all_.client("broker", "shop")).send("orders", b"4")

    run_in_virtual_time(main())


def test_unknown_identity_may_nothing_once_a_user_exists() -> None:
    async def main() -> None:
        async with shared() as all_:
            await named(all_)
            await all_.start_broker()
            await (await all_.client("broker")).put_topic("orders", 1)
            nobody = await all_.client("broker")
            await nobody.send("orders", b"1")
            await all_.put()
            await asyncio.sleep(1)
            with pytest.raises(PermissionRefused, match="give credentials"):
                await nobody.send("orders", b"2")
            for host in HOSTS:
                client = await all_.client(host)
                for rpc, request in (
                    (service_methods.GET_CLUSTER, pb.GetClusterRequest()),
                    (service_methods.REGISTER_BROKER, pb.RegisterBrokerRequest()),
                    (service_methods.PUT_ACCESS, pb.PutAccessRequest()),
                    (service_methods.GET_ACCESS, GET),
                ):
                    assert await is_refused(client.call(rpc, request)), rpc.name

    run_in_virtual_time(main())


def test_users_see_the_topics_about_which_they_may_know() -> None:
    async def main() -> None:
        async with shared() as all_:
            await started(all_)
            root = await all_.client("broker", "root")
            for number in range(5):
                await root.put_topic(f"other{number}", 1)
            await root.put_topic("own", 1)
            await all_.change(lambda users: users.allow("shop", "subscribe topic:own"))
            shop = await all_.client("ns1", "shop")
            for size in (0, 1, 2):
                names: list[str] = []
                request = pb.ListTopicsRequest(page_size=size)
                while not names or request.page_token:
                    reply = await shop.call(service_methods.LIST_TOPICS, request)
                    names += reply.topics
                    request.page_token = reply.next_page_token
                assert names == ["orders", "own"]
            every = await (await all_.client("ns1", "root")).call(
                service_methods.LIST_TOPICS, pb.ListTopicsRequest()
            )
            assert {"other0", "other4", "orders", "own"} <= {*every.topics}
            for key in ("own", "other0"):
                put = pb.PutKvRequest(namespace="ORDER_TOPIC_CONFIG", key=key, value="broker-a:4")
                await (await all_.client("ns1", "root")).call(service_methods.PUT_KV, put)
            orders = pb.GetKvRequest(namespace="ORDER_TOPIC_CONFIG")
            told = await shop.call(service_methods.GET_KV, orders)
            assert dict(told.values) == {"own": "broker-a:4"}
            orders.key = "other0"
            assert await is_refused(shop.call(service_methods.GET_KV, orders))

    run_in_virtual_time(main())


def test_broker_goes_on_with_its_table_while_nameservers_are_away() -> None:
    async def main() -> None:
        async with shared() as all_:
            await started(all_)
            await all_.stop("broker")
            for host in HOSTS:
                await all_.stop(host)
            await all_.start_broker()
            await (await all_.client("broker", "shop")).send("orders", b"1")
            assert await is_refused((await all_.client("broker")).send("orders", b"2"))
            status = await (await all_.client("broker", "root")).call(
                service_methods.DESCRIBE_BROKER, admin.DescribeBrokerRequest()
            )
            known = f"has version {all_.users.table.version} of the users, and NameServer"
            assert [known in each for each in status.warnings] == [True, True, False]
            assert "without TLS: who has a way to its port may read" in status.warnings[2]

    run_in_virtual_time(main())


def test_new_broker_refuses_calls_until_it_knows_the_users() -> None:
    async def main() -> None:
        async with shared() as all_:
            await all_.start_broker()
            client = await all_.client("broker", "root")
            with pytest.raises(RefusedError, match="not known here yet"):
                await client.put_topic("orders", 1)
            await named(all_)
            await all_.put()
            await asyncio.sleep(2)
            await client.put_topic("orders", 1)
            assert await is_refused((await all_.client("broker")).send("orders", b"1"))

    run_in_virtual_time(main())


def test_broker_that_may_not_know_the_users_refuses_calls() -> None:
    async def main() -> None:
        async with shared() as all_:
            await named(all_)
            await all_.put()
            await all_.start_broker("")

            async def check_closed() -> None:
                for user in ("", "root"):
                    client = await all_.client("broker", user)
                    with pytest.raises(RefusedError, match="may not read them"):
                        await client.put_topic("orders", 1)

            await check_closed()
            for host in HOSTS:  # nobody is left who says that users exist
                await all_.stop(host)
            await asyncio.sleep(5)
            await check_closed()
            await all_.stop("broker")
            await all_.start_broker("")
            await check_closed()

    run_in_virtual_time(main())


def test_broker_that_loses_its_permission_to_read_the_users_keeps_them() -> None:
    async def main() -> None:
        async with shared() as all_:
            await started(all_)
            await all_.change(lambda users: users.remove("broker-a"))
            await asyncio.sleep(2)
            await (await all_.client("broker", "shop")).send("orders", b"1")
            assert await is_refused((await all_.client("broker")).send("orders", b"2"))

    run_in_virtual_time(main())


def test_held_call_from_before_the_first_user_tells_nothing() -> None:
    async def main() -> None:
        async with shared() as all_:
            await named(all_)
            await all_.start_broker()
            nobody = await all_.client("broker")
            await nobody.put_topic("orders", 1)
            names = await all_.client("ns1")
            waiting = pb.GetAccessRequest(known_version=99, wait_ms=20_000)
            held = [
                asyncio.ensure_future(names.call(service_methods.GET_ACCESS, waiting)),
                asyncio.ensure_future(nobody.pull("orders", wait_ms=20_000)),
            ]
            await asyncio.sleep(1)
            await all_.put()
            await asyncio.sleep(1)
            await (await all_.client("broker", "shop")).send("orders", b"secret")
            assert [await is_refused(each) for each in held] == [True, True]

    run_in_virtual_time(main())


def test_denial_counts_at_a_broker_whose_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with shared() as all_:
            await started(all_)
            all_.around.files.space_bytes = 0
            shop = await all_.client("broker", "shop")
            request = admin.DescribeTopicRequest(topic="orders")
            await shop.call(service_methods.DESCRIBE_TOPIC, request)
            await all_.change(lambda users: users.remove("shop"))
            await asyncio.sleep(1)
            with pytest.raises(TernError):
                await shop.call(service_methods.DESCRIBE_TOPIC, request)

    run_in_virtual_time(main())


def test_service_beyond_its_machine_warns_unless_that_is_accepted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(
        host: str, safeguards: Safeguards, users: Users | None, *, has_plain: bool = False
    ) -> Sequence[str]:
        async with world() as around:
            env = replace(around.environment(), safeguards=safeguards)
            access = AccessControl(env, Address(host, PORT), None, (), has_plain_port=has_plain)
            async with JobRunner(*access.jobs()):
                if users is not None:
                    await access.store.put(users.table, expected_version=0)
                caplog.clear()
                await access.begin()
            return access.warnings()

    exposed, tls = "0.0.0.0", Safeguards(has_tls=True)
    for host, safeguards, users, is_logged, is_safe in (
        (exposed, UNSAFE, None, True, False),
        (exposed, UNSAFE, Users(), True, False),
        (exposed, tls, None, True, False),
        (exposed, Safeguards(accepts_insecure=True), None, False, False),
        (exposed, tls, Users(), False, True),
        (exposed, Safeguards(has_tls=True, asks_clients=True), None, True, False),
        ("127.0.0.1", UNSAFE, None, False, True),
    ):
        warnings = run_in_virtual_time(main(host, safeguards, users))
        is_told = any("listens on" in each for each in warnings)
        assert [bool(caplog.records), not is_told] == [is_logged, is_safe]
        is_refused_later = not safeguards.asks_clients and is_logged
        assert ("next minor version" in caplog.text) is is_refused_later
    warnings = run_in_virtual_time(main(exposed, tls, Users(), has_plain=True))
    assert [each.partition(":")[0] for each in warnings] == [
        "keeps its users in memory alone",
        "listens on 0.0.0.0",
    ]
    assert "without TLS: who has a way to its port may read what is sent" in warnings[1]
