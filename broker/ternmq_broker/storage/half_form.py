"""Topic and properties of staged half messages, as a broker stores them. Pure.

    UNIQ_KEY, own properties | TRAN_MSG, PGROUP, shared properties
    __transactionId__, REAL_TOPIC, REAL_QID | space for a checksum, if the store has checksums

A producer gives the shared properties, from TRAN_MSG on, to all half messages of a batch. The
broker adds the second line; the value of `__transactionId__` is that of UNIQ_KEY.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from ternmq_model.names import HALF_TOPIC
from ternmq_model.properties import (
    CHECK_IMMUNITY_S,
    IMMUNITY_S_MAX,
    PAIR_END_BYTE,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    STAGED_FOR,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    decode_properties,
    encode_name,
    encode_pair,
)
from ternmq_model.record.format import LENGTH_BYTES, encode_topic, read_length

CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
FIRST_HALF: Final = "TRAN_PREPARED_QUEUE_OFFSET"

TOPIC_FIELD: Final = encode_topic(HALF_TOPIC.encode())
"""The topic of half messages behind its length, as it follows the body."""

KEY_NAME: Final = encode_name(UNIQUE_KEY)
"""Begin of the properties of a half message, up to the value of its key."""

_SHARED: Final = (
    PAIR_END_BYTE + encode_pair(TRANSACTION_PREPARED, "true") + encode_name(PRODUCER_GROUP)
)
_ID_NAME: Final = encode_name(TRANSACTION_ID)
_ID: Final = PAIR_END_BYTE + _ID_NAME
_REAL_TOPIC: Final = encode_name(REAL_TOPIC)
_REAL_QUEUE_ID: Final = encode_name(REAL_QUEUE_ID)
_REAL: Final = PAIR_END_BYTE + _REAL_TOPIC
_COPIED: Final = PAIR_END_BYTE + encode_name(FIRST_HALF)
_CHECKED: Final = PAIR_END_BYTE + encode_name(CHECK_TIMES)
_DIGITS_MAX: Final = 9


class StagedProperties(NamedTuple):
    """Properties that a producer gives to all half messages of a batch."""

    group: str
    immunity_ms: int
    staged_for: str


def shared_part(properties: bytes) -> bytes | None:
    """Return the encoded properties from TRAN_MSG on, as sent; None when none are shared."""
    at = properties.rfind(_SHARED)
    return None if at < 0 else properties[at + len(PAIR_END_BYTE) :]


def encode_real_queue(topic: str, queue_id: int) -> bytes:
    """Return the properties with the real queue, behind the value of the transaction's id."""
    real = encode_pair(REAL_TOPIC, topic) + encode_pair(REAL_QUEUE_ID, str(queue_id))
    return PAIR_END_BYTE + real


def join_half_properties(
    leads: Sequence[bytes], shared: bytes, real_queues: Sequence[bytes]
) -> list[bytes]:
    """Return the stored properties of half messages.

    Args:
        leads: First part of each message's properties, which begins with its key.
        shared: Properties of all messages.
        real_queues: Result of `encode_real_queue` for each message, with its checksum's space.
    """
    middle, begin, end = shared + _ID_NAME, len(KEY_NAME), PAIR_END_BYTE
    return [
        b"%b%b%b%b" % (lead, middle, lead[begin : lead.index(end)], real_queue)
        for lead, real_queue in zip(leads, real_queues, strict=True)
    ]


def find_half_properties(data: bytes, body_end: int, end: int) -> bytes | None:
    """Return the encoded properties of a half message; None when it is not a sound one.

    Args:
        data: Bytes with the record.
        body_end: End of the record's body, where the topic begins.
        end: End of the record.
    """
    at = body_end + len(TOPIC_FIELD) + LENGTH_BYTES
    if at > end or not data.startswith(TOPIC_FIELD, body_end):
        return None
    return data[at:end] if read_length(data, at) == end - at else None


def parse_staged_properties(properties: bytes) -> StagedProperties | None:
    """Return the shared properties of a staged half message; None when it is not plain."""
    begin = properties.rfind(_SHARED)
    end = properties.find(_ID, begin)
    if (
        begin < 0
        or end < 0
        or properties.find(_REAL, end) < 0
        or _COPIED in properties
        or _CHECKED in properties
    ):
        return None
    return _parse_shared(properties[begin + 1 : end + 1])


@lru_cache(maxsize=1024)
def _parse_shared(shared: bytes) -> StagedProperties | None:
    pairs = decode_properties(shared)
    immunity = pairs.get(CHECK_IMMUNITY_S, "")
    if STAGED_FOR not in pairs or not (immunity.isascii() and immunity.isdigit()):
        return None
    if len(immunity) > len(str(IMMUNITY_S_MAX)) or int(immunity) > IMMUNITY_S_MAX:
        return None
    return StagedProperties(pairs[PRODUCER_GROUP], int(immunity) * 1000, pairs[STAGED_FOR])


def find_real_topic(properties: bytes) -> str:
    """Return the real topic in the properties of a half message; empty without one."""
    begin = properties.rfind(_REAL)
    if begin < 0:
        return ""
    begin += len(_REAL)
    return _decode_topic(properties[begin : properties.find(PAIR_END_BYTE, begin)])


@lru_cache(maxsize=1024)
def _decode_topic(name: bytes) -> str:
    return name.decode(errors="replace")


def parse_real_queue(properties: bytes) -> tuple[str, str, int] | None:
    """Return id, topic and queue that end the properties of a half message; None when not so."""
    end = properties.rfind(_ID)
    parts = properties[end + len(_ID) :].split(PAIR_END_BYTE)
    if end < 0 or len(parts) != 4 or parts[3]:
        return None
    key, topic, queue = parts[0], parts[1], parts[2]
    number = queue.removeprefix(_REAL_QUEUE_ID)
    name = topic.removeprefix(_REAL_TOPIC)
    if (
        not key
        or not properties.startswith(KEY_NAME + key + PAIR_END_BYTE)
        or properties.count(KEY_NAME) != 1
        or len(name) == len(topic)
        or len(number) == len(queue)
        or not number.isdigit()
        or len(number) > _DIGITS_MAX
        or not (key + name).isascii()
    ):
        return None
    return key.decode(), name.decode(), int(number)
