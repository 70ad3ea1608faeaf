from ternmq_protos.v1 import common_pb2 as _common_pb2
from ternmq_protos.v1 import groups_pb2 as _groups_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

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
