"""Byte layout of commit log records (docs/formats/commit-log.md).

Producers build records, brokers check and complete them, the disk stores them, consumers read
them: the same bytes all the way, so nothing is converted twice. No module but this one and
`header_arrays`, which reads the headers of many records, knows where a field lies or in which
byte order.

    total size 4 | magic 4 | body crc 4 | queue id 4 | flag 4 | queue offset 8 | physical offset 8
    sys flag 4 | born time 8 | born host 8/20 | store time 8 | store host 8/20 | reconsume times 4
    prepared offset 8 | body length 4 | body | topic length 1 (V2: 2) | topic
    properties length 2 | properties

Integers are big-endian and signed. A host is an address of 4 or 16 bytes and a port of 4; two
bits of the sys flag say which.

Source: RocketMQ `MessageExtEncoder`, `MessageDecoder`, `CommitLog`.
"""

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from ternmq_model.crc32 import crc32
from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset, QueueOffset

MAGIC_V1: Final = 0xDAA320A7 - (1 << 32)
MAGIC_V2: Final = 0xDAA320AB - (1 << 32)
MAGIC_BLANK: Final = 0xCBD43194 - (1 << 32)

FLAG_COMPRESSED: Final = 0x1
FLAG_TRANSACTION_MASK: Final = 0xC
FLAG_PREPARED: Final = 0x4
FLAG_COMMIT: Final = 0x8
FLAG_ROLLBACK: Final = 0xC
FLAG_BORN_HOST_V6: Final = 0x10
FLAG_STORE_HOST_V6: Final = 0x20
FLAG_HOSTS_MASK: Final = FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6
FLAG_COMPRESSION_MASK: Final = 0x701
"""Flags that a producer may set: compressed, and with what."""

BODY_BYTES_MAX: Final = 4 << 20
PROPERTIES_BYTES_MAX: Final = 32_767
RECORD_BYTES_MAX: Final = BODY_BYTES_MAX + 65_536

ATOMIC_BATCH_BYTES_MAX: Final = 4 << 20
"""Longest batch, its records in store format, that is stored together or not at all."""

SIZE_BYTES: Final = 4
"""Length of the size with which every record begins, a blank one too."""

LENGTH_BYTES: Final = 2
"""Length of the length of properties."""

BLANK_BYTES: Final = 8
"""Bytes that a blank record writes; every file of the log reserves them behind its last record."""

BODY_AT: Final = 88
"""Position of the body when both hosts are IPv4; 12 bytes later for each IPv6 host."""

HEADER_BYTES_MAX: Final = BODY_AT + 24
"""Length of the longest header, which has two IPv6 hosts."""

OVERHEAD_BYTES: Final = BODY_AT + 3
"""Length of a V1 record with IPv4 hosts and no topic, body and properties."""

OVERHEAD_BYTES_MAX: Final = HEADER_BYTES_MAX + 3
"""Length of a V1 record with IPv6 hosts and no topic, body and properties."""


CRC31_MASK: Final = 0x7FFFFFFF
"""Bits of a CRC-32 that a record keeps."""


def crc31(data: bytes | memoryview) -> int:
    """Return the CRC-32 of `data` without its top bit: all checksums of RocketMQ's records."""
    return crc32(data) & CRC31_MASK


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


# Indexed by the two bits of the sys flag.
_HEADERS: Final[tuple[struct.Struct, ...]] = tuple(
    struct.Struct(f">iiiiiqqiq{born}sq{store}siqi") for store in (8, 20) for born in (8, 20)
)
assert [_HEADERS[0].size, _HEADERS[3].size] == [BODY_AT, HEADER_BYTES_MAX]

_HEADER_BYTES: Final[tuple[int, ...]] = tuple(each.size for each in _HEADERS)
_START: Final = struct.Struct(">ii")
_START_TO_SYS_FLAG: Final = struct.Struct(">ii28xi")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_SHORT: Final = struct.Struct(">h")
_MAGIC_AT: Final = 4
_QUEUE_ID_AT: Final = 12
QUEUE_OFFSET_AT: Final = 20
"""Position of the queue offset."""

