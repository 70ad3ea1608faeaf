"""Codec of staged half messages, read back by the thousand without decoding each. Pure.

Of a staged half message that was never copied, all that a table keeps is in its header, and in the
properties that its producer gave to every one of its batch. Everything else is for `read_half`.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from ternmq_broker.transactions.half_codec import CHECK_TIMES, FIRST_HALF
from ternmq_model.arrays import Ints
from ternmq_model.names import HALF_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import (
    CHECK_IMMUNITY_S,
    IMMUNITY_S_MAX,
    PRODUCER_GROUP,
    REAL_TOPIC,
    STAGED_FOR,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
    decode_properties,
)
from ternmq_model.record.format import (
    FLAG_HOSTS_MASK,
    LENGTH_BYTES,
    MAGIC_V1,
    encode_topic,
    read_length,
)
from ternmq_model.record.header_arrays import header_type, take_headers

HALF_TOPIC_FIELD: Final = encode_topic(HALF_TOPIC.encode())
"""The topic of half messages behind its length, as it follows the body."""

_BEGIN: Final = f"\x02{TRANSACTION_PREPARED}\x01true\x02{PRODUCER_GROUP}\x01".encode()
_END: Final = f"\x02{TRANSACTION_ID}\x01".encode()
_REAL: Final = f"\x02{REAL_TOPIC}\x01".encode()
_COPIED: Final = f"\x02{FIRST_HALF}\x01".encode()
_CHECKED: Final = f"\x02{CHECK_TIMES}\x01".encode()
_IPV4: Final = header_type(0)


class StagedHalf(NamedTuple):
    """Content of a staged half message."""

    physical_offset: PhysicalOffset
    queue_offset: QueueOffset
    stored_at_ms: int
    group: str
    immunity_ms: int
    staged_for: str


class StagedProperties(NamedTuple):
    """Properties that a producer gives to all half messages of a batch."""

    group: str
    immunity_ms: int
    staged_for: str


def staged_halves(data: bytes, starts: Ints, sizes: Ints) -> Sequence[StagedHalf | None]:
    """Return the contents of records of the half topic; None for one that `read_half` must read.

    Args:
        data: The records lie in it.
        starts: Where each begins.
        sizes: Of each, as it says itself.
    """
    if not len(starts) or int(sizes.min()) < _IPV4.itemsize + len(HALF_TOPIC_FIELD):
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
        properties = half_properties(data, begin, end) if is_good else None
        shared = None if properties is None else parse_staged_properties(properties)
        found.append(
            None
            if shared is None
            else StagedHalf(PhysicalOffset(physical), QueueOffset(number), stored_at_ms, *shared)
        )
    return found


def half_properties(data: bytes, body_end: int, end: int) -> bytes | None:
    """Return the encoded properties of a half message; None when it is not a sound one.

    Args:
        data: Holds the record.
        body_end: End of its body, where a half message has its topic.
        end: End of the record.
    """
    at = body_end + len(HALF_TOPIC_FIELD) + LENGTH_BYTES
    if at > end or not data.startswith(HALF_TOPIC_FIELD, body_end):
        return None
    return data[at:end] if read_length(data, at) == end - at else None


def parse_staged_properties(properties: bytes) -> StagedProperties | None:
    """Return the shared properties of a staged half message; None when it is not plain."""
    begin = properties.rfind(_BEGIN)
    end = properties.find(_END, begin)
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
    """Return the properties that a producer gives to all of a batch; None when not plain."""
    pairs = decode_properties(shared)
    immunity = pairs.get(CHECK_IMMUNITY_S, "")
    if STAGED_FOR not in pairs or not (immunity.isascii() and immunity.isdigit()):
        return None
    if len(immunity) > len(str(IMMUNITY_S_MAX)) or int(immunity) > IMMUNITY_S_MAX:
        return None
    return StagedProperties(pairs[PRODUCER_GROUP], int(immunity) * 1000, pairs[STAGED_FOR])
