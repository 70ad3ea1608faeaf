from ternmq_protos.v1 import common_pb2 as _common_pb2
from ternmq_protos.v1 import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MessageModel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_MODEL_UNSPECIFIED: _ClassVar[MessageModel]
    CLUSTERING: _ClassVar[MessageModel]
    BROADCASTING: _ClassVar[MessageModel]

class ConsumeFrom(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONSUME_FROM_UNSPECIFIED: _ClassVar[ConsumeFrom]
    LAST_OFFSET: _ClassVar[ConsumeFrom]
    FIRST_OFFSET: _ClassVar[ConsumeFrom]
    TIMESTAMP: _ClassVar[ConsumeFrom]
MESSAGE_MODEL_UNSPECIFIED: MessageModel
CLUSTERING: MessageModel
BROADCASTING: MessageModel
CONSUME_FROM_UNSPECIFIED: ConsumeFrom
LAST_OFFSET: ConsumeFrom
FIRST_OFFSET: ConsumeFrom
TIMESTAMP: ConsumeFrom

class ConsumerGroup(_message.Message):
    __slots__ = ("group", "model", "consume_from", "subscriptions")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CONSUME_FROM_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    group: str
    model: MessageModel
    consume_from: ConsumeFrom
    subscriptions: _containers.RepeatedCompositeFieldContainer[_messages_pb2.Subscription]
    def __init__(self, group: _Optional[str] = ..., model: _Optional[_Union[MessageModel, str]] = ..., consume_from: _Optional[_Union[ConsumeFrom, str]] = ..., subscriptions: _Optional[_Iterable[_Union[_messages_pb2.Subscription, _Mapping]]] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("hello", "heartbeat", "goodbye", "running_state")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_STATE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    heartbeat: Heartbeat
    goodbye: Goodbye
    running_state: RunningState
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., running_state: _Optional[_Union[RunningState, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("client_id", "incarnation", "producer_groups", "consumer_groups")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUPS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUPS_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    incarnation: str
    producer_groups: _containers.RepeatedScalarFieldContainer[str]
    consumer_groups: _containers.RepeatedCompositeFieldContainer[ConsumerGroup]
    def __init__(self, client_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., producer_groups: _Optional[_Iterable[str]] = ..., consumer_groups: _Optional[_Iterable[_Union[ConsumerGroup, _Mapping]]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("producer_groups", "consumer_groups")
    PRODUCER_GROUPS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_GROUPS_FIELD_NUMBER: _ClassVar[int]
    producer_groups: _containers.RepeatedScalarFieldContainer[str]
    consumer_groups: _containers.RepeatedCompositeFieldContainer[ConsumerGroup]
    def __init__(self, producer_groups: _Optional[_Iterable[str]] = ..., consumer_groups: _Optional[_Iterable[_Union[ConsumerGroup, _Mapping]]] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SessionReply(_message.Message):
    __slots__ = ("welcome", "members_changed", "check_transaction", "offsets_reset", "reply_arrived", "report_state", "subscriptions_differ", "place_registered")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    CHECK_TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_RESET_FIELD_NUMBER: _ClassVar[int]
    REPLY_ARRIVED_FIELD_NUMBER: _ClassVar[int]
    REPORT_STATE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_DIFFER_FIELD_NUMBER: _ClassVar[int]
    PLACE_REGISTERED_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    members_changed: MembersChanged
    check_transaction: CheckTransaction
    offsets_reset: OffsetsReset
    reply_arrived: ReplyArrived
    report_state: ReportState
    subscriptions_differ: SubscriptionsDiffer
    place_registered: PlaceRegistered
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., members_changed: _Optional[_Union[MembersChanged, _Mapping]] = ..., check_transaction: _Optional[_Union[CheckTransaction, _Mapping]] = ..., offsets_reset: _Optional[_Union[OffsetsReset, _Mapping]] = ..., reply_arrived: _Optional[_Union[ReplyArrived, _Mapping]] = ..., report_state: _Optional[_Union[ReportState, _Mapping]] = ..., subscriptions_differ: _Optional[_Union[SubscriptionsDiffer, _Mapping]] = ..., place_registered: _Optional[_Union[PlaceRegistered, _Mapping]] = ...) -> None: ...

class CheckTransaction(_message.Message):
    __slots__ = ("producer_group", "transaction_offset", "message_id", "transaction_id", "record", "check")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    transaction_offset: int
    message_id: str
    transaction_id: str
    record: bytes
    check: int
    def __init__(self, producer_group: _Optional[str] = ..., transaction_offset: _Optional[int] = ..., message_id: _Optional[str] = ..., transaction_id: _Optional[str] = ..., record: _Optional[bytes] = ..., check: _Optional[int] = ...) -> None: ...

class OffsetsReset(_message.Message):
    __slots__ = ("group", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[QueueOffset]
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[QueueOffset, _Mapping]]] = ...) -> None: ...

class ReplyArrived(_message.Message):
    __slots__ = ("correlation_id", "record")
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    correlation_id: str
    record: bytes
    def __init__(self, correlation_id: _Optional[str] = ..., record: _Optional[bytes] = ...) -> None: ...

class SubscriptionsDiffer(_message.Message):
    __slots__ = ("group", "differences")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    group: str
    differences: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., differences: _Optional[_Iterable[str]] = ...) -> None: ...

class PlaceRegistered(_message.Message):
    __slots__ = ("broker_id", "epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class ReportState(_message.Message):
    __slots__ = ("request_id", "group")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    group: str
    def __init__(self, request_id: _Optional[int] = ..., group: _Optional[str] = ...) -> None: ...

class RunningState(_message.Message):
    __slots__ = ("request_id", "group", "queues", "facts")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    group: str
    queues: _containers.RepeatedCompositeFieldContainer[QueueState]
    facts: _containers.ScalarMap[str, str]
    def __init__(self, request_id: _Optional[int] = ..., group: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[QueueState, _Mapping]]] = ..., facts: _Optional[_Mapping[str, str]] = ...) -> None: ...

class QueueState(_message.Message):
    __slots__ = ("topic", "broker_name", "queue_id", "commit_offset", "read_offset", "messages", "bytes", "locked", "pulled_at_ms", "consumed_at_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    READ_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LOCKED_FIELD_NUMBER: _ClassVar[int]
    PULLED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    broker_name: str
    queue_id: int
    commit_offset: int
    read_offset: int
    messages: int
    bytes: int
    locked: bool
    pulled_at_ms: int
    consumed_at_ms: int
    def __init__(self, topic: _Optional[str] = ..., broker_name: _Optional[str] = ..., queue_id: _Optional[int] = ..., commit_offset: _Optional[int] = ..., read_offset: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., locked: bool = ..., pulled_at_ms: _Optional[int] = ..., consumed_at_ms: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class MembersChanged(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class ListMembersRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class ListMembersReply(_message.Message):
    __slots__ = ("status", "client_ids")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_IDS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    client_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., client_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class QueueOffset(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "status", "version", "lock_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOCK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    status: _common_pb2.Status
    version: int
    lock_token: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., version: _Optional[int] = ..., lock_token: _Optional[int] = ...) -> None: ...

class CommitOffsetsRequest(_message.Message):
    __slots__ = ("group", "client_id", "offsets", "force")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    offsets: _containers.RepeatedCompositeFieldContainer[QueueOffset]
    force: bool
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[QueueOffset, _Mapping]]] = ..., force: bool = ...) -> None: ...

class CommitOffsetsReply(_message.Message):
    __slots__ = ("status", "refused", "kept")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    refused: _containers.RepeatedCompositeFieldContainer[QueueOffset]
    kept: _containers.RepeatedCompositeFieldContainer[QueueOffset]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., refused: _Optional[_Iterable[_Union[QueueOffset, _Mapping]]] = ..., kept: _Optional[_Iterable[_Union[QueueOffset, _Mapping]]] = ...) -> None: ...

class QueryOffsetRequest(_message.Message):
    __slots__ = ("group", "topic", "queue_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ...) -> None: ...

class QueryOffsetReply(_message.Message):
    __slots__ = ("status", "offset", "version", "is_kept")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IS_KEPT_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    offset: int
    version: int
    is_kept: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., offset: _Optional[int] = ..., version: _Optional[int] = ..., is_kept: bool = ...) -> None: ...

class QueueLock(_message.Message):
    __slots__ = ("topic", "queue_id", "token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    token: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., token: _Optional[int] = ...) -> None: ...

class LockQueuesRequest(_message.Message):
    __slots__ = ("group", "client_id", "queues")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    queues: _containers.RepeatedCompositeFieldContainer[QueueLock]
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[QueueLock, _Mapping]]] = ...) -> None: ...

