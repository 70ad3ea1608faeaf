from ternmq_protos.v1 import common_pb2 as _common_pb2
from ternmq_protos.v1 import groups_pb2 as _groups_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Boundary(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOWER: _ClassVar[Boundary]
    UPPER: _ClassVar[Boundary]
LOWER: Boundary
UPPER: Boundary

class PutTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: _common_pb2.TopicConfig
    def __init__(self, topic: _Optional[_Union[_common_pb2.TopicConfig, _Mapping]] = ...) -> None: ...

class PutTopicReply(_message.Message):
    __slots__ = ("status", "created")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    created: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., created: bool = ...) -> None: ...

class PutTopicsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[_common_pb2.TopicConfig]
    def __init__(self, topics: _Optional[_Iterable[_Union[_common_pb2.TopicConfig, _Mapping]]] = ...) -> None: ...

class PutTopicsReply(_message.Message):
    __slots__ = ("status", "results")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    results: _containers.RepeatedCompositeFieldContainer[PutTopicResult]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., results: _Optional[_Iterable[_Union[PutTopicResult, _Mapping]]] = ...) -> None: ...

class PutTopicResult(_message.Message):
    __slots__ = ("status", "created")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    created: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., created: bool = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DeleteTopicReply(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DescribeTopicReply(_message.Message):
    __slots__ = ("status", "topic", "queues", "store_id", "created_log_offset", "created_at_ms")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    topic: _common_pb2.TopicConfig
    queues: _containers.RepeatedCompositeFieldContainer[QueueStatus]
    store_id: str
    created_log_offset: int
    created_at_ms: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., topic: _Optional[_Union[_common_pb2.TopicConfig, _Mapping]] = ..., queues: _Optional[_Iterable[_Union[QueueStatus, _Mapping]]] = ..., store_id: _Optional[str] = ..., created_log_offset: _Optional[int] = ..., created_at_ms: _Optional[int] = ...) -> None: ...

class QueueStatus(_message.Message):
    __slots__ = ("queue_id", "min_offset", "max_offset", "last_stored_at_ms")
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_STORED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    queue_id: int
    min_offset: int
    max_offset: int
    last_stored_at_ms: int
    def __init__(self, queue_id: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., last_stored_at_ms: _Optional[int] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListGroupsReply(_message.Message):
    __slots__ = ("status", "groups", "next_page_token")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    groups: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., groups: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DescribeGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class DescribeGroupReply(_message.Message):
    __slots__ = ("status", "members", "progress", "settings", "differences")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    progress: _containers.RepeatedCompositeFieldContainer[GroupProgress]
    settings: GroupSettings
    differences: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ..., progress: _Optional[_Iterable[_Union[GroupProgress, _Mapping]]] = ..., settings: _Optional[_Union[GroupSettings, _Mapping]] = ..., differences: _Optional[_Iterable[str]] = ...) -> None: ...

