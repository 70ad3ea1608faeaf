"""Encoder of records for one broker, with constant parts encoded once."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, Final

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.crc32 import crc32
from ternmq_model.errors import IllegalMessage
from ternmq_model.properties import PAIR_END_BYTE, UNIQUE_KEY, encode_name
from ternmq_model.record.format import (
    CRC31_MASK,
    MAGIC_V1,
    PROPERTIES_BYTES_MAX,
    encode_topic,
    header_struct,
    host_flags,
    pack_length,
)
from ternmq_model.record.header_arrays import header_type, pieces_of
from ternmq_model.unique_key_columns import KeyColumn

_UNIQUE_KEY: Final = encode_name(UNIQUE_KEY)
_PROPERTIES: Final = _UNIQUE_KEY + b"%b" + PAIR_END_BYTE + b"%b%b"
"""Format of the properties: value of the unique key, other properties, suffix."""


@lru_cache
def _tail_type(topic_bytes: int, key_bytes: int, end_bytes: int) -> "np.dtype[np.void]":
    """Return the structure of what follows a body, up to where properties begin to differ."""
    fields: list[Any] = [
        ("topic", f"V{1 + topic_bytes}"),
        ("length", ">i2"),
        ("name", f"V{len(_UNIQUE_KEY)}"),
        ("key", f"S{key_bytes}"),
        ("end", f"V{end_bytes}"),
    ]
    return np.dtype(fields)


class RecordEncoder:
    """Encoder of records for one stream to one broker. Immutable.

    Args:
        born_host: BORNHOST, the client's address at the broker: 8 or 20 bytes.
        store_host: STOREHOST, the broker's address: 8 or 20 bytes.
        suffix: Encoded properties at the end of every record.
        properties_bytes_max: Most bytes of a properties field, with the suffix.
    """

    def __init__(
        self,
        *,
        born_host: bytes,
        store_host: bytes,
        suffix: bytes = b"",
        properties_bytes_max: int = PROPERTIES_BYTES_MAX,
    ) -> None:
        self._born_host = born_host
        self._store_host = store_host
        self._suffix = suffix
        self._properties_bytes_max = properties_bytes_max
        self._flags = host_flags(len(born_host), len(store_host))
        self._layout = header_struct(self._flags)
        self._kind = header_type(self._flags)
        self._fixed_bytes = self._layout.size + 3

    def encode(
        self,
        topic: bytes,
        queue_id: int,
        body: bytes,
        unique_key: bytes,
        properties: bytes,
        *,
        born_at_ms: int,
        flag: int = 0,
        sys_flag: int = 0,
    ) -> bytes:
        """Return one record.

        Args:
            topic: Checked topic, at most 127 bytes.
            queue_id: Id of the queue on the broker.
            body: Body within the broker's limit.
            unique_key: Value of the property UNIQ_KEY.
            properties: All other properties, encoded.
            born_at_ms: Present wall time, Unix ms.
            flag: Number of the application.
            sys_flag: Compression bits.

        Raises:
            IllegalMessage: The properties are too long.
        """
        whole = _PROPERTIES % (unique_key, properties, self._suffix)
        if len(whole) > self._properties_bytes_max:
            raise self._too_long(topic, len(whole))
        total = self._fixed_bytes + len(body) + len(topic) + len(whole)
        head = self._layout.pack(
            total,
            MAGIC_V1,
            crc32(body) & CRC31_MASK,  # `crc31` without its call, for every message
            queue_id,
            flag,
            0,
            0,
            sys_flag | self._flags,
            born_at_ms,
            self._born_host,
            0,
            self._store_host,
            0,
            0,
            len(body),
        )
        return b"%b%b%c%b%b%b" % (
            head, body, len(topic), topic, pack_length(len(whole)), whole,
        )  # fmt: skip

    def encode_many(
        self,
        topic: bytes,
        queue_ids: Ints | Sequence[int],
        bodies: Sequence[bytes | memoryview],
        unique_keys: KeyColumn,
        properties: Sequence[bytes | memoryview],
        flags: Ints | Sequence[int] | int,
        *,
        born_at_ms: Ints | Sequence[int] | int,
        sys_flags: Ints | Sequence[int] | int = 0,
    ) -> tuple[list[bytes | memoryview], Ints]:
        """Return pieces of the records of one topic, and the size of each record.

        The joined pieces equal the joined records of `encode`, of which none is made.

        Args:
            topic: Checked topic. All following columns have the same length, at least 1.
            queue_ids: Queue id of each record.
            bodies: Body of each record.
            unique_keys: Unique key of each record.
            properties: Other properties of each record, encoded.
            flags: Application's number of each record, or of all.
            born_at_ms: Born time of all records, or of each one, Unix ms.
            sys_flags: Compression bits of each record, or of all.

        Raises:
            IllegalMessage: Properties of a record are too long. No record is returned.
        """
        count, first = len(bodies), properties[0]
        is_same = properties.count(first) == count
        added_bytes = len(_UNIQUE_KEY) + unique_keys.itemsize + 1 + len(self._suffix)
        whole_bytes = np.array([len(first)] if is_same else [*map(len, properties)]) + added_bytes
        longest = int(whole_bytes.max())
        if longest > self._properties_bytes_max:
            raise self._too_long(topic, longest)
        body_bytes = np.fromiter(map(len, bodies), np.int64, count)
        headers = np.zeros(count, dtype=self._kind)
        total_bytes = body_bytes + whole_bytes + (self._fixed_bytes + len(topic))
        headers["total_bytes"] = total_bytes
        headers["magic"] = MAGIC_V1
        headers["body_crc"] = np.fromiter(map(crc32, bodies), np.int64, count) & CRC31_MASK
        headers["queue_id"] = queue_ids
        headers["flag"] = flags
        headers["sys_flag"] = sys_flags
        headers["sys_flag"] |= self._flags
        headers["born_at_ms"] = born_at_ms
        headers["born_host"] = np.void(self._born_host)
        headers["store_host"] = np.void(self._store_host)
        headers["body_bytes"] = body_bytes
        end = PAIR_END_BYTE + (bytes(first) + self._suffix if is_same else b"")
        tails = np.empty(count, _tail_type(len(topic), unique_keys.itemsize, len(end)))
        tails["topic"] = np.void(encode_topic(topic))
        tails["length"] = whole_bytes
        tails["name"] = np.void(_UNIQUE_KEY)
        tails["key"] = unique_keys
        tails["end"] = np.void(end)
        columns: list[Iterable[bytes | memoryview]] = [pieces_of(headers), bodies, pieces_of(tails)]
        if not is_same:
            columns += [properties, repeat(self._suffix, count)]
        return list(chain.from_iterable(zip(*columns, strict=True))), total_bytes

    def _too_long(self, topic: bytes, length: int) -> IllegalMessage:
        return IllegalMessage(
            f"message for {topic.decode()!r}: properties have {length} bytes with what is added to "
            f"them, at most {self._properties_bytes_max} fit"
        )
