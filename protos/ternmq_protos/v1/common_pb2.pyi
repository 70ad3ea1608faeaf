from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Status(_message.Message):
    __slots__ = ("code", "remark", "may_have_happened")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REMARK_FIELD_NUMBER: _ClassVar[int]
    MAY_HAVE_HAPPENED_FIELD_NUMBER: _ClassVar[int]
    code: int
    remark: str
    may_have_happened: bool
    def __init__(self, code: _Optional[int] = ..., remark: _Optional[str] = ..., may_have_happened: bool = ...) -> None: ...

class MessageQueue(_message.Message):
    __slots__ = ("topic", "broker_name", "queue_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    broker_name: str
    queue_id: int
    def __init__(self, topic: _Optional[str] = ..., broker_name: _Optional[str] = ..., queue_id: _Optional[int] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("host", "port")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class DataVersion(_message.Message):
    __slots__ = ("timestamp_ms", "counter", "state_version")
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    STATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    timestamp_ms: int
    counter: int
    state_version: int
    def __init__(self, timestamp_ms: _Optional[int] = ..., counter: _Optional[int] = ..., state_version: _Optional[int] = ...) -> None: ...

class TopicConfig(_message.Message):
    __slots__ = ("topic", "read_queues", "write_queues", "permissions", "sys_flag", "ordered", "retention_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUES_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUES_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    SYS_FLAG_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    read_queues: int
    write_queues: int
    permissions: int
    sys_flag: int
    ordered: bool
    retention_ms: int
    def __init__(self, topic: _Optional[str] = ..., read_queues: _Optional[int] = ..., write_queues: _Optional[int] = ..., permissions: _Optional[int] = ..., sys_flag: _Optional[int] = ..., ordered: bool = ..., retention_ms: _Optional[int] = ...) -> None: ...

class QueueData(_message.Message):
    __slots__ = ("broker_name", "read_queues", "write_queues", "permissions", "sys_flag")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUES_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUES_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    SYS_FLAG_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    read_queues: int
    write_queues: int
    permissions: int
    sys_flag: int
    def __init__(self, broker_name: _Optional[str] = ..., read_queues: _Optional[int] = ..., write_queues: _Optional[int] = ..., permissions: _Optional[int] = ..., sys_flag: _Optional[int] = ...) -> None: ...

class BrokerMember(_message.Message):
    __slots__ = ("broker_id", "endpoints", "epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., epoch: _Optional[int] = ...) -> None: ...

class BrokerData(_message.Message):
    __slots__ = ("cluster", "broker_name", "members")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker_name: str
    members: _containers.RepeatedCompositeFieldContainer[BrokerMember]
    def __init__(self, cluster: _Optional[str] = ..., broker_name: _Optional[str] = ..., members: _Optional[_Iterable[_Union[BrokerMember, _Mapping]]] = ...) -> None: ...

class TopicRoute(_message.Message):
    __slots__ = ("queues", "brokers", "order_topic_conf")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    ORDER_TOPIC_CONF_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueData]
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerData]
    order_topic_conf: str
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueData, _Mapping]]] = ..., brokers: _Optional[_Iterable[_Union[BrokerData, _Mapping]]] = ..., order_topic_conf: _Optional[str] = ...) -> None: ...