_PHYSICAL_OFFSET_AT: Final = 28
_SYS_FLAG_AT: Final = 36
FLAGS_BYTE_AT: Final = _SYS_FLAG_AT + 3
"""Position of the byte of the sys flag that has the bits of the hosts and of compression."""

_BORN_HOST_AT: Final = 48
_STORED_AT: Final = 56
"""Position of the store time behind an IPv4 born host."""

_OFFSETS: Final = struct.Struct(">qq")
_HOSTS: Final = tuple(struct.Struct(f">{born}sq{store}s") for store in (8, 20) for born in (8, 20))
"""Hosts and store time, indexed by the two bits of the sys flag."""

HOSTS_SHIFT: Final = 4
"""Position of the two bits of the sys flag that say how long the hosts are."""

_HOST_MORE_BYTES: Final = 12
"""Bytes by which an IPv6 host is longer than an IPv4 one."""

_MAGICS: Final = tuple(_INT.pack(magic) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))

OFFSETS_BYTES: Final = _PHYSICAL_OFFSET_AT + _LONG.size
"""Length of a header up to and with its physical offset, which `claimed_offset` needs."""

read_start: Final[Callable[[bytes | memoryview, int], tuple[int, int]]] = _START.unpack_from
"""Return total size and magic of the record at a position."""

_IPV4_FIELDS: Final = struct.Struct(">iii16xqi32xiqi")
assert _IPV4_FIELDS.size == BODY_AT

read_ipv4_fields: Final[
    Callable[[bytes | memoryview], tuple[int, int, int, int, int, int, int, int]]
] = _IPV4_FIELDS.unpack_from
"""Return fields of a header with IPv4 hosts, faster than `read_header`: total size, magic, checksum
of the body, physical offset, sys flag, reconsume times, prepared offset and length of the body."""

pack_length: Final = _SHORT.pack
"""Return the bytes of the length of properties."""


def header_struct(sys_flag: int) -> struct.Struct:
    """Return the layout of the fixed part for the hosts that `sys_flag` announces."""
    return _HEADERS[(sys_flag >> HOSTS_SHIFT) & 3]


def host_flags(born_host_bytes: int, store_host_bytes: int) -> int:
    """Return the bits of the sys flag that announce hosts of 8 (IPv4) or 20 bytes (IPv6)."""
    return (FLAG_BORN_HOST_V6 if born_host_bytes == 20 else 0) | (
        FLAG_STORE_HOST_V6 if store_host_bytes == 20 else 0
    )


def encode_topic(topic: bytes, magic: int = MAGIC_V1) -> bytes:
    """Return a topic behind its length, as it follows the body."""
    return (bytes((len(topic),)) if magic == MAGIC_V1 else pack_length(len(topic))) + topic


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
    sys_flag |= host_flags(len(born_host), len(store_host))
    layout = header_struct(sys_flag)
    total = layout.size + len(body) + 1 + len(topic) + 2 + len(properties)
    head = layout.pack(
        total,
        MAGIC_V1,
        crc31(body),
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
        (head, body, bytes((len(topic),)), topic, pack_length(len(properties)), properties)
    )


def complete_header(
    target: bytearray | memoryview,
    sys_flag: int,
    *,
    queue_offset: int,
    physical_offset: int,
    born_host: bytes | None,
    stored_at_ms: int,
    store_host: bytes,
) -> None:
    """Write the fields that only a broker sets into the record at the begin of `target`.

    `born_host` None = the record has it already. `header_arrays` completes many records.
    """
    _OFFSETS.pack_into(target, QUEUE_OFFSET_AT, queue_offset, physical_offset)
    hosts = _HOSTS[(sys_flag >> HOSTS_SHIFT) & 3]
    if born_host is None:
        born_host = hosts.unpack_from(target, _BORN_HOST_AT)[0]
    hosts.pack_into(target, _BORN_HOST_AT, born_host, stored_at_ms, store_host)


def encode_blank(bytes_left: int) -> bytes:
    """Return the 8 bytes of the blank record that ends a file `bytes_left` further on."""
    return _START.pack(bytes_left, MAGIC_BLANK)


def is_blank(data: bytes | memoryview, position: int, bytes_left: int) -> bool:
    """Return whether a blank record at `position` ends its file `bytes_left` further on."""
    return data[position : position + BLANK_BYTES] == encode_blank(bytes_left)


