"""Service methods: every RPC of the .proto files as a constant. A test holds it against them."""

from typing import Final

from ternmq_model.response_code import STORED_CODES, ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting.rpc import StreamRpc, UnaryRpc

_NS: Final = "NameServer"
REGISTER_BROKER = UnaryRpc(
    _NS, "RegisterBroker", nameserver.RegisterBrokerRequest, nameserver.RegisterBrokerReply
)
UNREGISTER_BROKER = UnaryRpc(
    _NS, "UnregisterBroker", nameserver.UnregisterBrokerRequest, nameserver.UnregisterBrokerReply
)
GET_TOPIC_ROUTE = UnaryRpc(
    _NS, "GetTopicRoute", nameserver.GetTopicRouteRequest, nameserver.GetTopicRouteReply
)
GET_CLUSTER = UnaryRpc(_NS, "GetCluster", nameserver.GetClusterRequest, nameserver.GetClusterReply)
LIST_TOPICS = UnaryRpc(_NS, "ListTopics", nameserver.ListTopicsRequest, nameserver.ListTopicsReply)
PUT_KV = UnaryRpc(_NS, "PutKv", nameserver.PutKvRequest, nameserver.PutKvReply)
GET_KV = UnaryRpc(_NS, "GetKv", nameserver.GetKvRequest, nameserver.GetKvReply)
DELETE_KV = UnaryRpc(_NS, "DeleteKv", nameserver.DeleteKvRequest, nameserver.DeleteKvReply)
WIPE_WRITE_PERMISSION = UnaryRpc(
    _NS,
    "WipeWritePermission",
    nameserver.WipeWritePermissionRequest,
    nameserver.WipeWritePermissionReply,
)

ADD_WRITE_PERMISSION = UnaryRpc(
    _NS,
    "AddWritePermission",
    nameserver.AddWritePermissionRequest,
    nameserver.AddWritePermissionReply,
)
GET_EPOCH = UnaryRpc(_NS, "GetEpoch", nameserver.GetEpochRequest, nameserver.GetEpochReply)

_MESSAGES: Final = "Messages"
SEND = UnaryRpc(
    _MESSAGES,
    "Send",
    messages.SendRequest,
    messages.SendReply,
    answers=frozenset(map(int, STORED_CODES)),
)
SEND_STREAM = StreamRpc(
    _MESSAGES, "SendStream", messages.SendStreamRequest, messages.SendStreamReply
)
PULL = UnaryRpc(
    _MESSAGES,
    "Pull",
    messages.PullRequest,
    messages.PullReply,
    answers=frozenset(
        {
            int(ResponseCode.SUCCESS),
            int(ResponseCode.PULL_NOT_FOUND),
            int(ResponseCode.PULL_RETRY_IMMEDIATELY),
            int(ResponseCode.PULL_OFFSET_MOVED),
        }
    ),
)
PULL_STREAM = StreamRpc(
    _MESSAGES, "PullStream", messages.PullStreamRequest, messages.PullStreamReply
)
SCAN = StreamRpc(_MESSAGES, "Scan", messages.ScanRequest, messages.ScanReply)
VIEW_MESSAGE = UnaryRpc(
    _MESSAGES, "ViewMessage", messages.ViewMessageRequest, messages.ViewMessageReply
)
QUERY_MESSAGES = UnaryRpc(
    _MESSAGES, "QueryMessages", messages.QueryMessagesRequest, messages.QueryMessagesReply
)

_GROUPS: Final = "Groups"
SESSION = StreamRpc(_GROUPS, "Session", groups.SessionRequest, groups.SessionReply)
LIST_MEMBERS = UnaryRpc(_GROUPS, "ListMembers", groups.ListMembersRequest, groups.ListMembersReply)
COMMIT_OFFSETS = UnaryRpc(
    _GROUPS,
    "CommitOffsets",
    groups.CommitOffsetsRequest,
    groups.CommitOffsetsReply,
    answers=frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.INVALID_PARAMETER)}),
)
QUERY_OFFSET = UnaryRpc(_GROUPS, "QueryOffset", groups.QueryOffsetRequest, groups.QueryOffsetReply)
LOCK_QUEUES = UnaryRpc(_GROUPS, "LockQueues", groups.LockQueuesRequest, groups.LockQueuesReply)
UNLOCK_QUEUES = UnaryRpc(
    _GROUPS, "UnlockQueues", groups.UnlockQueuesRequest, groups.UnlockQueuesReply
)
SEND_BACK = UnaryRpc(_GROUPS, "SendBack", groups.SendBackRequest, groups.SendBackReply)

_TRANSACTIONS: Final = "Transactions"
END_TRANSACTION = UnaryRpc(
    _TRANSACTIONS,
    "EndTransaction",
    transactions.EndTransactionRequest,
    transactions.EndTransactionReply,
)
END_TRANSACTIONS = StreamRpc(
    _TRANSACTIONS,
    "EndTransactions",
    transactions.EndTransactionsRequest,
    transactions.EndTransactionsReply,
)
FIND_TRANSACTIONS = StreamRpc(
    _TRANSACTIONS,
    "FindTransactions",
    transactions.FindTransactionsRequest,
    transactions.FindTransactionsReply,
)
LIST_TRANSACTIONS = StreamRpc(
    _TRANSACTIONS,
    "ListTransactions",
    transactions.ListTransactionsRequest,
    transactions.ListTransactionsReply,
)
ROLL_BACK_STAGED = StreamRpc(
    _TRANSACTIONS,
    "RollBackStaged",
    transactions.RollBackStagedRequest,
    transactions.RollBackStagedReply,
)

