"""Permissions that each RPC needs, written out."""

import asyncio
from collections.abc import Iterable
from itertools import combinations
from typing import Any, Final

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import PermissionRefused
from ternmq_model.permission import CLUSTER, Action, Need, Resource, ResourceKind
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting import service_methods as rpc
from ternmq_remoting.rpc import Call, Handler, StreamRpc
from ternmq_security.access.grants import Effect, Grant, ResourcePattern
from ternmq_security.access.permissions import Permissions
from ternmq_security.caller import CallerIdentity
from ternmq_security.guard import Guard, guarded
from ternmq_security.rules import RULES, Alternatives
from tests.support.identities import Granted, Identities, OneStream

USE_OF_T: Final = "publish topic:T | subscribe topic:T | admin topic:T | admin cluster"
OFFSET: Final = groups.QueueOffset(topic="T")
CONSUMER: Final = groups.ConsumerGroup(
    group="G",
    subscriptions=[messages.Subscription(topic="T"), messages.Subscription(topic="%RETRY%G")],
)

TABLE: Final[tuple[tuple[Any, Any, tuple[str, ...]], ...]] = (
    (rpc.REGISTER_BROKER, nameserver.RegisterBrokerRequest(), ("replicate cluster",)),
    (rpc.UNREGISTER_BROKER, nameserver.UnregisterBrokerRequest(), ("replicate cluster",)),
    (rpc.GET_TOPIC_ROUTE, nameserver.GetTopicRouteRequest(topic="T"), (USE_OF_T,)),
    (rpc.GET_TOPIC_ROUTE, nameserver.GetTopicRouteRequest(topic="TBW102"), ("known",)),
    (rpc.GET_CLUSTER, nameserver.GetClusterRequest(), ("known",)),
    (rpc.LIST_TOPICS, nameserver.ListTopicsRequest(), ("known",)),
    (rpc.PUT_KV, nameserver.PutKvRequest(), ("admin cluster",)),
    (rpc.GET_KV, nameserver.GetKvRequest(namespace="other"), ("admin cluster",)),
    (rpc.GET_KV, nameserver.GetKvRequest(namespace="ORDER_TOPIC_CONFIG"), ("known",)),
    (rpc.GET_KV, nameserver.GetKvRequest(namespace="ORDER_TOPIC_CONFIG", key="T"), (USE_OF_T,)),
    (rpc.DELETE_KV, nameserver.DeleteKvRequest(), ("admin cluster",)),
    (rpc.WIPE_WRITE_PERMISSION, nameserver.WipeWritePermissionRequest(), ("admin cluster",)),
    (rpc.ADD_WRITE_PERMISSION, nameserver.AddWritePermissionRequest(), ("admin cluster",)),
    (rpc.GET_EPOCH, nameserver.GetEpochRequest(), ("replicate cluster | admin cluster",)),
    (rpc.GET_ACCESS, nameserver.GetAccessRequest(), ("replicate cluster | admin cluster",)),
    (rpc.PUT_ACCESS, nameserver.PutAccessRequest(), ("admin cluster",)),
    (rpc.SEND, messages.SendRequest(topic="T"), ("publish topic:T",)),
    (rpc.SEND, messages.SendRequest(topic="%RETRY%G"), ("subscribe group:G",)),
    (rpc.SEND, messages.SendRequest(topic="%DLQ%G"), ("admin group:G",)),
    (rpc.SEND, messages.SendRequest(topic="SCHEDULE_TOPIC_XXXX"), ("admin cluster",)),
    (rpc.SEND, messages.SendRequest(topic="C_REPLY_TOPIC"), ("admin cluster",)),
    (
        rpc.SEND,
        messages.SendRequest(topic="C_REPLY_TOPIC", properties={"MSG_TYPE": "reply"}),
        ("known",),
    ),
    (rpc.SEND, messages.SendRequest(topic="RMQ_SYS_TRACE_TOPIC"), ("known",)),
    (rpc.SEND_STREAM, messages.SendStreamRequest(open=messages.SendStreamOpen()), ("known",)),
    (rpc.SEND_STREAM, messages.SendStreamRequest(batch=messages.SendBatch()), ()),
    (
        rpc.PULL,
        messages.PullRequest(topic="T", group="G"),
        ("subscribe topic:T", "subscribe group:G"),
    ),
    (rpc.PULL, messages.PullRequest(topic="%DLQ%H"), ("subscribe group:H",)),
    (
        rpc.PULL_STREAM,
        messages.PullStreamRequest(open=messages.PullStreamOpen(group="G")),
        ("subscribe group:G",),
    ),
    (
        rpc.PULL_STREAM,
        messages.PullStreamRequest(subscribe=messages.PullSubscribe(topic="T")),
        ("subscribe topic:T",),
    ),
    (rpc.SCAN, messages.ScanRequest(topic="T"), ("subscribe topic:T",)),
    (rpc.VIEW_MESSAGE, messages.ViewMessageRequest(), ("known",)),
    (rpc.QUERY_MESSAGES, messages.QueryMessagesRequest(topic="T"), ("subscribe topic:T",)),
    (rpc.QUERY_MESSAGES, messages.QueryMessagesRequest(), ("known",)),
    (
        rpc.SESSION,
        groups.SessionRequest(
            hello=groups.Hello(producer_groups=["P"], consumer_groups=[CONSUMER])
        ),
        (
            "known",
            "subscribe group:G",
            "subscribe topic:T",
            "subscribe group:G",
        ),
    ),
    (
        rpc.SESSION,
        groups.SessionRequest(heartbeat=groups.Heartbeat(producer_groups=["P"])),
        (),
    ),
    (
        rpc.LIST_MEMBERS,
        groups.ListMembersRequest(group="G"),
        ("subscribe group:G | admin group:G | admin cluster",),
    ),
    (
        rpc.COMMIT_OFFSETS,
        groups.CommitOffsetsRequest(group="G", offsets=[OFFSET, OFFSET]),
        ("subscribe group:G", "subscribe topic:T"),
    ),
    (
        rpc.QUERY_OFFSET,
        groups.QueryOffsetRequest(group="G", topic="T"),
        ("subscribe group:G", "subscribe topic:T"),
    ),
    (
        rpc.QUERY_OFFSET,
        groups.QueryOffsetRequest(group="TOOLS_DEAD_LETTERS", topic="%DLQ%G"),
        ("known", "subscribe group:G"),
    ),
    (rpc.LOCK_QUEUES, groups.LockQueuesRequest(group="G"), ("subscribe group:G",)),
    (rpc.UNLOCK_QUEUES, groups.UnlockQueuesRequest(group="G"), ("subscribe group:G",)),
    (rpc.SEND_BACK, groups.SendBackRequest(group="G"), ("subscribe group:G",)),
    (
        rpc.END_TRANSACTION,
        transactions.EndTransactionRequest(producer_group="P"),
        ("publish group:P",),
    ),
    (
        rpc.END_TRANSACTIONS,
        transactions.EndTransactionsRequest(
            transactions=[transactions.EndTransactionRequest(producer_group="P")]
        ),
        ("known", "publish group:P"),
    ),
    (
        rpc.FIND_TRANSACTIONS,
        transactions.FindTransactionsRequest(producer_group="P"),
        ("publish group:P",),
    ),
    (rpc.LIST_TRANSACTIONS, transactions.ListTransactionsRequest(), ("admin cluster",)),
    (rpc.ROLL_BACK_STAGED, transactions.RollBackStagedRequest(), ("admin cluster",)),
    (rpc.QUERY_OFFSET_BY_TIME, admin.QueryOffsetByTimeRequest(topic="T"), (USE_OF_T,)),
    (rpc.MEASURE_QUEUES, admin.MeasureQueuesRequest(), ("known",)),
    (
        rpc.PUT_TOPIC,
        admin.PutTopicRequest(topic=common.TopicConfig(topic="T")),
        ("admin topic:T",),
    ),
    (
        rpc.PUT_TOPICS,
        admin.PutTopicsRequest(topics=[common.TopicConfig(topic="T")]),
        ("known", "admin topic:T"),
    ),
    (rpc.DELETE_TOPIC, admin.DeleteTopicRequest(topic="T"), ("admin topic:T",)),
    (rpc.DELETE_TOPIC, admin.DeleteTopicRequest(topic="%DLQ%G"), ("admin group:G",)),
    (rpc.DESCRIBE_TOPIC, admin.DescribeTopicRequest(topic="T"), (USE_OF_T,)),
    (rpc.LIST_GROUPS, admin.ListGroupsRequest(), ("known",)),
    (
        rpc.DESCRIBE_GROUP,
        admin.DescribeGroupRequest(group="G"),
        ("subscribe group:G | admin group:G | admin cluster",),
    ),
    (rpc.DESCRIBE_BROKER, admin.DescribeBrokerRequest(), ("admin cluster",)),
    (rpc.CLEAN_STORE, admin.CleanStoreRequest(), ("admin cluster",)),
    (rpc.DESCRIBE_STORE, admin.DescribeStoreRequest(), ("admin cluster",)),
    (
        rpc.PUT_GROUP,
        admin.PutGroupRequest(settings=admin.GroupSettings(group="G")),
        ("admin group:G",),
    ),
    (rpc.DELETE_GROUP, admin.DeleteGroupRequest(group="G"), ("admin group:G",)),
    (
        rpc.RESET_OFFSETS,
        admin.ResetOffsetsRequest(group="G", topic="T"),
        ("admin group:G", USE_OF_T),
    ),
    (
        rpc.CLONE_OFFSETS,
        admin.CloneOffsetsRequest(from_group="F", to_group="G"),
        ("admin group:G", "subscribe group:F | admin group:F | admin cluster"),
    ),
    (
        rpc.DESCRIBE_CONSUMER,
        admin.DescribeConsumerRequest(group="G"),
        ("subscribe group:G | admin group:G | admin cluster",),
    ),
    (
        rpc.LIST_PRODUCERS,
        admin.ListProducersRequest(group="P"),
        ("publish group:P | admin group:P | admin cluster",),
    ),
    (rpc.LIST_PRODUCERS, admin.ListProducersRequest(), ("admin cluster",)),
    (rpc.DESCRIBE_STATISTICS, admin.DescribeStatisticsRequest(), ("admin cluster",)),
    (rpc.LIST_SETTINGS, admin.ListSettingsRequest(), ("admin cluster",)),
    (rpc.UPDATE_SETTINGS, admin.UpdateSettingsRequest(), ("admin cluster",)),
    (rpc.PROMOTE, admin.PromoteRequest(), ("admin cluster",)),
    (rpc.FOLLOW, replication.FollowRequest(), ("replicate cluster",)),
    (rpc.METADATA, replication.MetadataRequest(), ("replicate cluster | admin cluster",)),
    (
        rpc.REPLICATION_STATUS,
        replication.ReplicationStatusRequest(),
        ("replicate cluster | admin cluster",),
    ),
)
"""RPC, a request, and the permissions that it needs: each line, by one of its alternatives."""


