"""Service methods: every RPC of the .proto files as a constant. A test compares the two."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ternmq_model.response_code import STORED_CODES, ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting.rpc import Rep, Req, StreamRpc, UnaryRpc

_METHODS: Final = {
    method.input_type.full_name: method
    for module in (nameserver, messages, groups, transactions, admin, replication)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""Every method of the .proto files, by the unique type of its request."""


def _unary(
    request: type[Req], reply: type[Rep], answers: Iterable[int] = (ResponseCode.SUCCESS,)
) -> UnaryRpc[Req, Rep]:
    method = _METHODS[request.DESCRIPTOR.full_name]
    service = method.containing_service.full_name
    return UnaryRpc(service, method.name, request, reply, frozenset(map(int, answers)))


def _stream(request: type[Req], reply: type[Rep]) -> StreamRpc[Req, Rep]:
    method = _METHODS[request.DESCRIPTOR.full_name]
    return StreamRpc(method.containing_service.full_name, method.name, request, reply)


REGISTER_BROKER = _unary(nameserver.RegisterBrokerRequest, nameserver.RegisterBrokerReply)
UNREGISTER_BROKER = _unary(nameserver.UnregisterBrokerRequest, nameserver.UnregisterBrokerReply)
GET_TOPIC_ROUTE = _unary(nameserver.GetTopicRouteRequest, nameserver.GetTopicRouteReply)
GET_CLUSTER = _unary(nameserver.GetClusterRequest, nameserver.GetClusterReply)
LIST_TOPICS = _unary(nameserver.ListTopicsRequest, nameserver.ListTopicsReply)
PUT_KV = _unary(nameserver.PutKvRequest, nameserver.PutKvReply)
GET_KV = _unary(nameserver.GetKvRequest, nameserver.GetKvReply)
DELETE_KV = _unary(nameserver.DeleteKvRequest, nameserver.DeleteKvReply)
WIPE_WRITE_PERMISSION = _unary(
    nameserver.WipeWritePermissionRequest, nameserver.WipeWritePermissionReply
)
ADD_WRITE_PERMISSION = _unary(
    nameserver.AddWritePermissionRequest, nameserver.AddWritePermissionReply
)
GET_EPOCH = _unary(nameserver.GetEpochRequest, nameserver.GetEpochReply)
GET_ACCESS = _unary(nameserver.GetAccessRequest, nameserver.GetAccessReply)
PUT_ACCESS = _unary(
    nameserver.PutAccessRequest,
    nameserver.PutAccessReply,
    (ResponseCode.SUCCESS, ResponseCode.ILLEGAL_OPERATION),
)

SEND = _unary(messages.SendRequest, messages.SendReply, STORED_CODES)
SEND_STREAM = _stream(messages.SendStreamRequest, messages.SendStreamReply)
PULL = _unary(
    messages.PullRequest,
    messages.PullReply,
    (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    ),
)
PULL_STREAM = _stream(messages.PullStreamRequest, messages.PullStreamReply)
SCAN = _stream(messages.ScanRequest, messages.ScanReply)
VIEW_MESSAGE = _unary(messages.ViewMessageRequest, messages.ViewMessageReply)
QUERY_MESSAGES = _unary(messages.QueryMessagesRequest, messages.QueryMessagesReply)

SESSION = _stream(groups.SessionRequest, groups.SessionReply)
LIST_MEMBERS = _unary(groups.ListMembersRequest, groups.ListMembersReply)
COMMIT_OFFSETS = _unary(
    groups.CommitOffsetsRequest,
    groups.CommitOffsetsReply,
    (ResponseCode.SUCCESS, ResponseCode.INVALID_PARAMETER),
)
QUERY_OFFSET = _unary(groups.QueryOffsetRequest, groups.QueryOffsetReply)
LOCK_QUEUES = _unary(groups.LockQueuesRequest, groups.LockQueuesReply)
UNLOCK_QUEUES = _unary(groups.UnlockQueuesRequest, groups.UnlockQueuesReply)
SEND_BACK = _unary(groups.SendBackRequest, groups.SendBackReply)

END_TRANSACTION = _unary(transactions.EndTransactionRequest, transactions.EndTransactionReply)
END_TRANSACTIONS = _stream(transactions.EndTransactionsRequest, transactions.EndTransactionsReply)
FIND_TRANSACTIONS = _stream(
    transactions.FindTransactionsRequest, transactions.FindTransactionsReply
)
LIST_TRANSACTIONS = _stream(
    transactions.ListTransactionsRequest, transactions.ListTransactionsReply
)
ROLL_BACK_STAGED = _stream(transactions.RollBackStagedRequest, transactions.RollBackStagedReply)

QUERY_OFFSET_BY_TIME = _unary(admin.QueryOffsetByTimeRequest, admin.QueryOffsetByTimeReply)
MEASURE_QUEUES = _unary(admin.MeasureQueuesRequest, admin.MeasureQueuesReply)
PUT_TOPIC = _unary(admin.PutTopicRequest, admin.PutTopicReply)
PUT_TOPICS = _unary(admin.PutTopicsRequest, admin.PutTopicsReply)
DELETE_TOPIC = _unary(admin.DeleteTopicRequest, admin.DeleteTopicReply)
DESCRIBE_TOPIC = _unary(admin.DescribeTopicRequest, admin.DescribeTopicReply)
LIST_GROUPS = _unary(admin.ListGroupsRequest, admin.ListGroupsReply)
DESCRIBE_GROUP = _unary(admin.DescribeGroupRequest, admin.DescribeGroupReply)
DESCRIBE_BROKER = _unary(admin.DescribeBrokerRequest, admin.DescribeBrokerReply)
CLEAN_STORE = _unary(admin.CleanStoreRequest, admin.CleanStoreReply)
DESCRIBE_STORE = _unary(admin.DescribeStoreRequest, admin.DescribeStoreReply)
PUT_GROUP = _unary(admin.PutGroupRequest, admin.PutGroupReply)
DELETE_GROUP = _unary(admin.DeleteGroupRequest, admin.DeleteGroupReply)
RESET_OFFSETS = _unary(admin.ResetOffsetsRequest, admin.ResetOffsetsReply)
CLONE_OFFSETS = _unary(admin.CloneOffsetsRequest, admin.CloneOffsetsReply)
DESCRIBE_CONSUMER = _unary(admin.DescribeConsumerRequest, admin.DescribeConsumerReply)
LIST_PRODUCERS = _unary(admin.ListProducersRequest, admin.ListProducersReply)
DESCRIBE_STATISTICS = _unary(admin.DescribeStatisticsRequest, admin.DescribeStatisticsReply)
LIST_SETTINGS = _unary(admin.ListSettingsRequest, admin.ListSettingsReply)
UPDATE_SETTINGS = _unary(admin.UpdateSettingsRequest, admin.UpdateSettingsReply)
PROMOTE = _unary(admin.PromoteRequest, admin.PromoteReply)

FOLLOW = _stream(replication.FollowRequest, replication.FollowReply)
METADATA = _stream(replication.MetadataRequest, replication.MetadataReply)
REPLICATION_STATUS = _unary(
    replication.ReplicationStatusRequest, replication.ReplicationStatusReply
)

ALL: Final[Sequence[UnaryRpc[Any, Any] | StreamRpc[Any, Any]]] = tuple(
    each for each in list(globals().values()) if type(each) in (UnaryRpc, StreamRpc)
)
"""Every RPC, in the order of the files."""
