"""Facts about one message, as a cluster's brokers have them. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ternmq_client.admin.descriptions import GroupDescription, UnreachableBroker
from ternmq_client.admin.open_transactions import TransactionView
from ternmq_client.admin.redrive import ORIGIN_TOPICS
from ternmq_client.tracing.trace_records import TraceRecord
from ternmq_model import properties as names
from ternmq_model.delay import level_delay_ms, wheel_code
from ternmq_model.names import (
    CHECK_MAX_TOPIC,
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    WHEEL_TOPIC,
)
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import FLAG_COMMIT, FLAG_TRANSACTION_MASK
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1.groups_pb2 import RunningState
from ternmq_protos.v1.replication_pb2 import ReplicationStatusReply

_WAITING: Final = (SCHEDULE_TOPIC, WHEEL_TOPIC)
_OF_GROUPS: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFacts:
    """One record of a message in a broker's log."""

    queue: MessageQueue
    """Queue of the record."""

    queue_offset: int
    """Offset in the queue."""

    begin: int
    """Log offset of its first byte."""

    end: int
    """Log offset behind its last byte."""

    stored_at_ms: int
    """Store time by the broker's clock, Unix milliseconds."""

    born_at_ms: int = 0
    """Time of sending by the producer's clock, Unix milliseconds."""

    born_host: str = ""
    """`HOST:PORT` of the producer."""

    store_host: str = ""
    """`HOST:PORT` of the broker that stored it first."""

    offset_message_id: str = ""
    """Offset message id."""

    reconsume_times: int = 0
    """Number of redeliveries to the group."""

    transaction: int | None = None
    """Log offset of the half message of a committed transaction; None = no transaction."""

    properties: Mapping[str, str]
    """Properties, those of the system included."""

    @property
    def topic(self) -> str:
        """Topic of the record."""
        return self.queue.topic

    @property
    def is_waiting(self) -> bool:
        """True for a copy that waits for its delivery time, or has waited."""
        return self.topic in _WAITING

    @property
    def is_delivery(self) -> bool:
        """True for a record in a topic that any group may consume."""
        own = (*_WAITING, CHECK_MAX_TOPIC)
        return self.topic not in own and not self.topic.startswith(_OF_GROUPS)

    @property
    def is_to_group(self) -> bool:
        """True for a dead letter that was sent again to its group alone: a retry never failed."""
        return self.topic.startswith(RETRY_PREFIX) and not self.reconsume_times

    @property
    def target(self) -> str:
        """Topic that a waiting copy is delivered to; the record's own topic otherwise."""
        return self.properties.get(names.REAL_TOPIC, "") if self.is_waiting else self.topic

    @property
    def group(self) -> str:
        """Consumer group of a retry copy or dead letter; empty for any other record."""
        for prefix in _OF_GROUPS:
            if self.target.startswith(prefix):
                return self.target.removeprefix(prefix)
        return ""

    @property
    def origin_topic(self) -> str:
        """Topic that the producer sent the message to."""
        for name in ORIGIN_TOPICS:
            if self.properties.get(name):
                return self.properties[name]
        if self.topic == CHECK_MAX_TOPIC:
            return self.properties.get(names.REAL_TOPIC, "")
        return self.target


def record_facts(message: StoredMessage) -> RecordFacts:
    """Return the facts of a message that was read from its broker."""
    header = message.header
    is_committed = header.sys_flag & FLAG_TRANSACTION_MASK == FLAG_COMMIT
    return RecordFacts(
        queue=message.queue,
        queue_offset=message.queue_offset,
        begin=message.physical_offset,
        end=message.physical_offset + message.record_bytes,
        stored_at_ms=message.stored_at_ms,
        born_at_ms=message.born_at_ms,
        born_host=message.born_host,
        store_host=message.store_host,
        offset_message_id=message.offset_message_id,
        reconsume_times=message.reconsume_times,
        transaction=header.prepared_offset if is_committed else None,
        properties=message.properties,
    )


def due_ms(record: RecordFacts) -> int | None:
    """Return the delivery time of a waiting copy, Unix milliseconds; None when it has none."""
    if record.topic == SCHEDULE_TOPIC:
        return record.stored_at_ms + level_delay_ms(record.queue.queue_id + 1)
    return wheel_code(record.properties, record.stored_at_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFacts:
    """Knowledge of a cluster's brokers about one message."""

    message_id: str
    """Unique key of the message, or its offset message id where it has none."""

    asked_at_ms: int
    """Time of the questions by the caller's clock, Unix milliseconds."""

    records: Sequence[RecordFacts] = ()
    """Records with the message's unique key, in the order of their store times."""

    first_read: Mapping[tuple[str, int], int | None] = field(
        default_factory=dict[tuple[str, int], int | None]
    )
    """Offset of the first message that a read of a record's queue finds from the record on, by
    broker name and log offset; None = no message, or another one at the record's offset."""

    replication: Mapping[str, ReplicationStatusReply] = field(
        default_factory=dict[str, ReplicationStatusReply]
    )
    """Status of the masters' replication by broker name."""

    groups: Sequence[GroupDescription] = ()
    """Consumer groups, sorted by name; without members and offsets where no broker knows it, and
    absent where the question failed."""

    only: Collection[str] = ()
    """Groups to tell about; empty = all that are known."""

    running: Mapping[tuple[str, str], RunningState] = field(
        default_factory=dict[tuple[str, str], RunningState]
    )
    """Running states by group and client id of members that may have the message in hand."""

    transactions: Sequence[TransactionView] = ()
    """Transactions of the message that brokers know by its unique key."""

    redriven: Mapping[str, RecordFacts] = field(default_factory=dict[str, RecordFacts])
    """Messages that redrives sent, by the offset message id of their dead letter."""

    handled: Mapping[MessageQueue, int] = field(default_factory=dict[MessageQueue, int])
    """Offset before which dead letters are redriven or dropped, by their queue."""

    traces: Sequence[tuple[str, TraceRecord]] = ()
    """Trace records by time, each with `HOST:PORT` of its client."""

    gaps: Sequence[str] = ()
    """Questions without an answer, as sentences: permissions, missing indexes, deleted records."""

    unreachable: Sequence[UnreachableBroker] = ()
    """Brokers that gave no answer."""