class GroupSettings(_message.Message):
    __slots__ = ("group", "consume_enabled", "broadcast_enabled", "consume_from_min_enabled", "retry_queues", "retries_max", "broker_id", "broker_id_when_slow", "notify_members_changed")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUME_ENABLED_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_ENABLED_FIELD_NUMBER: _ClassVar[int]
    CONSUME_FROM_MIN_ENABLED_FIELD_NUMBER: _ClassVar[int]
    RETRY_QUEUES_FIELD_NUMBER: _ClassVar[int]
    RETRIES_MAX_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_WHEN_SLOW_FIELD_NUMBER: _ClassVar[int]
    NOTIFY_MEMBERS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    group: str
    consume_enabled: bool
    broadcast_enabled: bool
    consume_from_min_enabled: bool
    retry_queues: int
    retries_max: int
    broker_id: int
    broker_id_when_slow: int
    notify_members_changed: bool
    def __init__(self, group: _Optional[str] = ..., consume_enabled: bool = ..., broadcast_enabled: bool = ..., consume_from_min_enabled: bool = ..., retry_queues: _Optional[int] = ..., retries_max: _Optional[int] = ..., broker_id: _Optional[int] = ..., broker_id_when_slow: _Optional[int] = ..., notify_members_changed: bool = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("client_id", "address", "group", "connected_at_ms")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    address: str
    group: _groups_pb2.ConsumerGroup
    connected_at_ms: int
    def __init__(self, client_id: _Optional[str] = ..., address: _Optional[str] = ..., group: _Optional[_Union[_groups_pb2.ConsumerGroup, _Mapping]] = ..., connected_at_ms: _Optional[int] = ...) -> None: ...

class GroupProgress(_message.Message):
    __slots__ = ("topic", "queue_id", "committed_offset", "min_offset", "max_offset", "consumed_stored_at_ms", "lag_ms", "version")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_STORED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    committed_offset: int
    min_offset: int
    max_offset: int
    consumed_stored_at_ms: int
    lag_ms: int
    version: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., committed_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., consumed_stored_at_ms: _Optional[int] = ..., lag_ms: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class DescribeBrokerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeBrokerReply(_message.Message):
    __slots__ = ("status", "cluster", "broker_name", "broker_id", "epoch", "version", "started_at_ms", "log_min_offset", "log_max_offset", "log_flushed_offset", "log_confirm_offset", "dispatched_offset", "flush_mode", "disk_used_percent", "disk_level", "waiting", "transactions", "warnings", "port")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LOG_MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_FLUSHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSH_MODE_FIELD_NUMBER: _ClassVar[int]
    DISK_USED_PERCENT_FIELD_NUMBER: _ClassVar[int]
    DISK_LEVEL_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    cluster: str
    broker_name: str
    broker_id: int
    epoch: int
    version: str
    started_at_ms: int
    log_min_offset: int
    log_max_offset: int
    log_flushed_offset: int
    log_confirm_offset: int
    dispatched_offset: int
    flush_mode: str
    disk_used_percent: float
    disk_level: str
    waiting: WaitingMessages
    transactions: OpenTransactions
    warnings: _containers.RepeatedScalarFieldContainer[str]
    port: PortRefusals
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., cluster: _Optional[str] = ..., broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ..., epoch: _Optional[int] = ..., version: _Optional[str] = ..., started_at_ms: _Optional[int] = ..., log_min_offset: _Optional[int] = ..., log_max_offset: _Optional[int] = ..., log_flushed_offset: _Optional[int] = ..., log_confirm_offset: _Optional[int] = ..., dispatched_offset: _Optional[int] = ..., flush_mode: _Optional[str] = ..., disk_used_percent: _Optional[float] = ..., disk_level: _Optional[str] = ..., waiting: _Optional[_Union[WaitingMessages, _Mapping]] = ..., transactions: _Optional[_Union[OpenTransactions, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ..., port: _Optional[_Union[PortRefusals, _Mapping]] = ...) -> None: ...

class PortRefusals(_message.Message):
    __slots__ = ("handshakes", "first_messages", "addresses", "anonymous_bytes", "streams")
    HANDSHAKES_FIELD_NUMBER: _ClassVar[int]
    FIRST_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    ANONYMOUS_BYTES_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    handshakes: int
    first_messages: int
    addresses: int
    anonymous_bytes: int
    streams: int
    def __init__(self, handshakes: _Optional[int] = ..., first_messages: _Optional[int] = ..., addresses: _Optional[int] = ..., anonymous_bytes: _Optional[int] = ..., streams: _Optional[int] = ...) -> None: ...

class OpenTransactions(_message.Message):
    __slots__ = ("open", "committed", "rolled_back", "asked", "alone", "parked", "unreadable", "staged", "expired")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    ALONE_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    open: int
    committed: int
    rolled_back: int
    asked: int
    alone: int
    parked: int
    unreadable: int
    staged: int
    expired: int
    def __init__(self, open: _Optional[int] = ..., committed: _Optional[int] = ..., rolled_back: _Optional[int] = ..., asked: _Optional[int] = ..., alone: _Optional[int] = ..., parked: _Optional[int] = ..., unreadable: _Optional[int] = ..., staged: _Optional[int] = ..., expired: _Optional[int] = ...) -> None: ...

class WaitingMessages(_message.Message):
    __slots__ = ("delayed", "timed", "timed_unread", "delivered", "dropped", "cancelled", "rolled", "late_p50_ms", "late_p99_ms", "late_max_ms")
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    TIMED_FIELD_NUMBER: _ClassVar[int]
    TIMED_UNREAD_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    ROLLED_FIELD_NUMBER: _ClassVar[int]
    LATE_P50_MS_FIELD_NUMBER: _ClassVar[int]
    LATE_P99_MS_FIELD_NUMBER: _ClassVar[int]
    LATE_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    delayed: int
    timed: int
    timed_unread: int
    delivered: int
    dropped: int
    cancelled: int
    rolled: int
    late_p50_ms: int
    late_p99_ms: int
    late_max_ms: int
    def __init__(self, delayed: _Optional[int] = ..., timed: _Optional[int] = ..., timed_unread: _Optional[int] = ..., delivered: _Optional[int] = ..., dropped: _Optional[int] = ..., cancelled: _Optional[int] = ..., rolled: _Optional[int] = ..., late_p50_ms: _Optional[int] = ..., late_p99_ms: _Optional[int] = ..., late_max_ms: _Optional[int] = ...) -> None: ...

class CleanStoreRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CleanStoreReply(_message.Message):
    __slots__ = ("status", "files_deleted", "log_min_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FILES_DELETED_FIELD_NUMBER: _ClassVar[int]
    LOG_MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    files_deleted: int
    log_min_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., files_deleted: _Optional[int] = ..., log_min_offset: _Optional[int] = ...) -> None: ...

class DescribeStoreRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeStoreReply(_message.Message):
    __slots__ = ("status", "opened_at_ms", "puts", "puts_failed", "put_messages", "put_bytes", "put_average_bytes", "put_longest_ms", "put_times", "gets_found", "gets_missed", "got_messages", "gets_from_disk", "get_longest_ms", "rates", "dispatch_behind_bytes", "dispatch_behind_ms", "log_files", "queues", "bad_records", "damaged", "failure", "topics", "groups", "wrong_units", "mended_units", "verification", "passed", "clock")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OPENED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PUTS_FIELD_NUMBER: _ClassVar[int]
    PUTS_FAILED_FIELD_NUMBER: _ClassVar[int]
    PUT_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    PUT_AVERAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PUT_LONGEST_MS_FIELD_NUMBER: _ClassVar[int]
    PUT_TIMES_FIELD_NUMBER: _ClassVar[int]
    GETS_FOUND_FIELD_NUMBER: _ClassVar[int]
    GETS_MISSED_FIELD_NUMBER: _ClassVar[int]
    GOT_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    GETS_FROM_DISK_FIELD_NUMBER: _ClassVar[int]
    GET_LONGEST_MS_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_BEHIND_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_BEHIND_MS_FIELD_NUMBER: _ClassVar[int]
    LOG_FILES_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    BAD_RECORDS_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    WRONG_UNITS_FIELD_NUMBER: _ClassVar[int]
    MENDED_UNITS_FIELD_NUMBER: _ClassVar[int]
    VERIFICATION_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    opened_at_ms: int
    puts: int
    puts_failed: int
    put_messages: int
    put_bytes: int
    put_average_bytes: float
    put_longest_ms: int
    put_times: _containers.RepeatedCompositeFieldContainer[PutTimes]
    gets_found: int
    gets_missed: int
    got_messages: int
    gets_from_disk: int
    get_longest_ms: int
    rates: _containers.RepeatedCompositeFieldContainer[StoreRate]
    dispatch_behind_bytes: int
    dispatch_behind_ms: int
    log_files: int
    queues: int
    bad_records: int
    damaged: _containers.RepeatedCompositeFieldContainer[DamagedStretch]
    failure: str
    topics: _containers.RepeatedCompositeFieldContainer[TopicPuts]
    groups: _containers.RepeatedCompositeFieldContainer[GroupBehind]
    wrong_units: int
    mended_units: int
    verification: StoreVerification
    passed: _containers.RepeatedCompositeFieldContainer[PassedMessage]
    clock: BrokerClock
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., opened_at_ms: _Optional[int] = ..., puts: _Optional[int] = ..., puts_failed: _Optional[int] = ..., put_messages: _Optional[int] = ..., put_bytes: _Optional[int] = ..., put_average_bytes: _Optional[float] = ..., put_longest_ms: _Optional[int] = ..., put_times: _Optional[_Iterable[_Union[PutTimes, _Mapping]]] = ..., gets_found: _Optional[int] = ..., gets_missed: _Optional[int] = ..., got_messages: _Optional[int] = ..., gets_from_disk: _Optional[int] = ..., get_longest_ms: _Optional[int] = ..., rates: _Optional[_Iterable[_Union[StoreRate, _Mapping]]] = ..., dispatch_behind_bytes: _Optional[int] = ..., dispatch_behind_ms: _Optional[int] = ..., log_files: _Optional[int] = ..., queues: _Optional[int] = ..., bad_records: _Optional[int] = ..., damaged: _Optional[_Iterable[_Union[DamagedStretch, _Mapping]]] = ..., failure: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[TopicPuts, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupBehind, _Mapping]]] = ..., wrong_units: _Optional[int] = ..., mended_units: _Optional[int] = ..., verification: _Optional[_Union[StoreVerification, _Mapping]] = ..., passed: _Optional[_Iterable[_Union[PassedMessage, _Mapping]]] = ..., clock: _Optional[_Union[BrokerClock, _Mapping]] = ...) -> None: ...

