"""Decoding of record batches with numpy, for pulls of a queue."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ternmq_model.crc32 import crc32
from ternmq_model.queue import MessageQueue
from ternmq_model.record.checksum import crc31_of_ranges
from ternmq_model.record.fields import cut_out
from ternmq_model.record.format import (
    CRC31_MASK,
    FLAG_COMPRESSED,
    MAGIC_V1,
    OVERHEAD_BYTES,
    crc31,
    header_struct,
    properties_behind,
    read_header,
    read_length,
    read_sys_flag,
)
from ternmq_model.record.pulled_records import check_bodies, lay_out_pulled
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
    layout = lay_out_pulled(data, sizes)
    headers = layout.headers
    copies: list[bytes] | None = None
    is_plain = not (headers["sys_flag"] & FLAG_COMPRESSED).any()
    if is_plain and len(data) <= len(sizes) * _COPIED_BYTES_MAX:
        copies = cut_out(data, layout.bodies, layout.body_ends)
    if check_crc:
        if copies is None:
            found = crc31_of_ranges(data, layout.bodies, layout.body_ends)
        else:
            found = np.fromiter(map(crc32, copies), np.int64, len(copies)) & CRC31_MASK
        check_bodies(layout, found)
    offsets, begins = headers["queue_offset"].tolist(), layout.starts.tolist()
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
        or not (properties_at := properties_behind(data, body_end, MAGIC_V1)) - body_end >= 4
        or properties_at > size
        or properties_at + read_length(data, properties_at) != size
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
