"""Calls through a guard: identified once, checked, and without effect when refused."""

import asyncio
from typing import Any, Never

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import PermissionRefused
from ternmq_model.permission import CLUSTER, Action, to_publish, to_read
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting.rpc import AUTHORIZATION_KEY, EVERYTHING, Call, Handler
from ternmq_remoting.service_methods import GET_CLUSTER, PULL, SEND, SEND_STREAM
from ternmq_security import guard as guard_module
from ternmq_security.caller import CallerIdentity
from ternmq_security.guard import Guard, guarded
from tests.support.identities import Granted, Identities, OneStream

TO_T = messages.SendRequest(topic="T")


def call_of(authorization: str) -> Call:
    return Call(Address("client", 1), {AUTHORIZATION_KEY: authorization})


class Service:
    """Handlers that keep the calls they get."""

    def __init__(self, identities: Identities) -> None:
        self.guard = Guard(identities)
        self.calls: list[Call] = []

    async def send(self, request: Any, call: Call) -> messages.SendReply:
        self.calls.append(call)
        return messages.SendReply()

    async def sent(self, request: Any, call: Call, rpc: Any = SEND) -> Any:
        (handler,) = guarded([Handler(rpc, self.send)], self.guard)
        return await handler.function(request, call)


def shop(*needs: Any, **fields: Any) -> CallerIdentity:
    return CallerIdentity("shop", Granted(*needs), **fields)


def test_handler_gets_the_permissions_of_its_caller() -> None:
    caller = shop(to_publish("T"))
    service = Service(Identities(shop=caller))
    asyncio.run(service.sent(TO_T, call_of("shop")))
    (call,) = service.calls
    assert call.permits is caller
    assert call.metadata == {AUTHORIZATION_KEY: "shop"}


def test_refused_call_has_no_effect_and_tells_no_token() -> None:
    service = Service(Identities(secret=shop()))
    with pytest.raises(PermissionRefused) as refused:
        asyncio.run(service.sent(TO_T, call_of("secret")))
    assert refused.value.remark == "user 'shop' may not publish to topic:T"
    assert not service.calls
    with pytest.raises(PermissionRefused, match=r"unknown identity may not .*: give credentials"):
        asyncio.run(service.sent(nameserver.GetClusterRequest(), call_of("made-up"), GET_CLUSTER))
    assert not service.calls


def test_replicate_alone_cannot_publish() -> None:
    service = Service(Identities(CallerIdentity("slave", Granted((Action.REPLICATE, CLUSTER)))))
    with pytest.raises(PermissionRefused, match="user 'slave' may not publish to topic:T"):
        asyncio.run(service.sent(TO_T, call_of("")))


def test_open_guard_checks_nothing() -> None:
    identities = Identities()
    identities.is_open = True
    service = Service(identities)

    async def main() -> None:
        await service.sent(TO_T, call_of(""))
        identities.is_open = False
        service.guard.table_changed()
        with pytest.raises(PermissionRefused):
            await service.sent(TO_T, call_of(""))
        identities.is_open = True
        service.guard.table_changed()
        await service.sent(TO_T, call_of(""))

    asyncio.run(main())
    assert not {call.permits for call in service.calls} - {EVERYTHING}
    assert identities.identified == 1


def test_caller_is_identified_once_until_the_table_changes() -> None:
    identities = Identities(shop=shop(to_publish("T")))
    service = Service(identities)

    async def main() -> None:
        await service.sent(TO_T, call_of("shop"))
        await service.sent(TO_T, call_of("shop"))
        assert identities.identified == 1
        identities.callers["shop"] = shop()
        service.guard.table_changed()
        with pytest.raises(PermissionRefused):
            await service.sent(TO_T, call_of("shop"))
        assert identities.identified == 1, "a renewed identity needs no proof again"
        del identities.callers["shop"]
        service.guard.table_changed()
        with pytest.raises(PermissionRefused, match="unknown identity"):
            await service.sent(TO_T, call_of("shop"))
        identities.callers["shop"] = shop(to_publish("T"))
        service.guard.table_changed()
        await service.sent(TO_T, call_of("shop"))

    asyncio.run(main())
    assert len(service.calls) == 3


def test_calls_with_one_token_share_its_check() -> None:
    identities = Identities(shop=shop(to_publish("T")))
    identities.pause_s = 0.01
    service = Service(identities)

    async def main() -> None:
        await asyncio.gather(*(service.sent(TO_T, call_of("shop")) for _ in range(9)))

    asyncio.run(main())
    assert len(service.calls) == 9
    assert identities.identified == 1


def test_identity_of_an_earlier_table_does_not_count() -> None:
    identities = Identities(shop=shop(to_publish("T")))
    identities.pause_s = 0.01
    service = Service(identities)

    async def main() -> None:
        sending = asyncio.ensure_future(service.sent(TO_T, call_of("shop")))
        await asyncio.sleep(0)
        identities.callers["shop"] = shop()
        service.guard.table_changed()
        with pytest.raises(PermissionRefused):
            await sending

    asyncio.run(main())
    assert identities.identified == 2


def test_expired_identity_is_proved_again() -> None:
    identities = Identities(shop=shop(to_publish("T"), expires_at_ms=1000))
    service = Service(identities)

    async def main() -> None:
        await service.sent(TO_T, call_of("shop"))
        service.guard.step(999)
        await service.sent(TO_T, call_of("shop"))
        assert identities.identified == 1
        del identities.callers["shop"]
        service.guard.step(1000)
        with pytest.raises(PermissionRefused, match="unknown identity"):
            await service.sent(TO_T, call_of("shop"))

    asyncio.run(main())


def test_known_callers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "CALLERS_MAX", 2)
    identities = Identities(shop(to_publish("T")))
    service = Service(identities)

    async def main() -> None:
        for name in ("a", "b", "c", "c", "a"):
            await service.sent(TO_T, call_of(name))

    asyncio.run(main())
    assert identities.identified == 4


def test_waiting_pull_gives_nothing_after_its_permission() -> None:
    identities = Identities(shop=shop(to_read("T")))
    service = Service(identities)

    async def pull(request: messages.PullRequest, call: Call) -> messages.PullReply:
        identities.callers["shop"] = shop()
        service.guard.table_changed()
        return messages.PullReply(records=b"secret")

    async def main() -> None:
        (handler,) = guarded([Handler(PULL, pull)], service.guard)
        with pytest.raises(PermissionRefused, match="subscribe to topic:T"):
            await handler.function(messages.PullRequest(topic="T"), call_of("shop"))

    asyncio.run(main())


def test_wrong_credentials_open_no_stream() -> None:
    class Wrong(Identities):
        async def identify(self, call: Call) -> Never:
            raise PermissionRefused(ResponseCode.NO_PERMISSION, "wrong credentials")

    async def serve(stream: Any, call: Call) -> None:
        raise AssertionError("the handler is not reached")

    async def main() -> None:
        (handler,) = guarded([Handler(SEND_STREAM, serve)], Guard(Wrong()))
        with pytest.raises(PermissionRefused, match="wrong credentials"):
            await handler.function(OneStream(), call_of("x"))

    asyncio.run(main())
