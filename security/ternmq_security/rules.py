"""Permissions that each RPC needs, by its request. Pure.

A rule returns the items of a request, all of which must hold. An item is a tuple of alternatives,
one of which suffices; `None` among them = every known identity. Topics that only a handler knows,
such as those inside records, are checked by the handler through `Call.permits`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from ternmq_model.names import AUTO_CREATE_TOPIC, DEAD_LETTER_TOOLS
from ternmq_model.permission import (
    CLUSTER,
    Action,
    Need,
    of_group,
    to_administer,
    to_know_group,
    to_know_topic,
    to_publish,
    to_read,
)
from ternmq_model.properties import MESSAGE_TYPE, REPLY
from ternmq_model.route import ORDER_NAMESPACE
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting import service_methods
from ternmq_remoting.rpc import StreamRpc, UnaryRpc

Rpc: TypeAlias = UnaryRpc[Any, Any] | StreamRpc[Any, Any]
Alternatives: TypeAlias = tuple[Need | None, ...]
Rule: TypeAlias = Callable[[Any], Iterable[Alternatives]]
"""Function that returns the items of a request."""

_KNOWN: Final[Iterable[Alternatives]] = ((None,),)
_ADMIN: Final[Need] = (Action.ADMIN, CLUSTER)
_REPLICATE: Final[Need] = (Action.REPLICATE, CLUSTER)


def _any_known(_request: object) -> Iterable[Alternatives]:
    return _KNOWN


def _admin(_request: object) -> Iterable[Alternatives]:
    return ((_ADMIN,),)


def _member(_request: object) -> Iterable[Alternatives]:
    return ((_REPLICATE,),)


def _member_or_admin(_request: object) -> Iterable[Alternatives]:
    return ((_REPLICATE, _ADMIN),)


def _of_topic(topic: str) -> Alternatives:
    """Return the permissions that let their owner know about a topic."""
    if topic == AUTO_CREATE_TOPIC:
        return (None,)  # producers ask for the route of the template of new topics
    return to_know_topic(topic)


def _topic_use(
    request: nameserver.GetTopicRouteRequest
    | admin.DescribeTopicRequest
    | admin.QueryOffsetByTimeRequest,
) -> Iterable[Alternatives]:
    return (_of_topic(request.topic),)


def _measured(request: admin.MeasureQueuesRequest) -> Iterable[Alternatives]:
    topics = dict.fromkeys(each.topic for each in request.stretches)
    return ((None,), *map(_of_topic, topics))


def _setting(request: nameserver.GetKvRequest) -> Iterable[Alternatives]:
    if request.namespace != ORDER_NAMESPACE:
        return ((_ADMIN,),)
    return (to_know_topic(request.key),) if request.key else _KNOWN


def _put_topic(request: admin.PutTopicRequest) -> Iterable[Alternatives]:
    return ((to_administer(request.topic.topic),),)


def _put_topics(request: admin.PutTopicsRequest) -> Iterable[Alternatives]:
    return ((None,), *((to_administer(each.topic),) for each in request.topics))


def _delete_topic(request: admin.DeleteTopicRequest) -> Iterable[Alternatives]:
    return ((to_administer(request.topic),),)


def _administers(group: str) -> Alternatives:
    return (of_group(group, Action.ADMIN),)


def _put_group(request: admin.PutGroupRequest) -> Iterable[Alternatives]:
    return (_administers(request.settings.group),)


def _delete_group(request: admin.DeleteGroupRequest) -> Iterable[Alternatives]:
    return (_administers(request.group),)


def _reset(request: admin.ResetOffsetsRequest) -> Iterable[Alternatives]:
    """Return the items of a reset, whose reply tells offsets of the topic."""
    return (_administers(request.group), to_know_topic(request.topic))


def _clone(request: admin.CloneOffsetsRequest) -> Iterable[Alternatives]:
    return (_administers(request.to_group), to_know_group(request.from_group))


def _group_use(
    request: admin.DescribeGroupRequest | admin.DescribeConsumerRequest | groups.ListMembersRequest,
) -> Iterable[Alternatives]:
    return (to_know_group(request.group),)


def _producers(request: admin.ListProducersRequest) -> Iterable[Alternatives]:
    if not request.group:
        return ((_ADMIN,),)
    return ((_produces(request.group), of_group(request.group, Action.ADMIN), _ADMIN),)


def _produces(group: str) -> Need:
    return of_group(group, Action.PUBLISH)


def _consumes(group: str, topics: Iterable[str]) -> Iterable[Alternatives]:
    """Return the items of work in a consumer group.

    Without the topics, a group of one's own would tell the offsets of foreign topics, and a
    message that is sent back to it would be a copy of a foreign one.
    """
    # The group of the tools has progress of each dead letter topic, which belongs to another group.
    yield (None,) if group == DEAD_LETTER_TOOLS else (of_group(group),)
    for topic in dict.fromkeys(topics):
        yield (to_read(topic),)


def _commit(request: groups.CommitOffsetsRequest) -> Iterable[Alternatives]:
    return _consumes(request.group, (each.topic for each in request.offsets))


def _query_offset(request: groups.QueryOffsetRequest) -> Iterable[Alternatives]:
    return _consumes(request.group, (request.topic,))


def _lock(
    request: groups.LockQueuesRequest | groups.UnlockQueuesRequest,
) -> Iterable[Alternatives]:
    return _consumes(request.group, (each.topic for each in request.queues))


def _send_back(request: groups.SendBackRequest) -> Iterable[Alternatives]:
    return _consumes(request.group, (each.topic for each in request.messages))


def _session(request: groups.SessionRequest) -> Iterable[Alternatives]:
    """Return the items of a hello or heartbeat, whose groups replace those before.

    Every producer names its group. The handler takes it for a member only with `publish` on the
    group: members are asked about its transactions.
    """
    match request.WhichOneof("request"):
        case "hello":
            told: groups.Hello | groups.Heartbeat = request.hello
            yield (None,)
        case "heartbeat":
            told = request.heartbeat
        case _:
            return
    for group in told.consumer_groups:
        yield (of_group(group.group),)
        for subscription in group.subscriptions:
            yield (to_read(subscription.topic),)


def _send(request: messages.SendRequest) -> Iterable[Alternatives]:
    is_reply = request.properties.get(MESSAGE_TYPE) == REPLY
    return ((to_publish(request.topic, is_reply=is_reply),),)


def _send_stream(request: messages.SendStreamRequest) -> Iterable[Alternatives]:
    return () if request.WhichOneof("request") == "batch" else _KNOWN


def _pull(request: messages.PullRequest) -> Iterable[Alternatives]:
    if not request.group:  # a reader that commits nothing
        return ((to_read(request.topic),),)
    return ((to_read(request.topic),), (of_group(request.group),))


def _pull_stream(request: messages.PullStreamRequest) -> Iterable[Alternatives]:
    match request.WhichOneof("request"):
        case "open":
            return ((of_group(request.open.group),),) if request.open.group else _KNOWN
        case "subscribe":
            return ((to_read(request.subscribe.topic),),)
        case _:
            return ()


def _scan(request: messages.ScanRequest) -> Iterable[Alternatives]:
    return ((to_read(request.topic),),)


def _query_messages(request: messages.QueryMessagesRequest) -> Iterable[Alternatives]:
    return ((to_read(request.topic),),) if request.topic else _KNOWN


def _end(request: transactions.EndTransactionRequest) -> Iterable[Alternatives]:
    return ((_produces(request.producer_group),),)


def _end_many(request: transactions.EndTransactionsRequest) -> Iterable[Alternatives]:
    names = dict.fromkeys(each.producer_group for each in request.transactions)
    return ((None,), *((_produces(name),) for name in names))


def _find(request: transactions.FindTransactionsRequest) -> Iterable[Alternatives]:
    return ((_produces(request.producer_group),),)


RULES: Final[Mapping[Rpc, Rule]] = {
    service_methods.REGISTER_BROKER: _member,
    service_methods.UNREGISTER_BROKER: _member,
    service_methods.GET_TOPIC_ROUTE: _topic_use,
    service_methods.GET_CLUSTER: _any_known,
    service_methods.LIST_TOPICS: _any_known,  # which of all topics: the handler
    service_methods.PUT_KV: _admin,
    service_methods.GET_KV: _setting,  # which of all topics: the handler
    service_methods.DELETE_KV: _admin,
    service_methods.WIPE_WRITE_PERMISSION: _admin,
    service_methods.ADD_WRITE_PERMISSION: _admin,
    service_methods.GET_EPOCH: _member_or_admin,
    service_methods.GET_ACCESS: _member_or_admin,
    service_methods.PUT_ACCESS: _admin,
    service_methods.SEND: _send,
    service_methods.SEND_STREAM: _send_stream,  # topics of the records: the handler
    service_methods.PULL: _pull,
    service_methods.PULL_STREAM: _pull_stream,
    service_methods.SCAN: _scan,
    service_methods.VIEW_MESSAGE: _any_known,  # topic of the record: the handler
    service_methods.QUERY_MESSAGES: _query_messages,  # which of all topics: the handler
    service_methods.SESSION: _session,  # producer groups: the handler
    service_methods.LIST_MEMBERS: _group_use,
    service_methods.COMMIT_OFFSETS: _commit,
    service_methods.QUERY_OFFSET: _query_offset,
    service_methods.LOCK_QUEUES: _lock,
    service_methods.UNLOCK_QUEUES: _lock,
    service_methods.SEND_BACK: _send_back,
    service_methods.END_TRANSACTION: _end,  # topic of the half message: the handler
    service_methods.END_TRANSACTIONS: _end_many,  # as END_TRANSACTION
    service_methods.FIND_TRANSACTIONS: _find,
    service_methods.LIST_TRANSACTIONS: _admin,
    service_methods.ROLL_BACK_STAGED: _admin,
    service_methods.QUERY_OFFSET_BY_TIME: _topic_use,
    service_methods.MEASURE_QUEUES: _measured,
    service_methods.PUT_TOPIC: _put_topic,
    service_methods.PUT_TOPICS: _put_topics,
    service_methods.DELETE_TOPIC: _delete_topic,
    service_methods.DESCRIBE_TOPIC: _topic_use,
    service_methods.LIST_GROUPS: _any_known,  # which of all groups: the handler
    service_methods.DESCRIBE_GROUP: _group_use,  # progress in which topics: the handler
    service_methods.DESCRIBE_BROKER: _admin,
    service_methods.CLEAN_STORE: _admin,
    service_methods.DESCRIBE_STORE: _admin,
    service_methods.PUT_GROUP: _put_group,
    service_methods.DELETE_GROUP: _delete_group,
    service_methods.RESET_OFFSETS: _reset,
    service_methods.CLONE_OFFSETS: _clone,  # which of all topics: the handler
    service_methods.DESCRIBE_CONSUMER: _group_use,
    service_methods.LIST_PRODUCERS: _producers,
    service_methods.DESCRIBE_STATISTICS: _admin,
    service_methods.LIST_SETTINGS: _admin,
    service_methods.UPDATE_SETTINGS: _admin,
    service_methods.PROMOTE: _admin,
    service_methods.FOLLOW: _member,
    service_methods.METADATA: _member_or_admin,
    service_methods.REPLICATION_STATUS: _member_or_admin,
}
"""Every RPC of the contract."""