def need_of(text: str) -> Need | None:
    if text == "known":
        return None
    action, resource = text.split()
    kind, _, name = resource.partition(":")
    return Action(action), Resource(ResourceKind(kind), name) if name else CLUSTER


def is_allowed(items: Iterable[Alternatives], permissions: Permissions) -> bool:
    return all(any(map(permissions.allows, alternatives)) for alternatives in items)


def permissions_for(needs: Iterable[Need | None]) -> Permissions:
    grants = [
        Grant("u", Effect.ALLOW, need[0], ResourcePattern(need[1].kind, need[1].name))
        for need in needs
        if need is not None
    ]
    return Permissions(grants, is_known=True)


def test_every_rpc_has_a_rule_and_a_row() -> None:
    assert set(RULES) == set(rpc.ALL)
    assert {row[0] for row in TABLE} == set(rpc.ALL)


@pytest.mark.parametrize(("method", "request_", "lines"), TABLE, ids=lambda each: _id(each))
def test_each_permission_for_each_rpc(method: Any, request_: Any, lines: tuple[str, ...]) -> None:
    items = list(RULES[method](request_))
    expected = [tuple(map(need_of, line.split(" | "))) for line in lines]
    assert items == expected
    # Each alternative suffices, none of them can be left out, and nothing else helps.
    for position in range(len(expected)):
        others = [line[0] for line in expected[:position] + expected[position + 1 :]]
        for need in expected[position]:
            assert is_allowed(items, permissions_for([*others, need]))
        if not {*others, None} & {*expected[position]}:
            assert not is_allowed(items, permissions_for(others))
    foreign = [
        (action, Resource(kind, "foreign"))
        for action in (Action.PUBLISH, Action.SUBSCRIBE, Action.ADMIN)
        for kind in (ResourceKind.TOPIC, ResourceKind.GROUP)
    ]
    needs_more = any(None not in line for line in expected)
    assert is_allowed(items, permissions_for(foreign)) is not needs_more
    unknown = Permissions((), is_known=False)
    assert is_allowed(items, unknown) is not bool(expected)


