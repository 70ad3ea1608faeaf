"""What a slave serves and refuses."""

import asyncio
from typing import Any

import pytest

from ternmq_broker.replication.slave.rpc_policy import RULES, SlaveRpcPolicy, slave_handlers
from ternmq_model.address import Address
from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_remoting.rpc import Call, Handler, unary

CALL = Call(Address("client", 1))


async def pull(request: messages.PullRequest, call: Call) -> messages.PullReply:
    return messages.PullReply(next_offset=7)


async def list_members(request: groups.ListMembersRequest, call: Call) -> groups.ListMembersReply:
    return groups.ListMembersReply(client_ids=["c"])


async def send(request: messages.SendRequest, call: Call) -> messages.SendReply:
    raise AssertionError("a slave stores nothing")


async def send_stream(asked: Any, call: Call) -> None:
    raise AssertionError("a slave stores nothing")


def ruled(*handlers: Handler, may_be_read: bool = True) -> list[Handler]:
    return slave_handlers(handlers, "a", 1, may_be_read=lambda: may_be_read)


def test_every_rpc_of_a_broker_has_a_rule() -> None:
    served = {rpc for rpc in service_methods.ALL if "/ternmq.v1.NameServer/" not in rpc.path}
    assert set(RULES) == served


def test_writing_rpcs_are_refused_at_a_slave() -> None:
    refused = {rpc.name for rpc, rule in RULES.items() if rule is SlaveRpcPolicy.REFUSED}
    assert refused == {
        "Send",
        "SendStream",
        "SendBack",
        "LockQueues",
        "UnlockQueues",
        "EndTransaction",
        "EndTransactions",
        "FindTransactions",
        "ListTransactions",
        "RollBackStaged",
        "PutTopic",
        "PutTopics",
        "DeleteTopic",
        "PutGroup",
        "DeleteGroup",
        "ResetOffsets",
        "CloneOffsets",
    }


@pytest.mark.parametrize(
    "handler",
    [unary(service_methods.SEND, send), Handler(service_methods.SEND_STREAM, send_stream)],
    ids=["call", "stream"],
)
def test_refusal_names_the_slave_and_may_be_retried_elsewhere(handler: Handler) -> None:
    (refusing,) = ruled(handler)
    with pytest.raises(
        RefusedError, match=r"broker a \(id 1\) is a slave: only its master"
    ) as refused:
        asyncio.run(call(refusing))
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert refused.value.retryable
    assert not refused.value.may_have_happened


def test_served_rpc_keeps_its_handler() -> None:
    handler = unary(service_methods.LIST_MEMBERS, list_members)
    assert ruled(handler, may_be_read=False) == [handler]


def test_pulls_are_served_while_slave_reads_are_enabled() -> None:
    reply: messages.PullReply = asyncio.run(call(*ruled(unary(service_methods.PULL, pull))))
    assert reply.next_offset == 7
    with pytest.raises(RefusedError, match="slave_read_enabled"):
        asyncio.run(call(*ruled(unary(service_methods.PULL, pull), may_be_read=False)))


async def call(handler: Handler) -> Any:
    return await handler.function(None, CALL)
