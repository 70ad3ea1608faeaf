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
    __slots__ = ("status", "topic", "queues")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    topic: _common_pb2.TopicConfig
    queues: _containers.RepeatedCompositeFieldContainer[QueueStatus]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., topic: _Optional[_Union[_common_pb2.TopicConfig, _Mapping]] = ..., queues: _Optional[_Iterable[_Union[QueueStatus, _Mapping]]] = ...) -> None: ...

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
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGroupsReply(_message.Message):
    __slots__ = ("status", "groups")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., groups: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class DescribeGroupReply(_message.Message):
    __slots__ = ("status", "members", "progress")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    progress: _containers.RepeatedCompositeFieldContainer[GroupProgress]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ..., progress: _Optional[_Iterable[_Union[GroupProgress, _Mapping]]] = ...) -> None: ...

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
    __slots__ = ("topic", "queue_id", "committed_offset", "min_offset", "max_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    committed_offset: int
    min_offset: int
    max_offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., committed_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ...) -> None: ...

class DescribeBrokerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeBrokerReply(_message.Message):
    __slots__ = ("status", "cluster", "broker_name", "broker_id", "epoch", "version", "started_at_ms", "log_min_offset", "log_max_offset", "log_flushed_offset", "log_confirm_offset", "dispatched_offset", "flush_mode", "disk_used_percent", "disk_level")
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
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., cluster: _Optional[str] = ..., broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ..., epoch: _Optional[int] = ..., version: _Optional[str] = ..., started_at_ms: _Optional[int] = ..., log_min_offset: _Optional[int] = ..., log_max_offset: _Optional[int] = ..., log_flushed_offset: _Optional[int] = ..., log_confirm_offset: _Optional[int] = ..., dispatched_offset: _Optional[int] = ..., flush_mode: _Optional[str] = ..., disk_used_percent: _Optional[float] = ..., disk_level: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("status", "opened_at_ms", "puts", "puts_failed", "put_messages", "put_bytes", "put_average_bytes", "put_longest_ms", "put_times", "gets_found", "gets_missed", "got_messages", "gets_from_disk", "get_longest_ms", "rates", "dispatch_behind_bytes", "dispatch_behind_ms", "log_files", "queues", "bad_records", "damaged", "failure", "topics", "groups", "wrong_units")
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
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., opened_at_ms: _Optional[int] = ..., puts: _Optional[int] = ..., puts_failed: _Optional[int] = ..., put_messages: _Optional[int] = ..., put_bytes: _Optional[int] = ..., put_average_bytes: _Optional[float] = ..., put_longest_ms: _Optional[int] = ..., put_times: _Optional[_Iterable[_Union[PutTimes, _Mapping]]] = ..., gets_found: _Optional[int] = ..., gets_missed: _Optional[int] = ..., got_messages: _Optional[int] = ..., gets_from_disk: _Optional[int] = ..., get_longest_ms: _Optional[int] = ..., rates: _Optional[_Iterable[_Union[StoreRate, _Mapping]]] = ..., dispatch_behind_bytes: _Optional[int] = ..., dispatch_behind_ms: _Optional[int] = ..., log_files: _Optional[int] = ..., queues: _Optional[int] = ..., bad_records: _Optional[int] = ..., damaged: _Optional[_Iterable[_Union[DamagedStretch, _Mapping]]] = ..., failure: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[TopicPuts, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupBehind, _Mapping]]] = ..., wrong_units: _Optional[int] = ...) -> None: ...

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