class BrokerClock(_message.Message):
    __slots__ = ("step_ms", "follow_in_ms", "doubted_for_ms", "lead_ms")
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_IN_MS_FIELD_NUMBER: _ClassVar[int]
    DOUBTED_FOR_MS_FIELD_NUMBER: _ClassVar[int]
    LEAD_MS_FIELD_NUMBER: _ClassVar[int]
    step_ms: int
    follow_in_ms: int
    doubted_for_ms: int
    lead_ms: int
    def __init__(self, step_ms: _Optional[int] = ..., follow_in_ms: _Optional[int] = ..., doubted_for_ms: _Optional[int] = ..., lead_ms: _Optional[int] = ...) -> None: ...

class StoreVerification(_message.Message):
    __slots__ = ("bytes_per_s", "offset", "end_offset", "rounds", "round_ended_at_ms", "units_mended", "entries_mended", "records_damaged")
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    ROUND_ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    UNITS_MENDED_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_MENDED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_DAMAGED_FIELD_NUMBER: _ClassVar[int]
    bytes_per_s: int
    offset: int
    end_offset: int
    rounds: int
    round_ended_at_ms: int
    units_mended: int
    entries_mended: int
    records_damaged: int
    def __init__(self, bytes_per_s: _Optional[int] = ..., offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., rounds: _Optional[int] = ..., round_ended_at_ms: _Optional[int] = ..., units_mended: _Optional[int] = ..., entries_mended: _Optional[int] = ..., records_damaged: _Optional[int] = ...) -> None: ...

