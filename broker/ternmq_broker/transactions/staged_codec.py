"""Staged half messages and the messages that they become, without decoding each. Pure.

The content of a staged half message that was never copied is in its header, and in the properties
that a producer gives to all half messages of a batch. `read_half` and `message_of` decode every
half message, plain or not, with the same results.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ternmq_broker.storage.half_form import (
    TOPIC_FIELD,
    find_half_properties,
    find_real_topic,
    parse_real_queue,
    parse_staged_properties,
)
from ternmq_broker.transactions.half_codec import TransactionIdentity
from ternmq_model.arrays import Ints
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import DELAY, TIMER_PREFIX, encode_name
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.checksum import RESERVED_CHECKSUM, strip_checksum
from ternmq_model.record.fields import queues_of, tag_codes_of
from ternmq_model.record.format import (
    BODY_AT,
    FLAG_COMMIT,
    FLAG_HOSTS_MASK,
    FLAG_TRANSACTION_MASK,
    LENGTH_BYTES,
    MAGIC_V1,
    crc31,
    encode_topic,
    pack_length,
    read_ipv4_fields,
)
from ternmq_model.record.header_arrays import header_type, take_headers

_IPV4: Final = header_type(0)
_DELAY: Final = encode_name(DELAY)
_TIMER: Final = TIMER_PREFIX.encode()


class StagedHalf(NamedTuple):
    """Content of a staged half message."""

    physical_offset: PhysicalOffset
    queue_offset: QueueOffset
    stored_at_ms: int
    topic: str
    """Real topic; empty for a message that names none."""

    group: str
    immunity_ms: int
    staged_for: str


def staged_halves(data: bytes, starts: Ints, sizes: Ints) -> Sequence[StagedHalf | None]:
    """Return the contents of records of the half topic; None for one that `read_half` must read.

    Args:
        data: Bytes with the records.
        starts: Position of each record in `data`.
        sizes: Length of each record, as its header has it.
    """
    if not len(starts) or int(sizes.min()) < _IPV4.itemsize + len(TOPIC_FIELD):
        return [None] * len(starts)
    headers = take_headers(data, starts, _IPV4)
    begins = (starts + _IPV4.itemsize + headers["body_bytes"]).tolist()
    good = (
        (headers["magic"] == MAGIC_V1)
        & (headers["total_bytes"] == sizes)
        & (headers["body_bytes"] >= 0)
        & (headers["sys_flag"] & FLAG_HOSTS_MASK == 0)
        & (headers["prepared_offset"] == 0)
    ).tolist()
    columns = zip(
        good,
        begins,
        (starts + sizes).tolist(),
        headers["physical_offset"].tolist(),
        headers["queue_offset"].tolist(),
        headers["stored_at_ms"].tolist(),
        strict=True,
    )
    found: list[StagedHalf | None] = []
    for is_good, begin, end, physical, number, stored_at_ms in columns:
        properties = find_half_properties(data, begin, end) if is_good else None
        shared = None if properties is None else parse_staged_properties(properties)
        if shared is None or properties is None:
            found.append(None)
            continue
        found.append(
            StagedHalf(
                PhysicalOffset(physical),
                QueueOffset(number),
                stored_at_ms,
                find_real_topic(properties),
                *shared,
            )
        )
    return found


class PlainCommit(NamedTuple):
    """A message that a half message becomes."""

    group: str
    staged_for: str
    message_id: str
    topic: str
    queue_id: int
    """Real queue of the message."""

    transaction: PhysicalOffset
    front: bytes
    """Header and body of the half message."""

    properties: bytes
    """Properties of the half message, without a checksum."""

    is_delayed: bool = False
    """False: a delayed message is not plain."""


def plain_commit(data: bytes, identity: TransactionIdentity) -> PlainCommit | None:
    """Return the message that a half message becomes; None when it is not plain.

    Args:
        data: Record of the half message.
        identity: Transaction to commit; the half message of another transaction is not plain.
    """
    if len(data) < BODY_AT + len(TOPIC_FIELD) + LENGTH_BYTES:
        return None
    # Not a `RecordHeader`, which took a quarter of the time.
    fields = read_ipv4_fields(data)
    total, magic, crc, physical, sys_flag, reconsumed, prepared, body_bytes = fields
    body_end = BODY_AT + body_bytes
    if (
        magic != MAGIC_V1
        or total != len(data)
        or sys_flag & (FLAG_HOSTS_MASK | FLAG_TRANSACTION_MASK)
        or physical != identity.transaction
        or prepared
        or reconsumed
        or body_bytes < 0
        or (encoded := find_half_properties(data, body_end, len(data))) is None
        or crc31(memoryview(data)[BODY_AT:body_end]) != crc
    ):
        return None
    properties = strip_checksum(encoded)
    shared = parse_staged_properties(properties)
    names = parse_real_queue(properties)
    if shared is None or names is None or _DELAY in properties or _TIMER in properties:
        return None
    key, topic, queue_id = names
    if (
        shared.group != identity.group
        or key != identity.message_id
        or identity.topic not in ("", topic)
    ):
        return None
    return PlainCommit(
        shared.group,
        shared.staged_for,
        key,
        topic,
        queue_id,
        identity.transaction,
        data[:body_end],
        properties,
    )


def commit_batch(commits: Sequence[PlainCommit], *, is_checksummed: bool) -> RecordBatch:
    """Return the messages as a batch for the log, in their order.

    Args:
        commits: At least one; their queues exist.
        is_checksummed: True to reserve space for checksums.
    """
    fields: dict[str, bytes] = {}
    pieces: list[bytes] = []
    middles: list[int] = []
    checksum = RESERVED_CHECKSUM if is_checksummed else b""
    for one in commits:
        if (field := fields.get(one.topic)) is None:
            field = fields[one.topic] = encode_topic(one.topic.encode())
        properties = one.properties + checksum
        pieces += (one.front, field, pack_length(len(properties)), properties)
        middles.append(len(one.front) + len(field) + LENGTH_BYTES)
    topics = {topic: number for number, topic in enumerate(fields)}
    count = len(commits)
    tails = np.array(middles, dtype=np.int64)
    sizes = tails + np.fromiter((len(one.properties) for one in commits), np.int64, count)
    sizes += len(checksum)
    starts = np.cumsum(sizes) - sizes
    data = b"".join(pieces)
    headers = take_headers(data, starts, _IPV4)
    headers["total_bytes"] = sizes
    headers["queue_id"] = [one.queue_id for one in commits]
    headers["sys_flag"] |= FLAG_COMMIT
    headers["prepared_offset"] = [one.transaction for one in commits]
    return RecordBatch(
        data,
        starts,
        sizes,
        headers,
        tag_codes_of([one.properties for one in commits]),
        queues_of(
            tuple(topics),
            np.array([topics[one.topic] for one in commits], dtype=np.int64),
            headers["queue_id"].astype(np.int64),
        ),
        starts + tails,
        is_checksummed,
    )
