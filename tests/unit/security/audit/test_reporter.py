"""Reports of a guard: changes with their outcome, refused attempts, new sessions; never a token."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import StoreFailed, TernError, invalid, refusal
from ternmq_model.permission import (
    CLUSTER,
    Action,
    Need,
    Resource,
    ResourceKind,
    to_administer,
    to_publish,
    to_read,
)
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting import service_methods as rpc
from ternmq_remoting.rpc import AUTHORIZATION_KEY, Call, Handler, PeerCertificate, StreamRpc
from ternmq_remoting.security_event import EventKind, SecurityEvent
from ternmq_security.access.access_table import AccessTable, first_administrator
from ternmq_security.access.user import User
from ternmq_security.audit import reporter as reporter_module
from ternmq_security.audit.reporter import AuditReporter
from ternmq_security.caller import CallerIdentity, Proof
from ternmq_security.guard import Guard, guarded
from tests.support.identities import Granted, Identities, OneStream

PUBLISHES: Need = (Action.PUBLISH, Resource(ResourceKind.TOPIC, "T"))
SHOP = CallerIdentity("shop", Granted(PUBLISHES), Proof("0a1b"))
ROOT = CallerIdentity("root", Granted((Action.ADMIN, CLUSTER), to_administer("T")), Proof("9f"))
CERTIFICATE = PeerCertificate("CN=root,O=Example", "root", 7)
PUT_TOPIC = admin.PutTopicRequest(topic=common.TopicConfig(topic="T"))
TABLE = first_administrator(AccessTable(), User("root", (), ("CN=root",)), "test")


class Service:
    """A guarded service whose handlers do what the test says, and its reports."""

    def __init__(self, identities: Identities | None = None, *, is_open: bool = False) -> None:
        given = identities or Identities(shop=SHOP, root=ROOT)
        given.is_open = is_open
        self.identities = given
        self.events: list[SecurityEvent] = []
        self.guard = Guard(given, AuditReporter(self.events.append, lambda: TABLE))
        self.replies: dict[Any, Any] = {}
        self.checks: Sequence[Any] = ()

    async def serve(self, request: Any, call: Call) -> Any:
        for need in self.checks:
            call.permits.check(need)
        reply = self.replies.get(type(request))
        if isinstance(reply, Exception):
            raise reply
        return reply or admin.PutTopicReply()

    async def read_all(self, stream: Any, call: Call) -> None:
        while await stream.read() is not None:
            for need in self.checks:
                call.permits.check(need)

    def call(
        self, method: Any, request: Any, user: str = "root", host: str = "h", **fields: Any
    ) -> None:
        """Call an RPC, and ignore its refusal."""
        asyncio.run(self.called(method, request, user, host, **fields))

    async def called(
        self, method: Any, request: Any, user: str = "root", host: str = "h", **fields: Any
    ) -> None:
        call = Call(Address(host, 1), {AUTHORIZATION_KEY: user}, **fields)
        is_stream = isinstance(method, StreamRpc)
        function: Any = self.read_all if is_stream else self.serve
        (handler,) = guarded([Handler(method, function)], self.guard)
        given = OneStream(*request) if is_stream else request
        with contextlib.suppress(TernError):
            await handler.function(given, call)

    def of(self, kind: EventKind) -> list[SecurityEvent]:
        return [each for each in self.events if each.kind is kind]


def test_change_is_reported_with_its_outcome() -> None:
    service = Service()
    service.call(rpc.PUT_TOPIC, PUT_TOPIC, certificate=CERTIFICATE)
    (event,) = service.of(EventKind.ADMIN)
    assert (event.user, event.certificate) == ("root", "CN=root,O=Example")
    assert (event.action, event.resource, event.outcome) == ("PutTopic", "topic:T", "allowed")
    assert event.details == "topic=T read_queues=0 write_queues=0 permissions=0"
    assert (event.address, event.reason) == (Address("h", 1), None)


@pytest.mark.parametrize(
    ("reply", "outcome", "reason"),
    [
        (invalid("0 queues"), "INVALID_PARAMETER", "0 queues"),
        (StoreFailed("the disk is gone"), "StoreFailed", "the disk is gone"),
        (
            admin.PutTopicReply(status=common.Status(code=ResponseCode.SYSTEM_ERROR, remark="no")),
            "SYSTEM_ERROR",
            "no",
        ),
        (admin.PutTopicReply(status=common.Status(code=12345)), "12345", None),
        (
            admin.PutTopicsReply(
                results=[
                    admin.PutTopicResult(),
                    admin.PutTopicResult(status=common.Status(code=29, remark="taken")),
                ]
            ),
            "INVALID_PARAMETER",
            "1 of 2: taken",
        ),
    ],
)
def test_failed_change_is_reported_with_its_reason(
    reply: Any, outcome: str, reason: str | None
) -> None:
    service = Service()
    service.replies[admin.PutTopicRequest] = reply
    service.call(rpc.PUT_TOPIC, PUT_TOPIC)
    (event,) = service.of(EventKind.ADMIN)
    assert (event.outcome, event.reason) == (outcome, reason)


def test_change_whose_caller_leaves_is_reported() -> None:
    service = Service()

    async def wait(request: Any, call: Call) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        (handler,) = guarded([Handler(rpc.PUT_TOPIC, wait)], service.guard)
        call = Call(Address("h", 1), {AUTHORIZATION_KEY: "root"})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await handler.function(PUT_TOPIC, call)

    asyncio.run(main())
    assert [each.outcome for each in service.of(EventKind.ADMIN)] == ["cancelled"]


def test_changes_are_reported_while_no_users_exist() -> None:
    service = Service(is_open=True)
    service.call(rpc.PUT_TOPIC, PUT_TOPIC)
    service.call(rpc.SEND, messages.SendRequest(topic="T"))
    (event,) = service.events
    assert (event.user, event.action, event.outcome) == (None, "PutTopic", "allowed")


def test_refused_attempt_is_no_change() -> None:
    service = Service()
    service.call(rpc.PUT_TOPIC, PUT_TOPIC, "shop")
    assert service.of(EventKind.ADMIN) == []
    (event,) = service.of(EventKind.REFUSED)
    assert (event.user, event.action, event.resource) == ("shop", "PutTopic", "topic:T")
    assert (event.outcome, event.claimed) == ("refused", None)
    assert event.reason == "user 'shop' may not administer topic:T"


def test_refusals_inside_a_handler_are_reported() -> None:
    service = Service()
    service.checks = [to_publish("U")]
    service.call(rpc.SEND, messages.SendRequest(topic="T"), "shop")
    batch = messages.SendStreamRequest(batch=messages.SendBatch())
    service.call(rpc.SEND_STREAM, [batch], "shop")
    found = [(each.action, each.resource) for each in service.of(EventKind.REFUSED)]
    assert found == [("Send", "topic:U"), ("SendStream", "topic:U")]


def test_refused_message_of_a_stream_is_reported_once() -> None:
    service = Service()
    request = messages.PullStreamRequest(subscribe=messages.PullSubscribe(topic="U"))
    service.call(rpc.PULL_STREAM, [request], "shop")
    (event,) = service.of(EventKind.REFUSED)
    assert (event.action, event.resource) == ("PullStream", "topic:U")


def test_stream_of_an_unknown_identity_is_reported() -> None:
    service = Service()
    service.call(rpc.SEND_STREAM, [], "nobody")
    (event,) = service.of(EventKind.REFUSED)
    assert (event.user, event.action, event.resource) == (None, "SendStream", None)


def test_refusals_that_are_about_no_identity_are_not_reported() -> None:
    service = Service()
    service.replies[messages.SendRequest] = refusal(ResponseCode.NO_PERMISSION, "not writable")
    service.call(rpc.SEND, messages.SendRequest(topic="T"), "shop")
    assert service.of(EventKind.REFUSED) == []


class Wrong(Identities):
    """Identities that know nobody."""

    code = ResponseCode.NO_PERMISSION

    async def identify(self, call: Call) -> CallerIdentity:
        raise refusal(self.code, "the token is wrong, revoked or expired")


@pytest.mark.parametrize(
    ("token", "claimed"),
    [
        ("tmq.root.SeCrEtSeCrEtSeCrEt", "root"),
        ("tmq.nobody.SeCrEtSeCrEtSeCrEt", None),
        ("tmq.root.SeCrEt.tail", None),  # its part before the last dot is a legal name
        ("SeCrEt", None),
        ("", None),
    ],
)
def test_wrong_token_is_reported_by_the_name_of_its_user_at_most(
    token: str, claimed: str | None
) -> None:
    service = Service(Wrong())
    service.call(rpc.SEND, messages.SendRequest(topic="T"), f"Bearer {token}")
    service.call(rpc.SEND_STREAM, [], f"Bearer {token}")
    first, second = service.events
    assert (first.kind, first.action, second.action) == (EventKind.REFUSED, "Send", "SendStream")
    assert (first.user, first.claimed) == (None, claimed)
    assert first.reason == "the token is wrong, revoked or expired"
    assert "SeCrEt" not in repr(service.events)


def test_service_that_knows_no_users_yet_reports_nothing() -> None:
    wrong = Wrong()
    wrong.code = ResponseCode.SERVICE_NOT_AVAILABLE
    service = Service(wrong)
    service.call(rpc.SEND, messages.SendRequest(topic="T"))
    assert service.events == []


def test_first_call_of_a_user_from_a_host_is_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()
    for host in ("a", "a", "b", "a"):
        service.call(rpc.SEND, messages.SendRequest(topic="T"), "shop", host)
    service.call(rpc.SEND_STREAM, [], "shop", "c")
    found = [(each.user, each.address.host, each.action, each.details) for each in service.events]
    assert found == [
        ("shop", "a", "Send", "token=0a1b"),
        ("shop", "b", "Send", "token=0a1b"),
        ("shop", "c", "SendStream", "token=0a1b"),
    ]
    monkeypatch.setattr(reporter_module, "KNOWN_MAX", 3)
    for host in ("d", "a"):
        service.call(rpc.SEND, messages.SendRequest(topic="T"), "shop", host)
    assert [each.address.host for each in service.events] == ["a", "b", "c", "d", "a"]


@pytest.mark.parametrize("is_open", [True, False])
def test_session_stream_is_reported_with_its_client(is_open: bool) -> None:
    service = Service(is_open=is_open)
    hello = groups.Hello(client_id="shop@1", producer_groups=["P"])
    heartbeat = groups.SessionRequest(heartbeat=groups.Heartbeat())
    service.call(rpc.SESSION, [groups.SessionRequest(hello=hello), heartbeat], "shop")
    (event,) = service.events
    assert (event.kind, event.user) == (EventKind.SESSION, None if is_open else "shop")
    assert event.details == "client_id=shop@1 producer_groups=P"


async def welcome(stream: Any, call: Call) -> None:
    """Refuse a client as if its id were in use."""
    await stream.read()
    status = common.Status(code=ResponseCode.INVALID_PARAMETER, remark="in use")
    await stream.write(groups.SessionReply(welcome=groups.Welcome(status=status)))


async def probe(stream: Any, call: Call) -> None:
    """Ask a slave for bytes, and accept it then."""
    await stream.read()
    await stream.write(replication.FollowReply(probe=replication.FollowProbe()))
    await stream.read()
    await stream.write(replication.FollowReply(accepted=replication.FollowAccepted()))
    await stream.write(replication.FollowReply(piece=replication.LogPiece()))


async def refuse(stream: Any, call: Call) -> None:
    await stream.read()
    raise invalid("a master follows nobody")


async def hang(stream: Any, call: Call) -> None:
    await stream.read()
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("method", "serve", "outcome", "reason"),
    [
        (rpc.SESSION, welcome, "INVALID_PARAMETER", "in use"),
        (rpc.SESSION, refuse, "INVALID_PARAMETER", "a master follows nobody"),
        (rpc.FOLLOW, probe, "allowed", None),
        (rpc.FOLLOW, refuse, "INVALID_PARAMETER", "a master follows nobody"),
        (rpc.FOLLOW, hang, "cancelled", None),
    ],
)
def test_stream_is_reported_with_the_outcome_of_its_hello(
    method: Any, serve: Any, outcome: str, reason: str | None
) -> None:
    service = Service(is_open=True)
    service.read_all = serve  # type: ignore[method-assign]
    request = method.request()
    request.hello.SetInParent()
    with contextlib.suppress(asyncio.CancelledError):
        service.call(method, [request, method.request()])
    (event,) = service.events
    assert (event.action, event.outcome, event.reason) == (method.name, outcome, reason)


def test_stream_whose_permission_is_taken_away_is_reported() -> None:
    service = Service()

    async def lose(stream: Any, call: Call) -> None:
        await stream.read()
        service.identities.callers["shop"] = CallerIdentity("shop", Granted(), SHOP.proof)
        for _ in range(2):
            service.guard.table_changed()
        await asyncio.Event().wait()

    service.read_all = lose  # type: ignore[method-assign]
    request = messages.PullStreamRequest(subscribe=messages.PullSubscribe(topic="T"))
    service.identities.callers["shop"] = CallerIdentity("shop", Granted(to_read("T")), SHOP.proof)
    service.call(rpc.PULL_STREAM, [request], "shop")
    (event,) = service.of(EventKind.REFUSED)
    assert (event.user, event.action, event.resource) == ("shop", "PullStream", "topic:T")


def test_follower_is_reported_at_its_hello_alone() -> None:
    service = Service(is_open=True)
    hello = replication.FollowHello(cluster="c", broker_name="b", broker_id=1)
    ack = replication.FollowRequest(ack=replication.FollowAck())
    service.call(rpc.FOLLOW, [replication.FollowRequest(hello=hello), ack, ack])
    (event,) = service.events
    assert (event.kind, event.action) == (EventKind.ADMIN, "Follow")
    assert event.details == "cluster=c broker_name=b broker_id=1"


def test_requests_of_a_stream_that_change_something_are_reported() -> None:
    service = Service()
    requests = [transactions.RollBackStagedRequest(staged_for=name) for name in ("a", "b")]
    service.call(rpc.ROLL_BACK_STAGED, requests)
    found = [each.details for each in service.of(EventKind.ADMIN)]
    assert found == ["staged_for=a force=False", "staged_for=b force=False"]


def test_broker_that_registers_again_is_reported_once_unless_refused() -> None:
    service = Service(is_open=True)
    request = nameserver.RegisterBrokerRequest(broker_name="b", incarnation="1")
    later = nameserver.RegisterBrokerRequest(broker_name="b", incarnation="2")
    promoted = nameserver.RegisterBrokerRequest(broker_name="b", incarnation="2", epoch=1)
    for each in (request, request, later, request, promoted, promoted):
        service.call(rpc.REGISTER_BROKER, each)
    service.replies[nameserver.RegisterBrokerRequest] = invalid("epoch")
    service.call(rpc.REGISTER_BROKER, request)
    outcomes = [each.outcome for each in service.events]
    assert outcomes == ["allowed", "allowed", "allowed", "INVALID_PARAMETER"]