class PassedMessage(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "reason", "groups", "mended_at_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    MENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    reason: str
    groups: _containers.RepeatedScalarFieldContainer[str]
    mended_at_ms: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., reason: _Optional[str] = ..., groups: _Optional[_Iterable[str]] = ..., mended_at_ms: _Optional[int] = ...) -> None: ...

class PutTimes(_message.Message):
    __slots__ = ("below_ms", "puts")
    BELOW_MS_FIELD_NUMBER: _ClassVar[int]
    PUTS_FIELD_NUMBER: _ClassVar[int]
    below_ms: int
    puts: int
    def __init__(self, below_ms: _Optional[int] = ..., puts: _Optional[int] = ...) -> None: ...

class StoreRate(_message.Message):
    __slots__ = ("span_s", "put_messages", "gets_found", "gets_missed", "got_messages")
    SPAN_S_FIELD_NUMBER: _ClassVar[int]
    PUT_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    GETS_FOUND_FIELD_NUMBER: _ClassVar[int]
    GETS_MISSED_FIELD_NUMBER: _ClassVar[int]
    GOT_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    span_s: int
    put_messages: float
    gets_found: float
    gets_missed: float
    got_messages: float
    def __init__(self, span_s: _Optional[int] = ..., put_messages: _Optional[float] = ..., gets_found: _Optional[float] = ..., gets_missed: _Optional[float] = ..., got_messages: _Optional[float] = ...) -> None: ...

