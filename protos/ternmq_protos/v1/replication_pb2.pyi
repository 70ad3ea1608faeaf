from ternmq_protos.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Epoch(_message.Message):
    __slots__ = ("number", "start")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    number: int
    start: int
    def __init__(self, number: _Optional[int] = ..., start: _Optional[int] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("hello", "probed", "ack")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PROBED_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    hello: FollowHello
    probed: FollowProbed
    ack: FollowAck
    def __init__(self, hello: _Optional[_Union[FollowHello, _Mapping]] = ..., probed: _Optional[_Union[FollowProbed, _Mapping]] = ..., ack: _Optional[_Union[FollowAck, _Mapping]] = ...) -> None: ...

class FollowHello(_message.Message):
    __slots__ = ("cluster", "broker_name", "broker_id", "incarnation", "store_id", "epochs", "log_start", "log_end", "log_file_bytes", "highest_epoch", "flush_mode")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    LOG_FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FLUSH_MODE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker_name: str
    broker_id: int
    incarnation: str
    store_id: str
    epochs: _containers.RepeatedCompositeFieldContainer[Epoch]
    log_start: int
    log_end: int
    log_file_bytes: int
    highest_epoch: int
    flush_mode: str
    def __init__(self, cluster: _Optional[str] = ..., broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ..., incarnation: _Optional[str] = ..., store_id: _Optional[str] = ..., epochs: _Optional[_Iterable[_Union[Epoch, _Mapping]]] = ..., log_start: _Optional[int] = ..., log_end: _Optional[int] = ..., log_file_bytes: _Optional[int] = ..., highest_epoch: _Optional[int] = ..., flush_mode: _Optional[str] = ...) -> None: ...

class FollowProbed(_message.Message):
    __slots__ = ("end", "crc")
    END_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    end: int
    crc: int
    def __init__(self, end: _Optional[int] = ..., crc: _Optional[int] = ...) -> None: ...

class FollowAck(_message.Message):
    __slots__ = ("epoch", "safe_offset", "appended_offset", "dispatched_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SAFE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPENDED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    safe_offset: int
    appended_offset: int
    dispatched_offset: int
    def __init__(self, epoch: _Optional[int] = ..., safe_offset: _Optional[int] = ..., appended_offset: _Optional[int] = ..., dispatched_offset: _Optional[int] = ...) -> None: ...

class FollowReply(_message.Message):
    __slots__ = ("probe", "accepted", "piece")
    PROBE_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    probe: FollowProbe
    accepted: FollowAccepted
    piece: LogPiece
    def __init__(self, probe: _Optional[_Union[FollowProbe, _Mapping]] = ..., accepted: _Optional[_Union[FollowAccepted, _Mapping]] = ..., piece: _Optional[_Union[LogPiece, _Mapping]] = ...) -> None: ...

class FollowProbe(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class FollowAccepted(_message.Message):
    __slots__ = ("status", "store_id", "epochs", "start", "cut", "log_file_bytes", "master_role", "in_sync_replicas")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    LOG_FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MASTER_ROLE_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    store_id: str
    epochs: _containers.RepeatedCompositeFieldContainer[Epoch]
    start: int
    cut: FollowCut
    log_file_bytes: int
    master_role: str
    in_sync_replicas: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., store_id: _Optional[str] = ..., epochs: _Optional[_Iterable[_Union[Epoch, _Mapping]]] = ..., start: _Optional[int] = ..., cut: _Optional[_Union[FollowCut, _Mapping]] = ..., log_file_bytes: _Optional[int] = ..., master_role: _Optional[str] = ..., in_sync_replicas: _Optional[int] = ...) -> None: ...

class FollowCut(_message.Message):
    __slots__ = ("keep_to", "starts_over")
    KEEP_TO_FIELD_NUMBER: _ClassVar[int]
    STARTS_OVER_FIELD_NUMBER: _ClassVar[int]
    keep_to: int
    starts_over: bool
    def __init__(self, keep_to: _Optional[int] = ..., starts_over: bool = ...) -> None: ...

class LogPiece(_message.Message):
    __slots__ = ("epoch", "start", "data", "is_checksummed", "confirm_offset", "log_start", "log_end", "stored_at_ms", "damage")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    IS_CHECKSUMMED_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    STORED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DAMAGE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start: int
    data: bytes
    is_checksummed: bool
    confirm_offset: int
    log_start: int
    log_end: int
    stored_at_ms: int
    damage: str
    def __init__(self, epoch: _Optional[int] = ..., start: _Optional[int] = ..., data: _Optional[bytes] = ..., is_checksummed: bool = ..., confirm_offset: _Optional[int] = ..., log_start: _Optional[int] = ..., log_end: _Optional[int] = ..., stored_at_ms: _Optional[int] = ..., damage: _Optional[str] = ...) -> None: ...

class MetadataRequest(_message.Message):
    __slots__ = ("revisions", "wait_ms", "tables")
    class RevisionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    revisions: _containers.ScalarMap[str, str]
    wait_ms: int
    tables: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, revisions: _Optional[_Mapping[str, str]] = ..., wait_ms: _Optional[int] = ..., tables: _Optional[_Iterable[str]] = ...) -> None: ...

class MetadataReply(_message.Message):
    __slots__ = ("status", "table", "revision", "piece", "is_last_piece", "is_end", "log_end")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_PIECE_FIELD_NUMBER: _ClassVar[int]
    IS_END_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    table: str
    revision: str
    piece: bytes
    is_last_piece: bool
    is_end: bool
    log_end: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., table: _Optional[str] = ..., revision: _Optional[str] = ..., piece: _Optional[bytes] = ..., is_last_piece: bool = ..., is_end: bool = ..., log_end: _Optional[int] = ...) -> None: ...

class ReplicationStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReplicationStatusReply(_message.Message):
    __slots__ = ("status", "cluster", "broker_name", "broker_id", "role", "store_id", "epochs", "highest_epoch", "log_start", "log_end", "safe_offset", "confirm_offset", "dispatched_offset", "flush_mode", "in_sync_replicas", "in_sync_now", "followers", "following", "is_fenced", "is_draining", "slave_id")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    SAFE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FLUSH_MODE_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_NOW_FIELD_NUMBER: _ClassVar[int]
    FOLLOWERS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWING_FIELD_NUMBER: _ClassVar[int]
    IS_FENCED_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    SLAVE_ID_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    cluster: str
    broker_name: str
    broker_id: int
    role: str
    store_id: str
    epochs: _containers.RepeatedCompositeFieldContainer[Epoch]
    highest_epoch: int
    log_start: int
    log_end: int
    safe_offset: int
    confirm_offset: int
    dispatched_offset: int
    flush_mode: str
    in_sync_replicas: int
    in_sync_now: int
    followers: _containers.RepeatedCompositeFieldContainer[FollowerStatus]
    following: FollowingStatus
    is_fenced: bool
    is_draining: bool
    slave_id: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., cluster: _Optional[str] = ..., broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ..., role: _Optional[str] = ..., store_id: _Optional[str] = ..., epochs: _Optional[_Iterable[_Union[Epoch, _Mapping]]] = ..., highest_epoch: _Optional[int] = ..., log_start: _Optional[int] = ..., log_end: _Optional[int] = ..., safe_offset: _Optional[int] = ..., confirm_offset: _Optional[int] = ..., dispatched_offset: _Optional[int] = ..., flush_mode: _Optional[str] = ..., in_sync_replicas: _Optional[int] = ..., in_sync_now: _Optional[int] = ..., followers: _Optional[_Iterable[_Union[FollowerStatus, _Mapping]]] = ..., following: _Optional[_Union[FollowingStatus, _Mapping]] = ..., is_fenced: bool = ..., is_draining: bool = ..., slave_id: _Optional[int] = ...) -> None: ...

class FollowerStatus(_message.Message):
    __slots__ = ("broker_id", "peer", "is_in_sync", "counts_from", "sent_offset", "safe_offset", "appended_offset", "dispatched_offset", "lag_bytes", "lag_ms", "connected_at_ms", "flush_mode")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    IS_IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FROM_FIELD_NUMBER: _ClassVar[int]
    SENT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SAFE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPENDED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FLUSH_MODE_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    peer: str
    is_in_sync: bool
    counts_from: int
    sent_offset: int
    safe_offset: int
    appended_offset: int
    dispatched_offset: int
    lag_bytes: int
    lag_ms: int
    connected_at_ms: int
    flush_mode: str
    def __init__(self, broker_id: _Optional[int] = ..., peer: _Optional[str] = ..., is_in_sync: bool = ..., counts_from: _Optional[int] = ..., sent_offset: _Optional[int] = ..., safe_offset: _Optional[int] = ..., appended_offset: _Optional[int] = ..., dispatched_offset: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., lag_ms: _Optional[int] = ..., connected_at_ms: _Optional[int] = ..., flush_mode: _Optional[str] = ...) -> None: ...

class FollowingStatus(_message.Message):
    __slots__ = ("is_connected", "master", "epoch", "master_end", "lag_bytes", "lag_ms", "problem", "metadata_age_ms")
    IS_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    MASTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MASTER_END_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    METADATA_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    is_connected: bool
    master: str
    epoch: int
    master_end: int
    lag_bytes: int
    lag_ms: int
    problem: str
    metadata_age_ms: int
    def __init__(self, is_connected: bool = ..., master: _Optional[str] = ..., epoch: _Optional[int] = ..., master_end: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., lag_ms: _Optional[int] = ..., problem: _Optional[str] = ..., metadata_age_ms: _Optional[int] = ...) -> None: ...