def read_size(data: bytes | memoryview, position: int = 0) -> int:
    """Return the size that the record at `position` claims; 0 where `data` has ended."""
    return int.from_bytes(data[position : position + SIZE_BYTES], "big")


def read_sys_flag(data: bytes | memoryview, position: int = 0) -> int:
    """Return the sys flag of the record at `position`."""
    flags: int = _INT.unpack_from(data, position + _SYS_FLAG_AT)[0]
    return flags


def read_queue_id(data: bytes | memoryview, position: int = 0) -> int:
    """Return the queue id of the record at `position`."""
    queue_id: int = _INT.unpack_from(data, position + _QUEUE_ID_AT)[0]
    return queue_id


def read_queue_offset(data: bytes | memoryview, position: int = 0) -> QueueOffset:
    """Return the queue offset of the record at `position`."""
    return QueueOffset(_LONG.unpack_from(data, position + QUEUE_OFFSET_AT)[0])


def read_physical_offset(data: bytes | memoryview, position: int = 0) -> PhysicalOffset:
    """Return the physical offset that the record at `position` claims."""
    return PhysicalOffset(_LONG.unpack_from(data, position + _PHYSICAL_OFFSET_AT)[0])


def read_stored_at_ms(data: bytes | memoryview, position: int = 0) -> int:
    """Return the store time of the record at `position`."""
    at = position + _STORED_AT
    if data[position + FLAGS_BYTE_AT] & FLAG_BORN_HOST_V6:
        at += _HOST_MORE_BYTES
    stored_at_ms: int = _LONG.unpack_from(data, at)[0]
    return stored_at_ms


def read_header(data: bytes | memoryview, position: int = 0) -> RecordHeader:
    """Return the header at `position`, which must lie in `data` completely."""
    flags: int = _INT.unpack_from(data, position + _SYS_FLAG_AT)[0]
    return RecordHeader._make(_HEADERS[(flags >> HOSTS_SHIFT) & 3].unpack_from(data, position))


def find_header(data: bytes | memoryview, position: int = 0) -> RecordHeader | None:
    """Return the header at `position`; None when no V1 or V2 header lies there completely."""
    left = len(data) - position
    if left < BODY_AT or data[position + _MAGIC_AT : position + BLANK_BYTES] not in _MAGICS[:2]:
        return None
    is_complete = left >= header_struct(read_sys_flag(data, position)).size
    return read_header(data, position) if is_complete else None


def claimed_offset(head: bytes | memoryview) -> PhysicalOffset | None:
    """Return the physical offset of the record that begins with `head`; None if none begins there.

    The first `OFFSETS_BYTES` of a record suffice.
    """
    if len(head) < OFFSETS_BYTES or head[_MAGIC_AT:BLANK_BYTES] not in _MAGICS[:2]:
        return None
    return read_physical_offset(head)


def possible_starts(data: bytes) -> list[int]:
    """Return the ascending positions at which the magic of a record, blank or not, would lie."""
    found: list[int] = []
    for magic in _MAGICS:
        at = data.find(magic, _MAGIC_AT)
        while at >= 0:
            found.append(at - _MAGIC_AT)
            at = data.find(magic, at + 1)
    return sorted(found)


def read_properties(data: memoryview, position: int, size: int) -> bytes | None:
    """Return the encoded properties of the record at `position`; None when it is not `size` long.

    Its other fields are not checked.
    """
    end = position + size
    if size < BODY_AT or end > len(data):
        return None
    # Filters call this function for every record: calls of helpers would cost 20 %, measured.
    total_bytes, magic, flags = _START_TO_SYS_FLAG.unpack_from(data, position)
    if total_bytes != size or magic not in (MAGIC_V1, MAGIC_V2):
        return None
    hosts: int = (flags >> HOSTS_SHIFT) & 3
    body = position + _HEADER_BYTES[hosts]
    if body >= end:
        return None
    topic: int = body + _INT.unpack_from(data, body - 4)[0] + (1 if magic == MAGIC_V1 else 2)
    if not body < topic <= end:
        return None
    topic_bytes = data[topic - 1]
    if magic != MAGIC_V1:
        topic_bytes = int(_SHORT.unpack_from(data, topic - 2)[0])
    begin = topic + topic_bytes + 2
    if topic_bytes < 0 or begin > end or _SHORT.unpack_from(data, begin - 2)[0] != end - begin:
        return None
    return bytes(data[begin:end])