class DamagedStretch(_message.Message):
    __slots__ = ("start", "end", "reason")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    reason: str
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class TopicPuts(_message.Message):
    __slots__ = ("topic", "messages", "bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: int
    bytes: int
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class GroupBehind(_message.Message):
    __slots__ = ("group", "topic", "queue_id", "bytes", "messages", "read_at_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    READ_AT_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    bytes: int
    messages: int
    read_at_ms: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., bytes: _Optional[int] = ..., messages: _Optional[int] = ..., read_at_ms: _Optional[int] = ...) -> None: ...

class QueueStretch(_message.Message):
    __slots__ = ("topic", "queue_id", "begin_offset", "end_offset", "bytes_max")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BEGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    begin_offset: int
    end_offset: int
    bytes_max: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., begin_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., bytes_max: _Optional[int] = ...) -> None: ...

class MeasureQueuesRequest(_message.Message):
    __slots__ = ("stretches",)
    STRETCHES_FIELD_NUMBER: _ClassVar[int]
    stretches: _containers.RepeatedCompositeFieldContainer[QueueStretch]
    def __init__(self, stretches: _Optional[_Iterable[_Union[QueueStretch, _Mapping]]] = ...) -> None: ...

class MeasuredStretch(_message.Message):
    __slots__ = ("end_offset", "bytes")
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    end_offset: int
    bytes: int
    def __init__(self, end_offset: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class MeasureQueuesReply(_message.Message):
    __slots__ = ("status", "stretches")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STRETCHES_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    stretches: _containers.RepeatedCompositeFieldContainer[MeasuredStretch]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., stretches: _Optional[_Iterable[_Union[MeasuredStretch, _Mapping]]] = ...) -> None: ...

class QueryOffsetByTimeRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "at_ms", "boundary")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    at_ms: int
    boundary: Boundary
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., at_ms: _Optional[int] = ..., boundary: _Optional[_Union[Boundary, str]] = ...) -> None: ...

class QueryOffsetByTimeReply(_message.Message):
    __slots__ = ("status", "offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class PutGroupRequest(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: GroupSettings
    def __init__(self, settings: _Optional[_Union[GroupSettings, _Mapping]] = ...) -> None: ...

class PutGroupReply(_message.Message):
    __slots__ = ("status", "created")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    created: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., created: bool = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("group", "with_dead_letters")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    WITH_DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    group: str
    with_dead_letters: bool
    def __init__(self, group: _Optional[str] = ..., with_dead_letters: bool = ...) -> None: ...

class DeleteGroupReply(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class ResetOffsetsRequest(_message.Message):
    __slots__ = ("group", "topic", "queue_ids", "at_ms", "offset", "first", "last", "backwards_only", "dry_run")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    BACKWARDS_ONLY_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    at_ms: int
    offset: int
    first: bool
    last: bool
    backwards_only: bool
    dry_run: bool
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_ids: _Optional[_Iterable[int]] = ..., at_ms: _Optional[int] = ..., offset: _Optional[int] = ..., first: bool = ..., last: bool = ..., backwards_only: bool = ..., dry_run: bool = ...) -> None: ...

class ResetOffsetsReply(_message.Message):
    __slots__ = ("status", "changes", "members_told")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_TOLD_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    changes: _containers.RepeatedCompositeFieldContainer[OffsetChange]
    members_told: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., changes: _Optional[_Iterable[_Union[OffsetChange, _Mapping]]] = ..., members_told: _Optional[int] = ...) -> None: ...

class OffsetChange(_message.Message):
    __slots__ = ("topic", "queue_id", "before", "after")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    before: int
    after: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., before: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...

class CloneOffsetsRequest(_message.Message):
    __slots__ = ("from_group", "to_group", "topic")
    FROM_GROUP_FIELD_NUMBER: _ClassVar[int]
    TO_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    from_group: str
    to_group: str
    topic: str
    def __init__(self, from_group: _Optional[str] = ..., to_group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class CloneOffsetsReply(_message.Message):
    __slots__ = ("status", "changes")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    changes: _containers.RepeatedCompositeFieldContainer[OffsetChange]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., changes: _Optional[_Iterable[_Union[OffsetChange, _Mapping]]] = ...) -> None: ...

