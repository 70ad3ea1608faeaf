"""The commit log record: the one place that knows its bytes (docs/formats/commit-log.md).

Producers build records, brokers check and complete them, the disk keeps them, consumers read
them: the same bytes all the way, so nothing is converted twice. `batch` does the same
for many records at once.

    total size 4 | magic 4 | body crc 4 | queue id 4 | flag 4 | queue offset 8 | physical offset 8
    sys flag 4 | born time 8 | born host 8/20 | store time 8 | store host 8/20 | reconsume times 4
    prepared offset 8 | body length 4 | body | topic length 1 (V2: 2) | topic
    properties length 2 | properties

Integers are big-endian and signed. A host is an address of 4 or 16 bytes and a port of 4; two
bits of the sys flag say which.

Source: RocketMQ `MessageExtEncoder`, `MessageDecoder`, `CommitLog`.
"""

import struct
import zlib
from typing import Final, NamedTuple

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset, QueueOffset

MAGIC_V1: Final = 0xDAA320A7 - (1 << 32)
MAGIC_V2: Final = 0xDAA320AB - (1 << 32)
MAGIC_BLANK: Final = 0xCBD43194 - (1 << 32)

FLAG_COMPRESSED: Final = 0x1
FLAG_MULTI_TAGS: Final = 0x2
FLAG_TRANSACTION_MASK: Final = 0xC
FLAG_PREPARED: Final = 0x4
FLAG_COMMIT: Final = 0x8
FLAG_ROLLBACK: Final = 0xC
FLAG_BORN_HOST_V6: Final = 0x10
FLAG_STORE_HOST_V6: Final = 0x20
FLAG_COMPRESSION_MASK: Final = 0x701
"""Flags that a producer may set: compressed, and with what."""

BODY_BYTES_MAX: Final = 4 << 20
PROPERTIES_BYTES_MAX: Final = 32_767
RECORD_BYTES_MAX: Final = BODY_BYTES_MAX + 65_536

ATOMIC_BATCH_BYTES_MAX: Final = 4 << 20
"""Longest batch, its records in store format, that is stored together or not at all."""

SIZE_BYTES: Final = 4
"""A record, a blank one too, begins with its size in so many bytes, big-endian."""

BLANK_BYTES: Final = 8
"""Bytes that a blank record writes; also the room that a file always keeps for it."""

BODY_AT: Final = 88
"""Position of the body when both hosts are IPv4; 12 bytes later for each IPv6 host."""

OVERHEAD_BYTES: Final = 91
"""Length of a V1 record with IPv4 hosts and nothing in it."""

_HEADERS: Final = tuple(
    struct.Struct(f">iiiiiqqiq{born}sq{store}siqi") for store in (8, 20) for born in (8, 20)
)
_BLANK: Final = struct.Struct(">ii")
_SHORT: Final = struct.Struct(">h")
_SYS_FLAG: Final = struct.Struct(">i")
_SYS_FLAG_AT: Final = 36
assert [header.size for header in _HEADERS] == [BODY_AT, BODY_AT + 12, BODY_AT + 12, BODY_AT + 24]


class RecordHeader(NamedTuple):
    """The fixed part of a record."""

    total_bytes: int
    """Length of the whole record."""

    magic: int
    """Kind of the record."""

    body_crc: int
    """CRC-32 of the body as stored."""

    queue_id: int
    """Number of the queue on its broker."""

    flag: int
    """Number of the application's own."""

    queue_offset: QueueOffset
    """Place in the queue, counted in messages."""

    physical_offset: PhysicalOffset
    """Place in the commit log, counted in bytes."""

    sys_flag: int
    """Bits: compression, transaction state, lengths of the hosts."""

    born_at_ms: int
    """Time of sending by the producer's clock, Unix milliseconds."""

    born_host: bytes
    """The producer's address: 4 or 16 bytes of IP address and 4 of the port, big-endian."""

    stored_at_ms: int
    """Time of storing by the broker's clock, Unix milliseconds."""

    store_host: bytes
    """The broker's address, in the same form."""

    reconsume_times: int
    """Number of times that consumers sent it back."""

    prepared_offset: int
    """Place of a transaction's half message in the commit log; else 0."""

    body_bytes: int
    """Length of the body as stored."""


class Record(NamedTuple):
    """One record, taken apart. The parts are copies."""

    header: RecordHeader
    body: bytes
    topic: bytes
    properties: bytes


def body_crc(body: bytes | memoryview) -> int:
    """Return the checksum a record keeps of its body: CRC-32 without its top bit; 0 if empty."""
    return zlib.crc32(body) & 0x7FFFFFFF