def _topic_bytes(data: bytes | memoryview, topic_at: int, magic: int) -> int:
    if magic == MAGIC_V1:
        return data[topic_at - 1]
    length: int = _SHORT.unpack_from(data, topic_at - _SHORT.size)[0]
    return length


def read_length(data: bytes | memoryview, properties_at: int) -> int:
    """Return the length of the properties that begin at `properties_at`."""
    length: int = _SHORT.unpack_from(data, properties_at - _SHORT.size)[0]
    return length


def properties_behind(data: bytes | memoryview, body_end: int, magic: int) -> int:
    """Return where the properties begin of a sound record whose body ends at `body_end`."""
    topic_at = body_end + (1 if magic == MAGIC_V1 else 2)
    return topic_at + _topic_bytes(data, topic_at, magic) + _SHORT.size


def with_properties(
    data: bytes, start: int, properties_at: int, properties: bytes
) -> tuple[bytes, bytes, bytes, bytes]:
    """Return the pieces of the record at `start` with other properties, which began there."""
    size = _INT.pack(properties_at - start + len(properties))
    front = data[start + SIZE_BYTES : properties_at - _SHORT.size]
    return size, front, pack_length(len(properties)), properties


def decode_record(
    buffer: bytes | memoryview,
    position: int = 0,
    *,
    at: PhysicalOffset | None = None,
    check_crc: bool = True,
) -> Record | None:
    """Check the record at `buffer[position:]` and return it; None = a blank record.

    Args:
        buffer: Bytes of a log, or contiguous records. The result does not refer to it.
        position: Begin of the record in `buffer`.
        at: Expected physical offset. None = any, for records outside a log.
        check_crc: True = the checksum of the body is verified.

    Raises:
        CorruptRecord: The bytes are torn, foreign, stale or zeros. Nothing from `position` on
            can be trusted.
    """
    where = PhysicalOffset(position) if at is None else at
    left = len(buffer) - position
    if left < BLANK_BYTES:
        raise CorruptRecord(where, f"only {left} bytes are left")
    total, magic = _START.unpack_from(buffer, position)
    if magic == MAGIC_BLANK:
        return None
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise CorruptRecord(where, f"magic is {magic & 0xFFFFFFFF:#010x}")
    if not OVERHEAD_BYTES <= total <= left:
        raise CorruptRecord(where, f"total size {total} does not fit")
    layout = header_struct(read_sys_flag(buffer, position))
    if layout.size > total:
        raise CorruptRecord(where, f"total size {total} is smaller than the header")
    header = RecordHeader._make(layout.unpack_from(buffer, position))
    if at is not None and header.physical_offset != at:
        raise CorruptRecord(where, f"the record contains the offset {header.physical_offset}")
    body_at = position + layout.size
    topic_at = body_at + header.body_bytes + (1 if magic == MAGIC_V1 else 2)
    end = position + total
    if header.body_bytes < 0 or topic_at + 2 > end:
        raise CorruptRecord(where, f"body length {header.body_bytes} does not fit")
    topic_bytes = _topic_bytes(buffer, topic_at, magic)
    properties_at = topic_at + topic_bytes + 2
    if topic_bytes < 1 or properties_at > end:
        raise CorruptRecord(where, f"topic length {topic_bytes} does not fit")
    properties_bytes = _SHORT.unpack_from(buffer, properties_at - 2)[0]
    if properties_bytes < 0 or properties_at + properties_bytes != end:
        raise CorruptRecord(where, "sizes do not add up")
    body = bytes(buffer[body_at : body_at + header.body_bytes])
    if check_crc and body and crc31(body) != header.body_crc:
        raise CorruptRecord(where, "the body's checksum differs")
    return Record(
        header,
        body,
        bytes(buffer[topic_at : topic_at + topic_bytes]),
        bytes(buffer[properties_at:end]),
    )