class DescribeConsumerRequest(_message.Message):
    __slots__ = ("group", "client_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ...) -> None: ...

class DescribeConsumerReply(_message.Message):
    __slots__ = ("status", "state")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    state: _groups_pb2.RunningState
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., state: _Optional[_Union[_groups_pb2.RunningState, _Mapping]] = ...) -> None: ...

class ListProducersRequest(_message.Message):
    __slots__ = ("group", "page_size", "page_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    page_size: int
    page_token: str
    def __init__(self, group: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListProducersReply(_message.Message):
    __slots__ = ("status", "producers", "next_page_token")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    producers: _containers.RepeatedCompositeFieldContainer[ProducerMember]
    next_page_token: str
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., producers: _Optional[_Iterable[_Union[ProducerMember, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ProducerMember(_message.Message):
    __slots__ = ("group", "client_id", "address", "connected_at_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    address: str
    connected_at_ms: int
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., address: _Optional[str] = ..., connected_at_ms: _Optional[int] = ...) -> None: ...

class DescribeStatisticsRequest(_message.Message):
    __slots__ = ("name", "key")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    name: str
    key: str
    def __init__(self, name: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class DescribeStatisticsReply(_message.Message):
    __slots__ = ("status", "items")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    items: _containers.RepeatedCompositeFieldContainer[StatisticsItem]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., items: _Optional[_Iterable[_Union[StatisticsItem, _Mapping]]] = ...) -> None: ...

class StatisticsItem(_message.Message):
    __slots__ = ("name", "key", "total", "spans")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    name: str
    key: str
    total: int
    spans: _containers.RepeatedCompositeFieldContainer[StatisticsSpan]
    def __init__(self, name: _Optional[str] = ..., key: _Optional[str] = ..., total: _Optional[int] = ..., spans: _Optional[_Iterable[_Union[StatisticsSpan, _Mapping]]] = ...) -> None: ...

class StatisticsSpan(_message.Message):
    __slots__ = ("seconds", "sum", "rate", "average")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    AVERAGE_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    sum: int
    rate: float
    average: float
    def __init__(self, seconds: _Optional[float] = ..., sum: _Optional[int] = ..., rate: _Optional[float] = ..., average: _Optional[float] = ...) -> None: ...

class ListSettingsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSettingsReply(_message.Message):
    __slots__ = ("status", "settings")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    settings: _containers.RepeatedCompositeFieldContainer[SettingValue]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., settings: _Optional[_Iterable[_Union[SettingValue, _Mapping]]] = ...) -> None: ...

class SettingValue(_message.Message):
    __slots__ = ("name", "value", "least", "most", "description")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LEAST_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    least: str
    most: str
    description: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., least: _Optional[str] = ..., most: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...

class UpdateSettingsRequest(_message.Message):
    __slots__ = ("values",)
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.ScalarMap[str, str]
    def __init__(self, values: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UpdateSettingsReply(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class PromoteRequest(_message.Message):
    __slots__ = ("is_forced",)
    IS_FORCED_FIELD_NUMBER: _ClassVar[int]
    is_forced: bool
    def __init__(self, is_forced: bool = ...) -> None: ...

class PromoteReply(_message.Message):
    __slots__ = ("status", "epoch", "log_end", "clamped", "asked", "unreachable", "confirm_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    CLAMPED_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    epoch: int
    log_end: int
    clamped: _containers.RepeatedCompositeFieldContainer[GroupOffsetChange]
    asked: _containers.RepeatedScalarFieldContainer[str]
    unreachable: _containers.RepeatedScalarFieldContainer[str]
    confirm_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., epoch: _Optional[int] = ..., log_end: _Optional[int] = ..., clamped: _Optional[_Iterable[_Union[GroupOffsetChange, _Mapping]]] = ..., asked: _Optional[_Iterable[str]] = ..., unreachable: _Optional[_Iterable[str]] = ..., confirm_offset: _Optional[int] = ...) -> None: ...

class GroupOffsetChange(_message.Message):
    __slots__ = ("group", "change")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    group: str
    change: OffsetChange
    def __init__(self, group: _Optional[str] = ..., change: _Optional[_Union[OffsetChange, _Mapping]] = ...) -> None: ...
