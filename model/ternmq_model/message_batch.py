"""Decoding of record batches with numpy, for pulls of a queue."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints
from ternmq_model.crc32 import crc32
from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.record.checksum import crc31_of_ranges
from ternmq_model.record.fields import cut_out
from ternmq_model.record.format import (
    CRC31_MASK,
    FLAG_COMPRESSED,
    FLAG_HOSTS_MASK,
    MAGIC_V1,
    OVERHEAD_BYTES,
    crc31,
    decode_record,
    header_struct,
    read_header,
    read_physical_offset,
    read_sys_flag,
)
from ternmq_model.record.header_arrays import header_type, take_headers
from ternmq_model.stored_message import PlainMessage, StoredMessage

_COPIED_BYTES_MAX: Final = 4096
"""Mean length of records up to which bodies are copied with the decoding: one copy at once costs
less than a view for the checksum and a copy at the first use. Longer bodies would need twice the
memory, although a listener may never read them."""


def decode_records(
    data: bytes,
    sizes: NDArray[np.int32],
    queue: MessageQueue,
    *,
    check_crc: bool = True,
) -> list[StoredMessage]:
    """Return the messages of the contiguous records in `data`, in their order.

    Args:
        data: Records of one queue. The messages refer to it.
        sizes: Length of each record. Their sum must be that of `data`.
        queue: Queue of the messages.
        check_crc: True = the checksums of the bodies are verified (0.35 µs a KiB).

    Raises:
        CorruptRecord: A record is corrupt. No message of the batch is returned.
    """
    if not len(sizes):
        return []
    if len(sizes) == 1 and (only := _decode_one(data, int(sizes[0]), queue, check_crc=check_crc)):
        return only
    lengths = sizes.astype(np.int64)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    if int(ends[-1]) != len(data) or int(lengths.min()) < OVERHEAD_BYTES:
        raise CorruptRecord(PhysicalOffset(0), "record sizes do not add up to the records")
    flags = read_sys_flag(data)
    kind = header_type(flags)
    headers = (
        take_headers(data, starts, kind) if int(starts[-1]) + kind.itemsize <= len(data) else None
    )
    if (
        headers is None
        or not (
            (headers["magic"] == MAGIC_V1)
            & (headers["total_bytes"] == lengths)
            & ((headers["sys_flag"] & FLAG_HOSTS_MASK) == (flags & FLAG_HOSTS_MASK))
            & (headers["body_bytes"] >= 0)
            & (headers["body_bytes"] <= lengths - kind.itemsize - 4)
        ).all()
    ):
        # With several layouts, or a corrupt record, decode one by one to name the record.
        return _decode_each(data, starts, ends, queue, check_crc=check_crc)
    bodies: Ints = starts + kind.itemsize
    body_ends = bodies + headers["body_bytes"]
    copies: list[bytes] | None = None
    is_plain = not (headers["sys_flag"] & FLAG_COMPRESSED).any()
    if is_plain and len(data) <= len(sizes) * _COPIED_BYTES_MAX:
        copies = cut_out(data, bodies, body_ends)
    if check_crc:
        if copies is None:
            found = crc31_of_ranges(data, bodies, body_ends)
        else:
            found = np.fromiter(map(crc32, copies), np.int64, len(copies)) & CRC31_MASK
        differs = (found != headers["body_crc"]) & (headers["body_bytes"] > 0)
        if differs.any():
            at = PhysicalOffset(int(headers["physical_offset"][differs.argmax()]))
            raise CorruptRecord(at, "the body's checksum differs")
    offsets, begins = headers["queue_offset"].tolist(), starts.tolist()
    if copies is not None:
        return PlainMessage.all_at(data, begins, copies, queue, offsets)
    return [
        StoredMessage.at(data, begin, queue, offset)
        for begin, offset in zip(begins, offsets, strict=True)
    ]


def _decode_one(
    data: bytes, size: int, queue: MessageQueue, *, check_crc: bool
) -> list[StoredMessage] | None:
    """Return the message of a sound record, in a third of the time; None = it is not sound."""
    if not OVERHEAD_BYTES <= size == len(data):
        return None
    body_at = header_struct(read_sys_flag(data)).size
    if size < body_at:
        return None
    header = read_header(data)
    body_end = body_at + header.body_bytes
    if (
        header.magic != MAGIC_V1
        or header.total_bytes != size
        or not body_at <= body_end <= size - 4
        or (
            check_crc
            and header.body_bytes
            and crc31(memoryview(data)[body_at:body_end]) != header.body_crc
        )
    ):
        return None
    if header.sys_flag & FLAG_COMPRESSED or size > _COPIED_BYTES_MAX:
        return [StoredMessage.at(data, 0, queue, header.queue_offset)]
    bodies = [data[body_at:body_end]]
    return PlainMessage.all_at(data, [0], bodies, queue, [header.queue_offset])


def _decode_each(
    data: bytes, starts: Ints, ends: Ints, queue: MessageQueue, *, check_crc: bool
) -> list[StoredMessage]:
    messages: list[StoredMessage] = []
    for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
        record = decode_record(data[begin:end], check_crc=check_crc)
        if record is None or record.header.total_bytes != end - begin:
            raise CorruptRecord(
                read_physical_offset(data, begin), "its size differs from its batch's"
            )
        messages.append(StoredMessage.at(data, begin, queue, record.header.queue_offset))
    return messages
