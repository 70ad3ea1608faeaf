"""Half messages: their content, and the records that they become; and op messages. Pure.

Source: RocketMQ `TransactionalMessageBridge`, `TransactionalMessageUtil`,
`TransactionalMessageServiceImpl.getOpMessage`, `EndTransactionProcessor`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_model import properties as names
from ternmq_model.names import CHECK_MAX_TOPIC, HALF_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import decode_properties
from ternmq_model.record.format import FLAG_COMMIT, FLAG_TRANSACTION_MASK, Record

CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
FIRST_HALF: Final = "TRAN_PREPARED_QUEUE_OFFSET"
BEGAN: Final = "TRAN_BEGAN_MS"
"""Store time of the first half message, in copies by TernMQ. RocketMQ has no such property."""

TRANSACTION_ID: Final = "__transactionId__"

OP_TAG: Final = "d"
"""Tag of an op message that names half messages of ended transactions; RocketMQ knows no other."""

_OURS: Final = (CHECK_TIMES, FIRST_HALF, BEGAN)
_DELAYS: Final = frozenset(
    {names.DELAY, names.TIMER_DELIVER_MS, names.TIMER_DELAY_MS, names.TIMER_DELAY_SEC}
)
_QUEUE_ID_MAX: Final = (1 << 31) - 1
_DIGITS_MAX: Final = 19


class TransactionIdentity(NamedTuple):
    """The four names of a transaction in a producer's request."""

    group: str
    message_id: str
    transaction: PhysicalOffset
    topic: str = ""
    """Empty = any."""


class HalfRecord(NamedTuple):
    """Content of one record of the half topic."""

    transaction: PhysicalOffset
    """The log offset of its first half message."""

    physical_offset: PhysicalOffset
    queue_offset: QueueOffset
    first_queue_offset: QueueOffset
    """Queue offset of the first half message, as far as known; its own otherwise."""

    group: str
    message_id: str
    transaction_id: str
    topic: str
    queue_id: int
    checks: int
    """Number of questions to producers so far."""

    immunity_ms: int | None
    """Immunity time of the message, before the first question; None = the broker's."""

    stored_at_ms: int
    began_at_ms: int
    """Store time of the first half message, by the broker's clock. RocketMQ's copies do not tell
    it: then it is the birth time that the producer gave."""

    staged_for: str = ""
    """Name of its batch, when it is staged: nobody is asked about it."""

    is_delayed: bool = False
    """The message waits for its time once it is committed."""


def read_half(
    record: Record,
    *,
    place_of: Callable[[QueueOffset], PhysicalOffset | None],
    properties: Mapping[str, str] | None = None,
) -> HalfRecord | None:
    """Return the content of a record of the half topic; None when it can be no half message.

    Args:
        record: Whole.
        place_of: Where the record at an offset of the half topic's queue lies, if it still does.
            For copies that RocketMQ has put back, which name their first half by that alone.
        properties: The record's, decoded, when they are.
    """
    header = record.header
    if record.topic != HALF_TOPIC.encode():
        return None
    pairs = decode_properties(record.properties) if properties is None else properties
    topic, queue_text = pairs.get(names.REAL_TOPIC, ""), pairs.get(names.REAL_QUEUE_ID, "")
    queue_id = _number(queue_text, _QUEUE_ID_MAX)
    if not topic or queue_id is None:
        return None
    first = _number(pairs.get(FIRST_HALF, ""), header.queue_offset)
    transaction = header.physical_offset
    if header.prepared_offset > 0 or (first is not None and BEGAN in pairs):
        # Ours, also when the first half lies at offset 0. No client can send that pair.
        transaction = PhysicalOffset(header.prepared_offset)
    elif first is not None:
        found = place_of(QueueOffset(first))
        transaction = header.physical_offset if found is None else found
    key = pairs.get(names.UNIQUE_KEY, "")
    checks = _number(pairs.get(CHECK_TIMES, ""), _QUEUE_ID_MAX) or 0
    began = header.stored_at_ms
    if transaction != header.physical_offset or checks:
        told = _number(pairs.get(BEGAN, ""), began)
        began = min(header.born_at_ms, began) if told is None else told
    immunity = _number(pairs.get(names.CHECK_IMMUNITY_S, ""), names.IMMUNITY_S_MAX)
    return HalfRecord(
        transaction=transaction,
        physical_offset=header.physical_offset,
        queue_offset=header.queue_offset,
        first_queue_offset=header.queue_offset if first is None else QueueOffset(first),
        group=pairs.get(names.PRODUCER_GROUP, ""),
        message_id=key,
        transaction_id=pairs.get(TRANSACTION_ID, key),
        topic=topic,
        queue_id=queue_id,
        checks=checks,
        immunity_ms=None if immunity is None else immunity * 1000,
        stored_at_ms=header.stored_at_ms,
        began_at_ms=began,
        staged_for=(staged_for := pairs.get(names.STAGED_FOR, "")),
        is_delayed=bool(staged_for) and not _DELAYS.isdisjoint(pairs),
    )


