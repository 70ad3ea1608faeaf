"""Encoder of records for one broker, with constant parts encoded once."""

from collections.abc import Sequence
from typing import Final

import numpy as np

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
from ternmq_model.record.header_arrays import header_pieces, header_type, pack_lengths

_PROPERTIES: Final = encode_name(UNIQUE_KEY) + b"%b" + PAIR_END_BYTE + b"%b%b"
"""Format of the properties: value of the unique key, other properties, suffix."""


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
        queue_ids: Sequence[int],
        bodies: Sequence[bytes],
        unique_keys: Sequence[bytes],
        properties: Sequence[bytes],
        flags: Sequence[int],
        *,
        born_at_ms: int | Sequence[int],
        sys_flags: Sequence[int] | None = None,
    ) -> list[bytes]:
        """Return records of one topic, equal to those of `encode` one by one.

        Args:
            topic: Checked topic. All following columns have the same length.
            queue_ids: Queue id of each record.
            bodies: Body of each record.
            unique_keys: Unique key of each record.
            properties: Other properties of each record, encoded.
            flags: Application's number of each record.
            born_at_ms: Born time of all records, or of each one, Unix ms.
            sys_flags: Compression bits of each record; None = no compression.

        Raises:
            IllegalMessage: Properties of a record are too long. No record is returned.
        """
        suffix = self._suffix
        wholes = [
            _PROPERTIES % (key, some, suffix)
            for key, some in zip(unique_keys, properties, strict=True)
        ]
        count = len(wholes)
        body_bytes = np.fromiter(map(len, bodies), dtype=np.int64, count=count)
        whole_bytes = np.fromiter(map(len, wholes), dtype=np.int64, count=count)
        longest = int(whole_bytes.max(initial=0))
        if longest > self._properties_bytes_max:
            raise self._too_long(topic, longest)
        headers = np.zeros(count, dtype=self._kind)
        headers["total_bytes"] = body_bytes + whole_bytes + (self._fixed_bytes + len(topic))
        headers["magic"] = MAGIC_V1
        headers["body_crc"] = (
            np.fromiter(map(crc32, bodies), dtype=np.int64, count=count) & CRC31_MASK
        )
        headers["queue_id"] = queue_ids
        headers["flag"] = flags
        headers["sys_flag"] = self._flags
        if sys_flags is not None:
            headers["sys_flag"] |= np.array(sys_flags, dtype=np.int32)
        headers["born_at_ms"] = born_at_ms
        headers["born_host"] = np.void(self._born_host)
        headers["store_host"] = np.void(self._store_host)
        headers["body_bytes"] = body_bytes
        heads, middle = header_pieces(headers), encode_topic(topic)
        lengths = pack_lengths(whole_bytes)
        return [
            b"%b%b%b%b%b" % (head, body, middle, length, whole)
            for head, body, length, whole in zip(heads, bodies, lengths, wholes, strict=True)
        ]

    def _too_long(self, topic: bytes, length: int) -> IllegalMessage:
        return IllegalMessage(
            f"message for {topic.decode()!r}: properties have {length} bytes with what is added to "
            f"them, at most {self._properties_bytes_max} fit"
        )
