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
    __slots__ = ("hello", "heartbeat", "goodbye")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    heartbeat: Heartbeat
    goodbye: Goodbye
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("welcome", "members_changed")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    members_changed: MembersChanged
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., members_changed: _Optional[_Union[MembersChanged, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("topic", "queue_id", "offset", "status")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    status: _common_pb2.Status
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("status", "refused")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    refused: _containers.RepeatedCompositeFieldContainer[QueueOffset]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., refused: _Optional[_Iterable[_Union[QueueOffset, _Mapping]]] = ...) -> None: ...

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
    __slots__ = ("status", "offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...