def _number(text: str, most: int) -> int | None:
    """Return the number that `text` is; None when it is none from 0 to `most`."""
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        return None
    number = int(text)
    return number if number <= most else None


def message_of(inner: InternalRecord, half: HalfRecord, *, queue_id: int) -> InternalRecord:
    """Return the message that a half message becomes when its transaction is committed.

    It keeps TRAN_MSG, PGROUP and its real topic and queue among its properties, as RocketMQ's do; a
    staged one also whose batch it was, and its delay, which is then to be followed.

    Args:
        inner: The half message's record.
        half: What it says.
        queue_id: Its queue: the real one, unless the topic has lost that since.
    """
    properties = inner.properties
    if not half.staged_for or half.transaction != half.physical_offset:
        properties = {
            name: value
            for name, value in properties.items()
            if name not in _OURS and (half.staged_for or name not in _DELAYS)
        }
    return InternalRecord(  # `replace` takes much longer, and a batch has many
        topic=half.topic,
        queue_id=queue_id,
        body=inner.body,
        properties=properties,
        born_at_ms=inner.born_at_ms,
        born_host=inner.born_host,
        flag=inner.flag,
        sys_flag=(inner.sys_flag & ~FLAG_TRANSACTION_MASK) | FLAG_COMMIT,
        reconsume_times=inner.reconsume_times,
        prepared_offset=half.transaction,
    )


def copy_of(inner: InternalRecord, half: HalfRecord, *, checks: int) -> InternalRecord:
    """Return the copy of a half message that is put back, with the number of questions asked."""
    properties = dict(inner.properties)
    properties[FIRST_HALF] = str(half.first_queue_offset)
    properties[BEGAN] = str(half.began_at_ms)
    if checks:
        properties[CHECK_TIMES] = str(checks)
    return replace(inner, prepared_offset=half.transaction, properties=properties)


def parked_of(inner: InternalRecord, half: HalfRecord) -> InternalRecord:
    """Return the parked form of a half message that nobody could decide."""
    return replace(inner, topic=CHECK_MAX_TOPIC, queue_id=0, prepared_offset=half.transaction)


def encode_ops(offsets: Iterable[QueueOffset]) -> bytes:
    """Return the body of an op message that names half messages by their queue offsets."""
    return "".join([f"{offset}," for offset in offsets]).encode()


def decode_ops(body: bytes) -> Sequence[QueueOffset]:
    """Return the queue offsets in an op message; parts that are no number are skipped.

    RocketMQ 5 writes a comma behind each offset; RocketMQ 4 writes one offset without a comma.
    """
    return [
        QueueOffset(int(part))
        for part in body.split(b",")
        if part.isdigit() and len(part) <= _DIGITS_MAX
    ]


def ops_bytes(offset: QueueOffset) -> int:
    """Return the number of bytes by which an offset lengthens an op message."""
    return len(str(offset)) + 1
