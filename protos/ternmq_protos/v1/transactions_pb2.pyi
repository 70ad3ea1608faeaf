from ternmq_protos.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Resolution(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[Resolution]
    COMMIT: _ClassVar[Resolution]
    ROLLBACK: _ClassVar[Resolution]

class TransactionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSACTION_NOT_FOUND: _ClassVar[TransactionState]
    TRANSACTION_OPEN: _ClassVar[TransactionState]
    TRANSACTION_COMMITTED: _ClassVar[TransactionState]
    TRANSACTION_ROLLED_BACK: _ClassVar[TransactionState]
UNKNOWN: Resolution
COMMIT: Resolution
ROLLBACK: Resolution
TRANSACTION_NOT_FOUND: TransactionState
TRANSACTION_OPEN: TransactionState
TRANSACTION_COMMITTED: TransactionState
TRANSACTION_ROLLED_BACK: TransactionState

class EndTransactionRequest(_message.Message):
    __slots__ = ("producer_group", "topic", "message_id", "transaction_offset", "resolution", "from_check")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    FROM_CHECK_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    topic: str
    message_id: str
    transaction_offset: int
    resolution: Resolution
    from_check: bool
    def __init__(self, producer_group: _Optional[str] = ..., topic: _Optional[str] = ..., message_id: _Optional[str] = ..., transaction_offset: _Optional[int] = ..., resolution: _Optional[_Union[Resolution, str]] = ..., from_check: bool = ...) -> None: ...

class EndTransactionReply(_message.Message):
    __slots__ = ("status", "queue_id", "queue_offset")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    queue_id: int
    queue_offset: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., queue_id: _Optional[int] = ..., queue_offset: _Optional[int] = ...) -> None: ...

class EndTransactionsRequest(_message.Message):
    __slots__ = ("transactions",)
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[EndTransactionRequest]
    def __init__(self, transactions: _Optional[_Iterable[_Union[EndTransactionRequest, _Mapping]]] = ...) -> None: ...

class EndTransactionsReply(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[EndTransactionReply]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[EndTransactionReply, _Mapping]]] = ...) -> None: ...

class FindTransactionsRequest(_message.Message):
    __slots__ = ("producer_group", "transaction_offsets", "message_ids")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    transaction_offsets: _containers.RepeatedScalarFieldContainer[int]
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, producer_group: _Optional[str] = ..., transaction_offsets: _Optional[_Iterable[int]] = ..., message_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class FindTransactionsReply(_message.Message):
    __slots__ = ("status", "states", "checks")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    states: _containers.RepeatedScalarFieldContainer[TransactionState]
    checks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., states: _Optional[_Iterable[_Union[TransactionState, str]]] = ..., checks: _Optional[_Iterable[int]] = ...) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ("staged_for",)
    STAGED_FOR_FIELD_NUMBER: _ClassVar[int]
    staged_for: str
    def __init__(self, staged_for: _Optional[str] = ...) -> None: ...

class ListTransactionsReply(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[OpenBatch]
    def __init__(self, batches: _Optional[_Iterable[_Union[OpenBatch, _Mapping]]] = ...) -> None: ...

class OpenBatch(_message.Message):
    __slots__ = ("staged_for", "producer_group", "topic", "count", "oldest_ms", "quiet_ms", "left_ms")
    STAGED_FOR_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_MS_FIELD_NUMBER: _ClassVar[int]
    QUIET_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_MS_FIELD_NUMBER: _ClassVar[int]
    staged_for: str
    producer_group: str
    topic: str
    count: int
    oldest_ms: int
    quiet_ms: int
    left_ms: int
    def __init__(self, staged_for: _Optional[str] = ..., producer_group: _Optional[str] = ..., topic: _Optional[str] = ..., count: _Optional[int] = ..., oldest_ms: _Optional[int] = ..., quiet_ms: _Optional[int] = ..., left_ms: _Optional[int] = ...) -> None: ...

class RollBackStagedRequest(_message.Message):
    __slots__ = ("staged_for", "force")
    STAGED_FOR_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    staged_for: str
    force: bool
    def __init__(self, staged_for: _Optional[str] = ..., force: bool = ...) -> None: ...

class RollBackStagedReply(_message.Message):
    __slots__ = ("rolled_back", "already_ended")
    ROLLED_BACK_FIELD_NUMBER: _ClassVar[int]
    ALREADY_ENDED_FIELD_NUMBER: _ClassVar[int]
    rolled_back: int
    already_ended: int
    def __init__(self, rolled_back: _Optional[int] = ..., already_ended: _Optional[int] = ...) -> None: ...
