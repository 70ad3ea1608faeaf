"""A guarded broker with two tenants: what one may do to topics, groups and transactions of both.

The host of a client names its user.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from ternmq_broker.assembly.broker_assembly import BrokerAssembly
from ternmq_model.address import Address
from ternmq_model.errors import MessageNotFound, PermissionRefused
from ternmq_model.permission import CLUSTER, Action, Need, Resource, ResourceKind, of_group
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting import service_methods
from ternmq_remoting.rpc import AUTHORIZATION_KEY, Call, ClientStream, Handler
from ternmq_security.caller import CallerIdentity
from ternmq_security.guard import Guard, guarded
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import (
    Client,
    SessionStream,
    bodies,
    membership,
    offsets_of,
    world,
)
from tests.support.identities import Granted, Identities
from tests.support.records import sizes_of
from tests.support.transactions import COMMIT, GROUP, Begun, begin, end, find

SHOP, BANK, ROOT = "10.0.0.1", "10.0.0.2", "10.0.0.3"


def topic(name: str, *actions: Action) -> list[Need]:
    return [(action, Resource(ResourceKind.TOPIC, name)) for action in actions]


BOTH = (Action.PUBLISH, Action.SUBSCRIBE)
PRODUCES = of_group(GROUP, Action.PUBLISH)
NEEDS: dict[str, list[Need]] = {
    SHOP: [*topic("orders", *BOTH), *topic("mine", *BOTH, Action.ADMIN), of_group("shop")],
    BANK: [*topic("flights", *BOTH), *topic("orders", *BOTH), PRODUCES],
    ROOT: [
        *topic("orders", *BOTH, Action.ADMIN),
        *topic("flights", *BOTH, Action.ADMIN),
        (Action.ADMIN, CLUSTER),
    ],
}
NAMES = {SHOP: "shop", BANK: "bank", ROOT: "root"}


class Users(Identities):
    """Users by their names, as which clients come."""

    def grant(self, host: str, *needs: Need) -> None:
        """Let these be the permissions of a user."""
        name = NAMES[host]
        self.callers[name] = CallerIdentity(name, Granted(*needs))


def naming(handler: Handler) -> Handler:
    """Return a handler whose callers are authorized by their hosts."""

    async def serve(request: Any, call: Call) -> Any:
        metadata = {AUTHORIZATION_KEY: NAMES[call.peer.host]}
        return await handler.function(request, replace(call, metadata=metadata))

    return Handler(handler.rpc, serve)


@dataclass
class Tenants:
    """A broker with the clients of three users."""

    shop: Client
    bank: Client
    root: Client

    async def stored(self, topic: str) -> list[bytes]:
        """Return the bodies of the messages of a topic with one queue."""
        return bodies(await self.root.pull(topic))


@pytest.fixture
def identities() -> Users:
    users = Users()
    for host, needs in NEEDS.items():
        users.grant(host, *needs)
    return users


@pytest.fixture
def guard(identities: Users, monkeypatch: pytest.MonkeyPatch) -> Guard:
    """Give the guard of every broker of the test."""
    guard, handlers = Guard(identities), BrokerAssembly.handlers

    def guarded_handlers(self: BrokerAssembly) -> list[Handler]:
        return [naming(handler) for handler in guarded(handlers(self), guard)]

    monkeypatch.setattr(BrokerAssembly, "handlers", guarded_handlers)
    return guard


@asynccontextmanager
async def tenants(guard: Guard, identities: Users) -> AsyncGenerator[Tenants]:
    """Give a broker with the topics `orders` and `flights`."""
    settings: dict[str, Any] = {"listen": "0.0.0.0", "flush_mode": FlushMode.ASYNC}
    async with world(**settings) as around, around.broker("home") as broker:
        address, clients = Address("home", broker.address.port), list[Client]()
        for host in (SHOP, BANK, ROOT):
            network = around.network.host(host)
            clients.append(Client(await network.connect([address], expect=broker.identity)))
        for name in ("orders", "flights"):
            await clients[-1].put_topic(name, 1)
        yield Tenants(*clients)
        for client in clients:
            await client.connection.close()


def test_records_of_a_foreign_topic_are_refused_and_others_kept(
    guard: Guard, identities: Users
) -> None:
    async def main() -> None:
        async with tenants(guard, identities) as all_:
            sender = await all_.shop.open_sender()
            own = [sender.record("orders", body) for body in (b"1", b"2")]
            reply = await sender.send(own[0], sender.record("flights"), own[1])
            assert not reply.status.code
            assert [each.index for each in reply.refused] == [1]
            assert reply.refused[0].status.code == ResponseCode.NO_PERMISSION
            why = "user 'shop' may not publish to topic:flights"
            assert reply.refused[0].status.remark == why
            assert await all_.stored("flights") == []
            assert await all_.stored("orders") == [b"1", b"2"]

    run_in_virtual_time(main())


def test_retry_does_not_tell_where_a_foreign_message_lies(guard: Guard, identities: Users) -> None:
    async def main() -> None:
        async with tenants(guard, identities) as all_:
            sender = await all_.bank.open_sender()
            record = sender.record("flights", b"b", properties={"UNIQ_KEY": "K1"})
            batch = messages.SendBatch(
                records=record, record_sizes=sizes_of([record]).tobytes(), is_retry=True
            )
            first = await sender.send(record)
            await sender.stream.write(messages.SendStreamRequest(batch=batch))
            again = await sender.read()
            assert offsets_of(again.physical_offsets) == offsets_of(first.physical_offsets)
            curious = await all_.shop.open_sender()
            await curious.stream.write(messages.SendStreamRequest(batch=batch))
            reply = await curious.read()
            assert [each.status.code for each in reply.refused] == [ResponseCode.NO_PERMISSION]
            assert offsets_of(reply.physical_offsets) != offsets_of(first.physical_offsets)

    run_in_virtual_time(main())


def test_topic_is_created_for_its_administrator_alone(guard: Guard, identities: Users) -> None:
    async def main() -> None:
        async with tenants(guard, identities) as all_:
            identities.grant(SHOP, *NEEDS[SHOP], *topic("new", Action.PUBLISH))
            why = "topic 'new' does not exist, and user 'shop' may not administer topic:new"
            with pytest.raises(PermissionRefused, match=why):
                await all_.shop.send("new", queue_id=-1)
            with pytest.raises(PermissionRefused, match=why):
                await all_.shop.send("new")
            sender = await all_.shop.open_sender()
            reply = await sender.send(sender.record("new"), sender.record("orders", b"kept"))
            assert [each.status.code for each in reply.refused] == [ResponseCode.NO_PERMISSION]
            assert [each.status.remark for each in reply.refused] == [why]
            assert await all_.stored("orders") == [b"kept"]
            await all_.shop.send("mine", queue_id=-1)
            reply = await sender.send(sender.record("mine"))
            assert not reply.refused

    run_in_virtual_time(main())


@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize("staged_for", [None, "q/1"])
def test_half_message_of_a_foreign_producer_group_is_refused(
    guard: Guard, identities: Users, count: int, staged_for: str | None
) -> None:
    async def main() -> None:
        async with tenants(guard, identities) as all_:
            keys = [b"K%d" % number for number in range(count)]
            with pytest.raises(AssertionError, match=f"may not publish to group:{GROUP}"):
                await begin(all_.shop, *keys, topic="orders", staged_for=staged_for)
            begun = await begin(all_.bank, *keys, topic="orders", staged_for=staged_for)
            states = (await find(all_.bank, *begun)).states
            assert {*states} == {transactions.TRANSACTION_OPEN}

    run_in_virtual_time(main())


async def codes(client: Client, begun: list[Begun]) -> list[int]:
    return [reply.status.code for reply in await end(client, *(one.end(COMMIT) for one in begun))]


@pytest.mark.parametrize("staged_for", [None, "q/1"])
def test_transaction_of_another_tenant_cannot_be_ended(
    guard: Guard, identities: Users, staged_for: str | None
) -> None:
    async def main() -> None:
        async with tenants(guard, identities) as all_:
            begun = await begin(all_.bank, b"K1", b"K2", staged_for=staged_for)
            with pytest.raises(PermissionRefused, match=f"publish to group:{GROUP}"):
                await codes(all_.shop, begun)
            with pytest.raises(PermissionRefused, match=f"publish to group:{GROUP}"):
                await find(all_.shop, *begun)
            # In the group, but not in the topic.
            identities.grant(SHOP, *NEEDS[SHOP], PRODUCES)
            guard.table_changed()
            assert await codes(all_.shop, begun) == [ResponseCode.NO_PERMISSION] * 2
            with pytest.raises(PermissionRefused, match="publish to topic:flights"):
                await all_.shop.call(service_methods.END_TRANSACTION, begun[0].end(COMMIT))
            unnamed = begun[0].end(COMMIT, topic="")
            with pytest.raises(PermissionRefused, match="publish to topic:flights"):
                await all_.shop.call(service_methods.END_TRANSACTION, unnamed)
            assert await all_.stored("flights") == []
            assert await codes(all_.bank, begun) == [0, 0]
            assert await all_.stored("flights") == [b"K1", b"K2"]

    run_in_virtual_time(main())


def test_messages_of_foreign_topics_are_not_found(guard: Guard, identities: Users) -> None:
    async def main() -> None:
        async with tenants(guard, identities) as all_:
            properties = {"KEYS": "k"}
            hidden = await all_.bank.send("flights", b"f", properties=properties)
            shown = await all_.bank.send("orders", b"o", properties=properties)
            await asyncio.sleep(1)
            view, query = service_methods.VIEW_MESSAGE, service_methods.QUERY_MESSAGES
            request = messages.ViewMessageRequest(offset_message_id=hidden.offset_message_id)
            with pytest.raises(MessageNotFound):
                await all_.shop.call(view, request)
            assert (await all_.bank.call(view, request)).record
            request = messages.ViewMessageRequest(offset_message_id=shown.offset_message_id)
            assert (await all_.shop.call(view, request)).record
            every = messages.QueryMessagesRequest(key="k")
            found = await all_.shop.call(query, every)
            assert len(found.record_sizes) == 4, "one message"
            assert len((await all_.bank.call(query, every)).record_sizes) == 8
            with pytest.raises(PermissionRefused, match="subscribe to topic:flights"):
                await all_.shop.call(query, messages.QueryMessagesRequest(key="k", topic="flights"))

    run_in_virtual_time(main())


def test_foreign_message_cannot_be_sent_back_to_a_group_of_ones_own(
    guard: Guard, identities: Users
) -> None:
    async def main() -> None:
        async with tenants(guard, identities) as all_:
            sent = await all_.bank.send("flights", b"f")
            failed = groups.FailedMessage(topic="flights", message_id=sent.offset_message_id)
            request = groups.SendBackRequest(group="shop", client_id="a@1", messages=[failed])
            with pytest.raises(PermissionRefused, match="subscribe to topic:flights"):
                await all_.shop.call(service_methods.SEND_BACK, request)
            request.messages[0].topic = "orders"
            reply = await all_.shop.call(service_methods.SEND_BACK, request)
            assert reply.outcomes[0].code == ResponseCode.INVALID_PARAMETER

    run_in_virtual_time(main())


def test_group_tells_nothing_about_foreign_topics(guard: Guard, identities: Users) -> None:
    async def main() -> None:
        both = [of_group(name, Action.ADMIN) for name in ("shop", "copy")]
        identities.grant(SHOP, *NEEDS[SHOP], *both)
        identities.grant(ROOT, *NEEDS[ROOT], *both)
        async with tenants(guard, identities) as all_:
            await all_.bank.send("flights")
            await all_.shop.open_session("shop@1", membership("shop", "orders"))
            reset = admin.ResetOffsetsRequest(group="shop", topic="flights", last=True)
            with pytest.raises(PermissionRefused, match="topic:flights"):
                await all_.shop.call(service_methods.RESET_OFFSETS, reset)
            reply = await all_.root.call(service_methods.RESET_OFFSETS, reset)
            assert reply.changes[0].after == 1
            reset.topic = "orders"
            await all_.shop.call(service_methods.RESET_OFFSETS, reset)
            clone = admin.CloneOffsetsRequest(from_group="shop", to_group="copy")
            cloned = await all_.shop.call(service_methods.CLONE_OFFSETS, clone)
            assert {each.topic for each in cloned.changes} == {"orders"}
            cloned = await all_.root.call(service_methods.CLONE_OFFSETS, clone)
            assert {each.topic for each in cloned.changes} == {"flights", "orders"}
            request = admin.DescribeGroupRequest(group="shop")
            told = await all_.shop.call(service_methods.DESCRIBE_GROUP, request)
            assert {each.topic for each in told.progress} == {"orders"}
            told = await all_.root.call(service_methods.DESCRIBE_GROUP, request)
            assert {each.topic for each in told.progress} == {"flights", "orders"}

    run_in_virtual_time(main())


def test_each_user_may_reply_and_nobody_may_write_other_topics_of_that_form(
    guard: Guard, identities: Users
) -> None:
    replies, reply = "DefaultCluster_REPLY_TOPIC", {"MSG_TYPE": "reply"}

    async def main() -> None:
        async with tenants(guard, identities) as all_:
            await all_.root.put_topic("mine_REPLY_TOPIC", 1)
            session, _ = await all_.shop.open_session("shop@1")
            told = {"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "shop@1"}
            answer = await all_.bank.send(replies, b"42", properties={**reply, **told})
            assert answer.queue_offset == 0
            forwarded = await session.read()
            assert forwarded is not None
            assert forwarded.reply_arrived.correlation_id == "c"
            sender = await all_.bank.open_sender()
            for name, properties in ((replies, {}), ("mine_REPLY_TOPIC", reply)):
                with pytest.raises(PermissionRefused, match="may not administer cluster"):
                    await all_.bank.send(name, properties=properties)
                stored = await sender.send(sender.record(name, properties=properties))
                assert [each.status.code for each in stored.refused] == [ResponseCode.NO_PERMISSION]
            half = {**reply, **told, "TRAN_MSG": "true", "PGROUP": GROUP}
            with pytest.raises(PermissionRefused, match=f"may not publish to group:{GROUP}"):
                await all_.shop.send(replies, properties=half)
            assert await all_.stored("mine_REPLY_TOPIC") == []

    run_in_virtual_time(main())


def test_member_sends_no_dead_letters_by_itself(guard: Guard, identities: Users) -> None:
    async def main() -> None:
        async with tenants(guard, identities) as all_:
            letter = {"DLQ_ORIGIN_TOPIC": "flights"}
            with pytest.raises(PermissionRefused, match="may not administer group:shop"):
                await all_.shop.send("%DLQ%shop", properties=letter)
            sender = await all_.shop.open_sender()
            stored = await sender.send(sender.record("%DLQ%shop", properties=letter))
            assert [each.status.code for each in stored.refused] == [ResponseCode.NO_PERMISSION]

    run_in_virtual_time(main())


@pytest.mark.parametrize("incarnation", ["1", "2"])
def test_foreign_user_cannot_take_the_client_id_of_a_client_whose_stream_broke(
    guard: Guard, identities: Users, incarnation: str
) -> None:
    async def main() -> None:
        async with tenants(guard, identities) as all_:
            session, _ = await all_.shop.open_session("shop@1", membership("shop", "orders"))
            for is_broken in (False, True):
                if is_broken:
                    session.cancel()
                    await asyncio.sleep(0.01)
                _, welcome = await all_.bank.open_session("shop@1", incarnation=incarnation)
                assert welcome.status.code == ResponseCode.INVALID_PARAMETER
                why = "client id 'shop@1' is in use by another user"
                assert welcome.status.remark == why
            request = groups.ListMembersRequest(group="shop")
            reply = await all_.shop.call(service_methods.LIST_MEMBERS, request)
            assert list(reply.client_ids) == ["shop@1"]
            _, welcome = await all_.shop.open_session("shop@1", membership("shop", "orders"))
            assert not welcome.status.code
            await asyncio.sleep(20)  # the refused hello does not count as a broken stream
            reply = await all_.shop.call(service_methods.LIST_MEMBERS, request)
            assert list(reply.client_ids) == ["shop@1"]

    run_in_virtual_time(main())


def test_foreign_user_cannot_displace_a_stream_of_sends(guard: Guard, identities: Users) -> None:
    async def main() -> None:
        async with tenants(guard, identities) as all_:
            sender = await all_.shop.open_sender(incarnation="1")
            await all_.bank.open_sender(incarnation="1")
            await sender.send(sender.record("orders", b"1"))
            assert await all_.stored("orders") == [b"1"]

    run_in_virtual_time(main())


async def open_session(client: Client, hello: groups.Hello) -> SessionStream:
    stream = client.connection.open(service_methods.SESSION)
    await stream.write(groups.SessionRequest(hello=hello))
    assert (await stream.read()) is not None
    return stream


def test_producers_without_publish_are_not_asked_about_transactions(
    guard: Guard, identities: Users
) -> None:
    async def main() -> None:
        async with tenants(guard, identities) as all_:
            for client, name in ((all_.shop, "spy@1"), (all_.bank, "bank@1")):
                hello = groups.Hello(client_id=name, incarnation="1", producer_groups=[GROUP])
                await open_session(client, hello)
            request = admin.ListProducersRequest(group=GROUP)
            reply = await all_.root.call(service_methods.LIST_PRODUCERS, request)
            assert [each.client_id for each in reply.producers] == ["bank@1"]

    run_in_virtual_time(main())


async def drain(stream: ClientStream[Any, Any]) -> None:
    while await stream.read() is not None:
        pass


def test_streams_of_a_revoked_user_end(guard: Guard, identities: Users) -> None:
    async def main() -> None:
        async with tenants(guard, identities) as all_:
            session, _ = await all_.shop.open_session("shop@1", membership("shop", "orders"))
            puller = await all_.shop.open_puller("shop")
            await puller.subscribe(1, "orders")
            sender = await all_.shop.open_sender()
            await sender.send(sender.record("orders", b"1"))
            assert bodies(await puller.read_one()) == [b"1"]
            others = await all_.bank.open_sender()
            guard.table_changed()
            await sender.send(sender.record("orders", b"2"))
            assert bodies(await puller.read_one()) == [b"2"]
            identities.grant(SHOP)
            guard.table_changed()
            async with asyncio.timeout(1):
                for stream in (session, puller.stream, sender.stream):
                    with pytest.raises(PermissionRefused, match="user 'shop' may not"):
                        await drain(stream)
            await others.send(others.record("orders", b"3"))
            assert await all_.stored("orders") == [b"1", b"2", b"3"]

    run_in_virtual_time(main())


def test_refused_hello_leaves_no_member(guard: Guard, identities: Users) -> None:
    async def main() -> None:
        async with tenants(guard, identities) as all_:
            for joined in (membership("bank", "orders"), membership("shop", "flights")):
                with pytest.raises(PermissionRefused):
                    await all_.shop.open_session("shop@1", joined)
            reply = await all_.root.call(service_methods.LIST_GROUPS, admin.ListGroupsRequest())
            assert not reply.groups

    run_in_virtual_time(main())


def test_tenants_see_their_own_groups_alone(guard: Guard, identities: Users) -> None:
    async def main() -> None:
        async with tenants(guard, identities) as all_:
            for client, name in ((all_.shop, "shop"), (all_.bank, "bank")):
                identities.grant(BANK, *NEEDS[BANK], of_group("bank"))
                guard.table_changed()
                await client.open_session(f"{name}@1", membership(name, "orders"))
            listed = [
                list(
                    (
                        await client.call(service_methods.LIST_GROUPS, admin.ListGroupsRequest())
                    ).groups
                )
                for client in (all_.shop, all_.bank, all_.root)
            ]
            assert listed == [["shop"], ["bank"], ["bank", "shop"]]

    run_in_virtual_time(main())
