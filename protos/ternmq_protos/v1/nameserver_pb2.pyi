from ternmq_protos.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RegisterBrokerRequest(_message.Message):
    __slots__ = ("cluster", "broker_name", "broker_id", "endpoints", "data_version", "topics", "epoch", "incarnation", "expiry_ms")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    DATA_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker_name: str
    broker_id: int
    endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    data_version: _common_pb2.DataVersion
    topics: _containers.RepeatedCompositeFieldContainer[_common_pb2.TopicConfig]
    epoch: int
    incarnation: str
    expiry_ms: int
    def __init__(self, cluster: _Optional[str] = ..., broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., data_version: _Optional[_Union[_common_pb2.DataVersion, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[_common_pb2.TopicConfig, _Mapping]]] = ..., epoch: _Optional[int] = ..., incarnation: _Optional[str] = ..., expiry_ms: _Optional[int] = ...) -> None: ...

class RegisterBrokerReply(_message.Message):
    __slots__ = ("status", "master_endpoints", "order_topic_config", "highest_epoch", "members")
    class OrderTopicConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MASTER_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    ORDER_TOPIC_CONFIG_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    master_endpoints: _containers.RepeatedCompositeFieldContainer[_common_pb2.Endpoint]
    order_topic_config: _containers.ScalarMap[str, str]
    highest_epoch: int
    members: _containers.RepeatedCompositeFieldContainer[_common_pb2.BrokerMember]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., master_endpoints: _Optional[_Iterable[_Union[_common_pb2.Endpoint, _Mapping]]] = ..., order_topic_config: _Optional[_Mapping[str, str]] = ..., highest_epoch: _Optional[int] = ..., members: _Optional[_Iterable[_Union[_common_pb2.BrokerMember, _Mapping]]] = ...) -> None: ...

class UnregisterBrokerRequest(_message.Message):
    __slots__ = ("cluster", "broker_name", "broker_id", "incarnation")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker_name: str
    broker_id: int
    incarnation: str
    def __init__(self, cluster: _Optional[str] = ..., broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ..., incarnation: _Optional[str] = ...) -> None: ...

class UnregisterBrokerReply(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class GetTopicRouteRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetTopicRouteReply(_message.Message):
    __slots__ = ("status", "route")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    route: _common_pb2.TopicRoute
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., route: _Optional[_Union[_common_pb2.TopicRoute, _Mapping]] = ...) -> None: ...

class GetClusterRequest(_message.Message):
    __slots__ = ("broker_name", "page_size", "page_token")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    page_size: int
    page_token: str
    def __init__(self, broker_name: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class GetClusterReply(_message.Message):
    __slots__ = ("status", "brokers", "next_page_token", "left", "warnings")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    brokers: _containers.RepeatedCompositeFieldContainer[_common_pb2.BrokerData]
    next_page_token: str
    left: _containers.RepeatedScalarFieldContainer[str]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., brokers: _Optional[_Iterable[_Union[_common_pb2.BrokerData, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., left: _Optional[_Iterable[str]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("cluster", "page_size", "page_token")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    page_size: int
    page_token: str
    def __init__(self, cluster: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTopicsReply(_message.Message):
    __slots__ = ("status", "topics", "next_page_token")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    topics: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., topics: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PutKvRequest(_message.Message):
    __slots__ = ("namespace", "key", "value")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    key: str
    value: str
    def __init__(self, namespace: _Optional[str] = ..., key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class PutKvReply(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class GetKvRequest(_message.Message):
    __slots__ = ("namespace", "key")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    key: str
    def __init__(self, namespace: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class GetKvReply(_message.Message):
    __slots__ = ("status", "values")
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    values: _containers.ScalarMap[str, str]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., values: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DeleteKvRequest(_message.Message):
    __slots__ = ("namespace", "key")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    key: str
    def __init__(self, namespace: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class DeleteKvReply(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class WipeWritePermissionRequest(_message.Message):
    __slots__ = ("broker_name",)
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    def __init__(self, broker_name: _Optional[str] = ...) -> None: ...

class WipeWritePermissionReply(_message.Message):
    __slots__ = ("status", "topics_changed")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    topics_changed: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., topics_changed: _Optional[int] = ...) -> None: ...

class AddWritePermissionRequest(_message.Message):
    __slots__ = ("broker_name",)
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    def __init__(self, broker_name: _Optional[str] = ...) -> None: ...

class AddWritePermissionReply(_message.Message):
    __slots__ = ("status", "topics_changed")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    topics_changed: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., topics_changed: _Optional[int] = ...) -> None: ...

class GetEpochRequest(_message.Message):
    __slots__ = ("cluster", "broker_name")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker_name: str
    def __init__(self, cluster: _Optional[str] = ..., broker_name: _Optional[str] = ...) -> None: ...

class GetEpochReply(_message.Message):
    __slots__ = ("status", "is_known", "highest_epoch")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    IS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    is_known: bool
    highest_epoch: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., is_known: bool = ..., highest_epoch: _Optional[int] = ...) -> None: ...

class GetAccessRequest(_message.Message):
    __slots__ = ("known_version", "known_digest", "wait_ms")
    KNOWN_VERSION_FIELD_NUMBER: _ClassVar[int]
    KNOWN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    known_version: int
    known_digest: bytes
    wait_ms: int
    def __init__(self, known_version: _Optional[int] = ..., known_digest: _Optional[bytes] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class GetAccessReply(_message.Message):
    __slots__ = ("status", "version", "table")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    version: int
    table: bytes
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., version: _Optional[int] = ..., table: _Optional[bytes] = ...) -> None: ...

class PutAccessRequest(_message.Message):
    __slots__ = ("expected_version", "table")
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    expected_version: int
    table: bytes
    def __init__(self, expected_version: _Optional[int] = ..., table: _Optional[bytes] = ...) -> None: ...

class PutAccessReply(_message.Message):
    __slots__ = ("status", "version")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    version: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., version: _Optional[int] = ...) -> None: ...
