from ternmq_protos.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AutoCreate(_message.Message):
    __slots__ = ("template_topic", "queues")
    TEMPLATE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    template_topic: str
    queues: int
    def __init__(self, template_topic: _Optional[str] = ..., queues: _Optional[int] = ...) -> None: ...

class SendRequest(_message.Message):
    __slots__ = ("producer_group", "topic", "queue_id", "body", "properties", "flag", "born_at_ms", "sys_flag", "auto_create")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    BORN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SYS_FLAG_FIELD_NUMBER: _ClassVar[int]
    AUTO_CREATE_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    topic: str
    queue_id: int
    body: bytes
    properties: _containers.ScalarMap[str, str]
    flag: int
    born_at_ms: int
    sys_flag: int
    auto_create: AutoCreate
    def __init__(self, producer_group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., body: _Optional[bytes] = ..., properties: _Optional[_Mapping[str, str]] = ..., flag: _Optional[int] = ..., born_at_ms: _Optional[int] = ..., sys_flag: _Optional[int] = ..., auto_create: _Optional[_Union[AutoCreate, _Mapping]] = ...) -> None: ...

class SendReply(_message.Message):
    __slots__ = ("status", "message_id", "offset_message_id", "queue_id", "queue_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    message_id: str
    offset_message_id: str
    queue_id: int
    queue_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., message_id: _Optional[str] = ..., offset_message_id: _Optional[str] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ...) -> None: ...

class SendStreamRequest(_message.Message):
    __slots__ = ("open", "batch")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    open: SendStreamOpen
    batch: SendBatch
    def __init__(self, open: _Optional[_Union[SendStreamOpen, _Mapping]] = ..., batch: _Optional[_Union[SendBatch, _Mapping]] = ...) -> None: ...

class SendStreamOpen(_message.Message):
    __slots__ = ("client_id", "producer_group", "auto_create", "incarnation")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    AUTO_CREATE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    producer_group: str
    auto_create: AutoCreate
    incarnation: str
    def __init__(self, client_id: _Optional[str] = ..., producer_group: _Optional[str] = ..., auto_create: _Optional[_Union[AutoCreate, _Mapping]] = ..., incarnation: _Optional[str] = ...) -> None: ...

class SendBatch(_message.Message):
    __slots__ = ("records", "record_sizes", "is_retry", "is_whole")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    RECORD_SIZES_FIELD_NUMBER: _ClassVar[int]
    IS_RETRY_FIELD_NUMBER: _ClassVar[int]
    IS_WHOLE_FIELD_NUMBER: _ClassVar[int]
    records: bytes
    record_sizes: bytes
    is_retry: bool
    is_whole: bool
    def __init__(self, records: _Optional[bytes] = ..., record_sizes: _Optional[bytes] = ..., is_retry: bool = ..., is_whole: bool = ...) -> None: ...

class SendStreamReply(_message.Message):
    __slots__ = ("opened", "stored")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    opened: SendStreamOpened
    stored: SendBatchReply
    def __init__(self, opened: _Optional[_Union[SendStreamOpened, _Mapping]] = ..., stored: _Optional[_Union[SendBatchReply, _Mapping]] = ...) -> None: ...

class SendStreamOpened(_message.Message):
    __slots__ = ("status", "born_host", "store_host", "properties_suffix", "body_bytes_max", "properties_bytes_max", "batch_bytes_max", "looks_up_retries")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    BORN_HOST_FIELD_NUMBER: _ClassVar[int]
    STORE_HOST_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_SUFFIX_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    LOOKS_UP_RETRIES_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    born_host: bytes
    store_host: bytes
    properties_suffix: bytes
    body_bytes_max: int
    properties_bytes_max: int
    batch_bytes_max: int
    looks_up_retries: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., born_host: _Optional[bytes] = ..., store_host: _Optional[bytes] = ..., properties_suffix: _Optional[bytes] = ..., body_bytes_max: _Optional[int] = ..., properties_bytes_max: _Optional[int] = ..., batch_bytes_max: _Optional[int] = ..., looks_up_retries: bool = ...) -> None: ...

