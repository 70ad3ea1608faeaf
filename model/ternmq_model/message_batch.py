"""Decoding of record batches with numpy, for pulls of a queue."""

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints
from ternmq_model.crc32 import crc32
from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import (
    CRC31_MASK,
    FLAG_HOSTS_MASK,
    MAGIC_V1,
    OVERHEAD_BYTES,
    decode_record,
    read_physical_offset,
    read_sys_flag,
)
from ternmq_model.record.header_arrays import header_type, take_headers
from ternmq_model.stored_message import StoredMessage, stored_message_at


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
    begins, ends_list = bodies.tolist(), body_ends.tolist()
    if check_crc:
        _check_bodies(data, begins, ends_list, headers["body_crc"].tolist(), starts)
    return [
        StoredMessage(data, begin, body, body_end, end, queue, offset)
        for begin, body, body_end, end, offset in zip(
            starts.tolist(),
            begins,
            ends_list,
            ends.tolist(),
            headers["queue_offset"].tolist(),
            strict=True,
        )
    ]


def _check_bodies(
    data: bytes, begins: list[int], ends: list[int], expected: list[int], starts: Ints
) -> None:
    view = memoryview(data)
    found = [crc32(view[begin:end]) & CRC31_MASK for begin, end in zip(begins, ends, strict=True)]
    if found != expected:
        for at, crc, wanted, begin, end in zip(
            starts.tolist(), found, expected, begins, ends, strict=True
        ):
            if crc != wanted and end > begin:
                raise CorruptRecord(read_physical_offset(data, at), "the body's checksum differs")


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
        messages.append(stored_message_at(record.header, data, begin, queue))
    return messages