def _id(value: object) -> str:
    return str(getattr(value, "name", "")) or "row"


def test_member_of_a_broker_may_not_publish() -> None:
    member = permissions_for([(Action.REPLICATE, CLUSTER)])
    for method, request, lines in TABLE:
        if any("publish" in line or "subscribe" in line for line in lines):
            assert not is_allowed(RULES[method](request), member), method.name


EVERY_NEED: Final[list[Need]] = [
    (action, Resource(kind, name))
    for kind in (ResourceKind.TOPIC, ResourceKind.GROUP)
    for name in "TGPFX"
    for action in (Action.PUBLISH, Action.SUBSCRIBE, Action.ADMIN)
] + [(action, CLUSTER) for action in Action]


async def is_served(caller: CallerIdentity, method: Any, request: Any) -> bool:
    """Return whether a guarded handler gets the request."""
    served: list[Any] = []

    async def serve(received: Any, call: Call) -> None:
        served.append(await received.read() if isinstance(method, StreamRpc) else received)

    (handler,) = guarded([Handler(method, serve)], Guard(Identities(caller)))
    given = OneStream(request) if isinstance(method, StreamRpc) else request
    try:
        await handler.function(given, Call(Address("client", 1)))
    except PermissionRefused:
        assert not served, "a refused call has an effect"
        return False
    assert served == [request]
    return True


@pytest.mark.parametrize(("method", "request_", "lines"), TABLE, ids=lambda each: _id(each))
def test_guard_serves_exactly_those_who_have_the_permissions(
    method: Any, request_: Any, lines: tuple[str, ...]
) -> None:
    expected = [{need_of(text) for text in line.split(" | ")} for line in lines]

    async def main() -> None:
        for count in range(3):
            for needs in combinations(EVERY_NEED, count):
                caller = CallerIdentity("shop", Granted(*needs))
                is_enough = all({*needs, None} & line for line in expected)
                assert await is_served(caller, method, request_) is is_enough, needs
        nobody = CallerIdentity(None, Granted(is_known=False))
        is_open_to_all = not expected and not isinstance(method, StreamRpc)
        assert await is_served(nobody, method, request_) is is_open_to_all

    asyncio.run(main())