class SendBatchReply(_message.Message):
    __slots__ = ("status", "queue_offsets", "physical_offsets", "stored_at_ms", "refused", "queue_ids")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    STORED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    queue_offsets: bytes
    physical_offsets: bytes
    stored_at_ms: int
    refused: _containers.RepeatedCompositeFieldContainer[RefusedRecord]
    queue_ids: bytes
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., queue_offsets: _Optional[bytes] = ..., physical_offsets: _Optional[bytes] = ..., stored_at_ms: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[RefusedRecord, _Mapping]]] = ..., queue_ids: _Optional[bytes] = ...) -> None: ...

class RefusedRecord(_message.Message):
    __slots__ = ("index", "status")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    index: int
    status: _common_pb2.Status
    def __init__(self, index: _Optional[int] = ..., status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("topic", "expression_type", "expression", "version_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_TYPE_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    expression_type: str
    expression: str
    version_ms: int
    def __init__(self, topic: _Optional[str] = ..., expression_type: _Optional[str] = ..., expression: _Optional[str] = ..., version_ms: _Optional[int] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("group", "topic", "queue_id", "offset", "messages_max", "bytes_max", "wait_ms", "subscription", "commit_offset", "commit_version", "subscription_version_ms", "offset_epoch")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMIT_VERSION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_VERSION_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_EPOCH_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    offset: int
    messages_max: int
    bytes_max: int
    wait_ms: int
    subscription: Subscription
    commit_offset: int
    commit_version: int
    subscription_version_ms: int
    offset_epoch: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., messages_max: _Optional[int] = ..., bytes_max: _Optional[int] = ..., wait_ms: _Optional[int] = ..., subscription: _Optional[_Union[Subscription, _Mapping]] = ..., commit_offset: _Optional[int] = ..., commit_version: _Optional[int] = ..., subscription_version_ms: _Optional[int] = ..., offset_epoch: _Optional[int] = ...) -> None: ...

class PullReply(_message.Message):
    __slots__ = ("status", "next_offset", "min_offset", "max_offset", "records", "record_sizes", "suggested_broker_id")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    RECORD_SIZES_FIELD_NUMBER: _ClassVar[int]
    SUGGESTED_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes
    record_sizes: bytes
    suggested_broker_id: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., records: _Optional[bytes] = ..., record_sizes: _Optional[bytes] = ..., suggested_broker_id: _Optional[int] = ...) -> None: ...

class PullStreamRequest(_message.Message):
    __slots__ = ("open", "subscribe", "credit", "unsubscribe")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    open: PullStreamOpen
    subscribe: PullSubscribe
    credit: PullCredit
    unsubscribe: PullUnsubscribe
    def __init__(self, open: _Optional[_Union[PullStreamOpen, _Mapping]] = ..., subscribe: _Optional[_Union[PullSubscribe, _Mapping]] = ..., credit: _Optional[_Union[PullCredit, _Mapping]] = ..., unsubscribe: _Optional[_Union[PullUnsubscribe, _Mapping]] = ...) -> None: ...

class PullStreamOpen(_message.Message):
    __slots__ = ("client_id", "group")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    group: str
    def __init__(self, client_id: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class PullSubscribe(_message.Message):
    __slots__ = ("handle", "topic", "queue_id", "offset", "subscription", "credit_bytes", "credit_messages", "subscription_version_ms", "offset_epoch", "offset_is_chosen")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CREDIT_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_VERSION_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_EPOCH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_IS_CHOSEN_FIELD_NUMBER: _ClassVar[int]
    handle: int
    topic: str
    queue_id: int
    offset: int
    subscription: Subscription
    credit_bytes: int
    credit_messages: int
    subscription_version_ms: int
    offset_epoch: int
    offset_is_chosen: bool
    def __init__(self, handle: _Optional[int] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., subscription: _Optional[_Union[Subscription, _Mapping]] = ..., credit_bytes: _Optional[int] = ..., credit_messages: _Optional[int] = ..., subscription_version_ms: _Optional[int] = ..., offset_epoch: _Optional[int] = ..., offset_is_chosen: bool = ...) -> None: ...

class PullCredit(_message.Message):
    __slots__ = ("handle", "bytes", "messages")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    handle: int
    bytes: int
    messages: int
    def __init__(self, handle: _Optional[int] = ..., bytes: _Optional[int] = ..., messages: _Optional[int] = ...) -> None: ...

class PullUnsubscribe(_message.Message):
    __slots__ = ("handle",)
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    handle: int
    def __init__(self, handle: _Optional[int] = ...) -> None: ...

class PullStreamReply(_message.Message):
    __slots__ = ("pulled",)
    PULLED_FIELD_NUMBER: _ClassVar[int]
    pulled: _containers.RepeatedCompositeFieldContainer[PulledRecords]
    def __init__(self, pulled: _Optional[_Iterable[_Union[PulledRecords, _Mapping]]] = ...) -> None: ...

class PulledRecords(_message.Message):
    __slots__ = ("handle", "status", "next_offset", "min_offset", "max_offset", "records", "record_sizes", "suggested_broker_id", "damaged")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    RECORD_SIZES_FIELD_NUMBER: _ClassVar[int]
    SUGGESTED_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    handle: int
    status: _common_pb2.Status
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes
    record_sizes: bytes
    suggested_broker_id: int
    damaged: int
    def __init__(self, handle: _Optional[int] = ..., status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., records: _Optional[bytes] = ..., record_sizes: _Optional[bytes] = ..., suggested_broker_id: _Optional[int] = ..., damaged: _Optional[int] = ...) -> None: ...

class ScanRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "begin_offset", "end_offset", "subscription", "stored_from_ms", "stored_before_ms", "keys", "columns", "batch_rows_max", "batch_bytes_max", "skips_damaged", "created_log_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BEGIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    STORED_FROM_MS_FIELD_NUMBER: _ClassVar[int]
    STORED_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    BATCH_ROWS_MAX_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    SKIPS_DAMAGED_FIELD_NUMBER: _ClassVar[int]
    CREATED_LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    begin_offset: int
    end_offset: int
    subscription: Subscription
    stored_from_ms: int
    stored_before_ms: int
    keys: _containers.RepeatedScalarFieldContainer[str]
    columns: _containers.RepeatedScalarFieldContainer[str]
    batch_rows_max: int
    batch_bytes_max: int
    skips_damaged: bool
    created_log_offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., begin_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., subscription: _Optional[_Union[Subscription, _Mapping]] = ..., stored_from_ms: _Optional[int] = ..., stored_before_ms: _Optional[int] = ..., keys: _Optional[_Iterable[str]] = ..., columns: _Optional[_Iterable[str]] = ..., batch_rows_max: _Optional[int] = ..., batch_bytes_max: _Optional[int] = ..., skips_damaged: bool = ..., created_log_offset: _Optional[int] = ...) -> None: ...

class ScanReply(_message.Message):
    __slots__ = ("status", "piece", "ends_batch", "next_offset", "min_offset", "damaged", "ends_stretch")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    ENDS_BATCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    ENDS_STRETCH_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    piece: bytes
    ends_batch: bool
    next_offset: int
    min_offset: int
    damaged: int
    ends_stretch: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., piece: _Optional[bytes] = ..., ends_batch: bool = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., damaged: _Optional[int] = ..., ends_stretch: bool = ...) -> None: ...

class ViewMessageRequest(_message.Message):
    __slots__ = ("offset_message_id",)
    OFFSET_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    offset_message_id: str
    def __init__(self, offset_message_id: _Optional[str] = ...) -> None: ...

class ViewMessageReply(_message.Message):
    __slots__ = ("status", "record")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    record: bytes
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., record: _Optional[bytes] = ...) -> None: ...

class QueryMessagesRequest(_message.Message):
    __slots__ = ("topic", "key", "begin_ms", "end_ms", "messages_max", "is_unique_key")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BEGIN_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    IS_UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: str
    begin_ms: int
    end_ms: int
    messages_max: int
    is_unique_key: bool
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., begin_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., messages_max: _Optional[int] = ..., is_unique_key: bool = ...) -> None: ...

class QueryMessagesReply(_message.Message):
    __slots__ = ("status", "records", "record_sizes")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    RECORD_SIZES_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    records: bytes
    record_sizes: bytes
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., records: _Optional[bytes] = ..., record_sizes: _Optional[bytes] = ...) -> None: ...
