"""Half messages: their content, and the records that they become; and op messages. Pure.

Source: RocketMQ `TransactionalMessageBridge`, `TransactionalMessageUtil`,
`TransactionalMessageServiceImpl.getOpMessage`, `EndTransactionProcessor`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from ternmq_broker.storage.half_form import CHECK_TIMES, FIRST_HALF
from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_model import properties as names
from ternmq_model.names import CHECK_MAX_TOPIC, HALF_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import decode_properties
from ternmq_model.record.format import FLAG_COMMIT, FLAG_TRANSACTION_MASK, Record

BEGAN: Final = "TRAN_BEGAN_MS"
"""Store time of the first half message, in copies by TernMQ. RocketMQ has no such property."""

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
    """Log offset of the first half message."""

    physical_offset: PhysicalOffset
    queue_offset: QueueOffset
    first_queue_offset: QueueOffset
    """Queue offset of the first half message if that is known, else of this record."""

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
    """Store time of the first half message, by the broker's clock. Copies by RocketMQ lack that
    time: then it is the birth time of the producer."""

    staged_for: str = ""
    """Name of the batch of a staged message, about which no producer is asked; else empty."""

    is_delayed: bool = False
    """The message waits for its delivery time once it is committed."""


def read_half(
    record: Record,
    *,
    place_of: Callable[[QueueOffset], PhysicalOffset | None],
    properties: Mapping[str, str] | None = None,
) -> HalfRecord | None:
    """Return the content of a record of the half topic; None when it can be no half message.

    Args:
        record: Record with all its parts.
        place_of: Returns the log offset of the record at an offset of the half topic's queue; None
            when it is gone. Copies by RocketMQ name their first half message by its queue offset.
        properties: Decoded properties of `record`; None = decode them.
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
        known = _number(pairs.get(BEGAN, ""), began)
        began = min(header.born_at_ms, began) if known is None else known
    immunity = _number(pairs.get(names.CHECK_IMMUNITY_S, ""), names.IMMUNITY_S_MAX)
    return HalfRecord(
        transaction=transaction,
        physical_offset=header.physical_offset,
        queue_offset=header.queue_offset,
        first_queue_offset=header.queue_offset if first is None else QueueOffset(first),
        group=pairs.get(names.PRODUCER_GROUP, ""),
        message_id=key,
        transaction_id=pairs.get(names.TRANSACTION_ID, key),
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
    """Return the number in `text`; None when that is no number from 0 to `most`."""
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        return None
    number = int(text)
    return number if number <= most else None


def message_of(record: InternalRecord, half: HalfRecord, *, queue_id: int) -> InternalRecord:
    """Return the message that a half message becomes when its transaction is committed.

    The message keeps TRAN_MSG, PGROUP and the real topic and queue among its properties, as in
    RocketMQ; a staged message also the name of its batch, and its delay, which begins now.

    Args:
        record: Record of the half message.
        half: Content of `record`.
        queue_id: Queue of the message: the real one, unless the topic has lost that since.
    """
    properties = record.properties
    if not half.staged_for or half.transaction != half.physical_offset:
        properties = {
            name: value
            for name, value in properties.items()
            if name not in _OURS and (half.staged_for or name not in _DELAYS)
        }
    return InternalRecord(  # `replace` takes much longer, and a batch has many
        topic=half.topic,
        queue_id=queue_id,
        body=record.body,
        properties=properties,
        born_at_ms=record.born_at_ms,
        born_host=record.born_host,
        flag=record.flag,
        sys_flag=(record.sys_flag & ~FLAG_TRANSACTION_MASK) | FLAG_COMMIT,
        reconsume_times=record.reconsume_times,
        prepared_offset=half.transaction,
    )


def copy_of(record: InternalRecord, half: HalfRecord, *, checks: int) -> InternalRecord:
    """Return the copy of a half message that is put back, with the number of questions asked."""
    properties = dict(record.properties)
    properties[FIRST_HALF] = str(half.first_queue_offset)
    properties[BEGAN] = str(half.began_at_ms)
    if checks:
        properties[CHECK_TIMES] = str(checks)
    return replace(record, prepared_offset=half.transaction, properties=properties)


def parked_of(record: InternalRecord, half: HalfRecord) -> InternalRecord:
    """Return the parked form of a half message that no producer decided."""
    return replace(record, topic=CHECK_MAX_TOPIC, queue_id=0, prepared_offset=half.transaction)


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
