"""Events of security of a simulated cluster with users: who did what, at which service."""

from dataclasses import replace
from typing import Any

import pytest

from ternmq_model.errors import PermissionRefused
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_remoting.security_event import EventKind, SecurityEvent
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import World, membership, serving
from tests.support.shared_users import shared, started
from tests.support.users import token_of


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[SecurityEvent]:
    """Return the events of all services that the test starts."""
    found: list[SecurityEvent] = []
    environment = World.environment

    def reporting(self: World, host: str = "localhost") -> Any:
        return replace(environment(self, host), on_security_event=found.append)

    monkeypatch.setattr(World, "environment", reporting)
    return found


def told(events: list[SecurityEvent], kind: EventKind) -> list[tuple[Any, ...]]:
    return [
        (each.user, each.action, each.resource, each.outcome)
        for each in events
        if each.kind is kind
    ]


def test_changes_and_registrations_of_a_cluster_are_reported(events: list[SecurityEvent]) -> None:
    async def main() -> None:
        async with shared() as all_:
            await started(all_)
            await all_.change(lambda users: users.allow("shop", "deny publish topic:x"), "ns2")

    run_in_virtual_time(main())
    assert told(events, EventKind.ADMIN) == [
        (None, "PutAccess", "cluster", "allowed"),  # the first users come while none exist
        ("broker-a", "RegisterBroker", "cluster", "allowed"),
        ("broker-a", "RegisterBroker", "cluster", "allowed"),
        ("root", "PutTopic", "topic:orders", "allowed"),
        ("root", "PutAccess", "cluster", "allowed"),
        ("broker-a", "UnregisterBroker", "cluster", "allowed"),
        ("broker-a", "UnregisterBroker", "cluster", "allowed"),
    ]
    changes = [each.details or "" for each in events if each.kind is EventKind.ADMIN]
    changes = [each for each in changes if each.startswith("version")]
    assert "added user shop" in changes[0]
    assert changes[1].endswith("; added grant shop deny publish topic:x")
    everything = repr(events)
    for user in ("root", "shop", "names", "broker-a"):
        text, token = token_of(user)
        for secret in (text, token.digest.hex(), token.salt.hex()):
            assert secret not in everything


def test_refused_attempts_are_reported_with_who_and_why(events: list[SecurityEvent]) -> None:
    async def main() -> None:
        async with shared() as all_:
            await started(all_)
            shop, nobody = await all_.client("broker", "shop"), await all_.client("broker")
            stranger = await all_.client("broker", "shop", number=2)
            sender = await shop.open_sender()
            reply = await sender.send(sender.record("orders", b"CoNtEnT"), sender.record("flights"))
            assert len(reply.refused) == 1
            for client in (shop, nobody, stranger):
                with pytest.raises(PermissionRefused):
                    await client.put_topic("orders", 9)
            with pytest.raises(PermissionRefused):
                await shop.open_session("shop@1", membership("bank", "orders"))

    run_in_virtual_time(main())
    refused = [each for each in events if each.kind is EventKind.REFUSED]
    assert [
        (each.user, each.claimed, each.address.host, each.action, each.resource) for each in refused
    ] == [
        ("shop", None, "shop-host-0", "SendStream", "topic:flights"),
        ("shop", None, "shop-host-0", "PutTopic", "topic:orders"),
        (None, None, "nobody-host-0", "PutTopic", None),  # its request is not read
        (None, "shop", "shop-host-2", "PutTopic", None),
        ("shop", None, "shop-host-0", "Session", "group:bank"),
    ]
    assert refused[0].reason == "user 'shop' may not publish to topic:flights"
    assert refused[3].reason == "the token is wrong, revoked or expired"
    assert "CoNtEnT" not in repr(events)


def test_sessions_are_reported_once_for_each_host(events: list[SecurityEvent]) -> None:
    async def main() -> None:
        async with shared() as all_:
            all_.users.allow("shop", "subscribe group:shop")
            await started(all_)
            shop = await all_.client("broker", "shop")
            for client in (shop, shop, await all_.client("broker", "shop")):
                await client.send("orders", b"1")
            await shop.open_session("shop@1", membership("shop", "orders"))

    run_in_virtual_time(main())
    found = [
        each
        for each in events
        if each.kind is EventKind.SESSION and each.address.host == "shop-host-0"
    ]
    assert [(each.user, each.action, each.resource) for each in found] == [
        ("shop", "Send", None),
        ("shop", "Session", "group:shop,topic:orders"),
    ]
    assert found[0].details == f"token={token_of('shop')[1].token_id}"
    assert found[1].details == "client_id=shop@1 producer_groups="


def test_broker_without_users_reports_changes_alone(events: list[SecurityEvent]) -> None:
    async def main() -> None:
        async with serving(topics={"orders": 1}) as (_, client):
            await client.send("orders")
            await client.pull("orders")
            request = admin.UpdateSettingsRequest(values={"no_such": "1"})
            with pytest.raises(Exception, match="no_such"):
                await client.call(service_methods.UPDATE_SETTINGS, request)

    run_in_virtual_time(main())
    assert told(events, EventKind.ADMIN) == [
        (None, "PutTopic", "topic:orders", "allowed"),
        (None, "UpdateSettings", "cluster", "INVALID_PARAMETER"),
    ]
    assert len(events) == 2
