"""Codec of committed messages, made of staged half messages' bytes without decoding them. Pure.

Half messages that are not as plain as producers stage them are decoded and encoded by `read_half`
and `message_of`, with the same result.
"""

import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ternmq_broker.transactions.end_lookup import TransactionIdentity
from ternmq_broker.transactions.staged_codec import (
    HALF_TOPIC_FIELD,
    half_properties,
    parse_staged_properties,
)
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.properties import REAL_QUEUE_ID, REAL_TOPIC, TRANSACTION_ID, UNIQUE_KEY
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.checksum import RESERVED_CHECKSUM, strip_checksum
from ternmq_model.record.fields import queues_of, tag_codes_of
from ternmq_model.record.format import (
    FLAG_COMMIT,
    FLAG_HOSTS_MASK,
    FLAG_TRANSACTION_MASK,
    LENGTH_BYTES,
    MAGIC_V1,
    header_struct,
    pack_length,
)
from ternmq_model.record.header_arrays import header_type, take_headers

_HEAD: Final = header_struct(0)
_IPV4: Final = header_type(0)
_ID: Final = f"\x02{TRANSACTION_ID}\x01".encode()
_KEY: Final = f"{UNIQUE_KEY}\x01".encode()
_REAL_TOPIC: Final = f"{REAL_TOPIC}\x01".encode()
_REAL_QUEUE_ID: Final = f"{REAL_QUEUE_ID}\x01".encode()
_DELAY: Final = b"DELAY\x01"
_TIMER: Final = b"TIMER_"
_DIGITS_MAX: Final = 9


class PlainCommit(NamedTuple):
    """A message that a half message becomes."""

    group: str
    staged_for: str
    message_id: str
    topic: str
    queue_id: int
    """The real one."""

    transaction: PhysicalOffset
    front: bytes
    """Header and body, as they lie there."""

    properties: bytes
    """Without a checksum."""

    is_delayed: bool = False
    """Always false: a delayed message is not plain."""


def plain_commit(data: bytes, identity: TransactionIdentity) -> PlainCommit | None:
    """Return the message that a half message becomes; None when it is not plain.

    Args:
        data: Its record.
        identity: Names of the transaction to commit; the half message of another one is not plain.
    """
    if len(data) < _HEAD.size + len(HALF_TOPIC_FIELD) + LENGTH_BYTES:
        return None
    # By place: a `RecordHeader` for each took a quarter of the time.
    total, magic, crc, _, _, _, physical, sys_flag, *_, reconsumed, prepared, body_bytes = (
        _HEAD.unpack_from(data)
    )
    body_end = _HEAD.size + body_bytes
    if (
        magic != MAGIC_V1
        or total != len(data)
        or sys_flag & (FLAG_HOSTS_MASK | FLAG_TRANSACTION_MASK)
        or physical != identity.transaction
        or prepared
        or reconsumed
        or body_bytes < 0
        or (encoded := half_properties(data, body_end, len(data))) is None
        or zlib.crc32(memoryview(data)[_HEAD.size : body_end]) & 0x7FFFFFFF != crc
    ):
        return None
    properties = strip_checksum(encoded)
    shared = parse_staged_properties(properties)
    place = _place_of(properties)
    if shared is None or place is None or _DELAY in properties or _TIMER in properties:
        return None
    key, topic, queue_id = place
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


def _place_of(properties: bytes) -> tuple[str, str, int] | None:
    """Return id, topic and queue that end the properties of a half message; None when not so."""
    end = properties.rfind(_ID)
    parts = properties[end + len(_ID) :].split(b"\x02")
    if end < 0 or len(parts) != 4 or parts[3]:
        return None
    key, topic, queue = parts[0], parts[1], parts[2]
    number = queue.removeprefix(_REAL_QUEUE_ID)
    name = topic.removeprefix(_REAL_TOPIC)
    if (
        not key
        or not properties.startswith(_KEY + key + b"\x02")
        or properties.count(_KEY) != 1
        or len(name) == len(topic)
        or len(number) == len(queue)
        or not number.isdigit()
        or len(number) > _DIGITS_MAX
        or not (key + name).isascii()
    ):
        return None
    return key.decode(), name.decode(), int(number)


def commit_batch(commits: Sequence[PlainCommit], *, is_checksummed: bool) -> RecordBatch:
    """Return the messages as the log takes them, in their order.

    Args:
        commits: At least one; their queues are there.
        is_checksummed: Whether they are to end with a checksum.
    """
    topics: dict[str, int] = {}
    pieces: list[bytes] = []
    middles: list[int] = []
    checksum = RESERVED_CHECKSUM if is_checksummed else b""
    for one in commits:
        topics.setdefault(one.topic, len(topics))
        properties = one.properties + checksum
        topic = one.topic.encode()
        pieces += (
            one.front,
            bytes((len(topic),)),
            topic,
            pack_length(len(properties)),
            properties,
        )
        middles.append(len(one.front) + len(topic) + 3)
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