class LockQueuesReply(_message.Message):
    __slots__ = ("status", "locked", "lease_ms")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LOCKED_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    locked: _containers.RepeatedCompositeFieldContainer[QueueLock]
    lease_ms: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., locked: _Optional[_Iterable[_Union[QueueLock, _Mapping]]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class UnlockQueuesRequest(_message.Message):
    __slots__ = ("group", "client_id", "queues")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    queues: _containers.RepeatedCompositeFieldContainer[QueueLock]
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[QueueLock, _Mapping]]] = ...) -> None: ...

class UnlockQueuesReply(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class SendBackRequest(_message.Message):
    __slots__ = ("group", "client_id", "messages")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    messages: _containers.RepeatedCompositeFieldContainer[FailedMessage]
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[FailedMessage, _Mapping]]] = ...) -> None: ...

class FailedMessage(_message.Message):
    __slots__ = ("physical_offset", "message_id", "topic", "queue_id", "queue_offset", "delay_level", "attempts_max", "lock_token", "reconsume_times", "version")
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    LOCK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RECONSUME_TIMES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    physical_offset: int
    message_id: str
    topic: str
    queue_id: int
    queue_offset: int
    delay_level: int
    attempts_max: int
    lock_token: int
    reconsume_times: int
    version: int
    def __init__(self, physical_offset: _Optional[int] = ..., message_id: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ..., delay_level: _Optional[int] = ..., attempts_max: _Optional[int] = ..., lock_token: _Optional[int] = ..., reconsume_times: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class SendBackReply(_message.Message):
    __slots__ = ("status", "outcomes")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    outcomes: _containers.RepeatedCompositeFieldContainer[_common_pb2.Status]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., outcomes: _Optional[_Iterable[_Union[_common_pb2.Status, _Mapping]]] = ...) -> None: ...