def header_struct(sys_flag: int) -> struct.Struct:
    """Return the layout of the fixed part for the hosts that `sys_flag` announces."""
    return _HEADERS[(sys_flag >> 4) & 3]


def host_flags(born_host: bytes, store_host: bytes) -> int:
    """Return the bits of the sys flag that announce the hosts' lengths."""
    return (FLAG_BORN_HOST_V6 if len(born_host) == 20 else 0) | (
        FLAG_STORE_HOST_V6 if len(store_host) == 20 else 0
    )


def encode_record(
    *,
    topic: bytes,
    queue_id: int,
    body: bytes,
    properties: bytes,
    born_at_ms: int,
    born_host: bytes,
    store_host: bytes,
    flag: int = 0,
    sys_flag: int = 0,
    queue_offset: int = 0,
    physical_offset: int = 0,
    stored_at_ms: int = 0,
    reconsume_times: int = 0,
    prepared_offset: int = 0,
) -> bytes:
    """Return a V1 record. The bits of `sys_flag` for the hosts are set from their lengths.

    The caller has checked sizes: topic at most 127 bytes, properties at most 32,767.
    """
    sys_flag |= host_flags(born_host, store_host)
    layout = header_struct(sys_flag)
    total = layout.size + len(body) + 1 + len(topic) + 2 + len(properties)
    head = layout.pack(
        total,
        MAGIC_V1,
        zlib.crc32(body) & 0x7FFFFFFF,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_at_ms,
        born_host,
        stored_at_ms,
        store_host,
        reconsume_times,
        prepared_offset,
        len(body),
    )
    return b"".join(
        (head, body, bytes((len(topic),)), topic, _SHORT.pack(len(properties)), properties)
    )


def encode_blank(bytes_left: int) -> bytes:
    """Return the 8 bytes that say: nothing more in this file, `bytes_left` to its end."""
    return _BLANK.pack(bytes_left, MAGIC_BLANK)


def decode_record(
    buffer: bytes | memoryview,
    position: int = 0,
    *,
    at: PhysicalOffset | None = None,
    check_crc: bool = True,
) -> Record | None:
    """Check the record at `buffer[position:]` and return it; None for a blank record.

    Args:
        buffer: Bytes of a log, or records back to back. Not kept.
        position: Where the record begins in `buffer`.
        at: The physical offset it must claim. None = any: for records taken out of the log.
        check_crc: Whether to verify the body's checksum.

    Raises:
        CorruptRecord: The bytes are torn, foreign, stale or zeros. Nothing from `position` on
            can be trusted.
    """
    where = PhysicalOffset(position) if at is None else at
    left = len(buffer) - position
    if left < BLANK_BYTES:
        raise CorruptRecord(where, f"only {left} bytes are left")
    total, magic = _BLANK.unpack_from(buffer, position)
    if magic == MAGIC_BLANK:
        return None
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise CorruptRecord(where, f"magic is {magic & 0xFFFFFFFF:#010x}")
    if not OVERHEAD_BYTES <= total <= left:
        raise CorruptRecord(where, f"total size {total} does not fit")
    layout = header_struct(_SYS_FLAG.unpack_from(buffer, position + _SYS_FLAG_AT)[0])
    if layout.size > total:
        raise CorruptRecord(where, f"total size {total} does not hold the header")
    header = RecordHeader._make(layout.unpack_from(buffer, position))
    if at is not None and header.physical_offset != at:
        raise CorruptRecord(where, f"record says it is at {header.physical_offset}")
    body_at = position + layout.size
    topic_at = body_at + header.body_bytes + (1 if magic == MAGIC_V1 else 2)
    end = position + total
    if header.body_bytes < 0 or topic_at + 2 > end:
        raise CorruptRecord(where, f"body length {header.body_bytes} does not fit")
    topic_bytes = (
        buffer[topic_at - 1] if magic == MAGIC_V1 else _SHORT.unpack_from(buffer, topic_at - 2)[0]
    )
    properties_at = topic_at + topic_bytes + 2
    if topic_bytes < 1 or properties_at > end:
        raise CorruptRecord(where, f"topic length {topic_bytes} does not fit")
    properties_bytes = _SHORT.unpack_from(buffer, properties_at - 2)[0]
    if properties_bytes < 0 or properties_at + properties_bytes != end:
        raise CorruptRecord(where, "sizes do not add up")
    body = bytes(buffer[body_at : body_at + header.body_bytes])
    if check_crc and body and zlib.crc32(body) & 0x7FFFFFFF != header.body_crc:
        raise CorruptRecord(where, "the body's checksum differs")
    return Record(
        header,
        body,
        bytes(buffer[topic_at : topic_at + topic_bytes]),
        bytes(buffer[properties_at:end]),
    )