_ADMIN: Final = "Admin"
QUERY_OFFSET_BY_TIME = UnaryRpc(
    _ADMIN, "QueryOffsetByTime", admin.QueryOffsetByTimeRequest, admin.QueryOffsetByTimeReply
)
MEASURE_QUEUES = UnaryRpc(
    _ADMIN, "MeasureQueues", admin.MeasureQueuesRequest, admin.MeasureQueuesReply
)
PUT_TOPIC = UnaryRpc(_ADMIN, "PutTopic", admin.PutTopicRequest, admin.PutTopicReply)
PUT_TOPICS = UnaryRpc(_ADMIN, "PutTopics", admin.PutTopicsRequest, admin.PutTopicsReply)
DELETE_TOPIC = UnaryRpc(_ADMIN, "DeleteTopic", admin.DeleteTopicRequest, admin.DeleteTopicReply)
DESCRIBE_TOPIC = UnaryRpc(
    _ADMIN, "DescribeTopic", admin.DescribeTopicRequest, admin.DescribeTopicReply
)
LIST_GROUPS = UnaryRpc(_ADMIN, "ListGroups", admin.ListGroupsRequest, admin.ListGroupsReply)
DESCRIBE_GROUP = UnaryRpc(
    _ADMIN, "DescribeGroup", admin.DescribeGroupRequest, admin.DescribeGroupReply
)
DESCRIBE_BROKER = UnaryRpc(
    _ADMIN, "DescribeBroker", admin.DescribeBrokerRequest, admin.DescribeBrokerReply
)
CLEAN_STORE = UnaryRpc(_ADMIN, "CleanStore", admin.CleanStoreRequest, admin.CleanStoreReply)
DESCRIBE_STORE = UnaryRpc(
    _ADMIN, "DescribeStore", admin.DescribeStoreRequest, admin.DescribeStoreReply
)
PUT_GROUP = UnaryRpc(_ADMIN, "PutGroup", admin.PutGroupRequest, admin.PutGroupReply)
DELETE_GROUP = UnaryRpc(_ADMIN, "DeleteGroup", admin.DeleteGroupRequest, admin.DeleteGroupReply)
RESET_OFFSETS = UnaryRpc(_ADMIN, "ResetOffsets", admin.ResetOffsetsRequest, admin.ResetOffsetsReply)
CLONE_OFFSETS = UnaryRpc(_ADMIN, "CloneOffsets", admin.CloneOffsetsRequest, admin.CloneOffsetsReply)
DESCRIBE_CONSUMER = UnaryRpc(
    _ADMIN, "DescribeConsumer", admin.DescribeConsumerRequest, admin.DescribeConsumerReply
)
LIST_PRODUCERS = UnaryRpc(
    _ADMIN, "ListProducers", admin.ListProducersRequest, admin.ListProducersReply
)
DESCRIBE_STATISTICS = UnaryRpc(
    _ADMIN, "DescribeStatistics", admin.DescribeStatisticsRequest, admin.DescribeStatisticsReply
)
LIST_SETTINGS = UnaryRpc(_ADMIN, "ListSettings", admin.ListSettingsRequest, admin.ListSettingsReply)
UPDATE_SETTINGS = UnaryRpc(
    _ADMIN, "UpdateSettings", admin.UpdateSettingsRequest, admin.UpdateSettingsReply
)
PROMOTE = UnaryRpc(_ADMIN, "Promote", admin.PromoteRequest, admin.PromoteReply)

_REPLICATION: Final = "Replication"
FOLLOW = StreamRpc(_REPLICATION, "Follow", replication.FollowRequest, replication.FollowReply)
METADATA = StreamRpc(
    _REPLICATION, "Metadata", replication.MetadataRequest, replication.MetadataReply
)
REPLICATION_STATUS = UnaryRpc(
    _REPLICATION, "Status", replication.ReplicationStatusRequest, replication.ReplicationStatusReply
)

ALL: Final = (
    REGISTER_BROKER,
    UNREGISTER_BROKER,
    GET_TOPIC_ROUTE,
    GET_CLUSTER,
    LIST_TOPICS,
    PUT_KV,
    GET_KV,
    DELETE_KV,
    WIPE_WRITE_PERMISSION,
    ADD_WRITE_PERMISSION,
    GET_EPOCH,
    SEND,
    SEND_STREAM,
    PULL,
    PULL_STREAM,
    SCAN,
    VIEW_MESSAGE,
    QUERY_MESSAGES,
    SESSION,
    LIST_MEMBERS,
    COMMIT_OFFSETS,
    QUERY_OFFSET,
    LOCK_QUEUES,
    UNLOCK_QUEUES,
    SEND_BACK,
    END_TRANSACTION,
    END_TRANSACTIONS,
    FIND_TRANSACTIONS,
    LIST_TRANSACTIONS,
    ROLL_BACK_STAGED,
    QUERY_OFFSET_BY_TIME,
    MEASURE_QUEUES,
    PUT_TOPIC,
    PUT_TOPICS,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    LIST_GROUPS,
    DESCRIBE_GROUP,
    DESCRIBE_BROKER,
    CLEAN_STORE,
    DESCRIBE_STORE,
    PUT_GROUP,
    DELETE_GROUP,
    RESET_OFFSETS,
    CLONE_OFFSETS,
    DESCRIBE_CONSUMER,
    LIST_PRODUCERS,
    DESCRIBE_STATISTICS,
    LIST_SETTINGS,
    UPDATE_SETTINGS,
    PROMOTE,
    FOLLOW,
    METADATA,
    REPLICATION_STATUS,
)
"""Every RPC, in the order of the files."""
