"""Choosing messages by their properties, which only their records have. Pure.

Source: RocketMQ `MessageFilter.isMatchedByCommitLog`.
"""

import struct
from typing import Final, NamedTuple

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.errors import CorruptRecord
from ternmq_model.record.format import (
    BODY_AT,
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    MAGIC_V1,
    decode_record,
)
from ternmq_store.queues.read_request import RecordFilter

FILTER_PROPERTY_BYTES_MAX: Final = 512 << 10
"""One read stops behind so many bytes of properties: what reading them costs at most."""

_HEAD: Final = struct.Struct(">ii28xi")
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_HOST_MORE_BYTES: Final = 12


class FilteredRows(NamedTuple):
    """Result of a filter over messages in their order."""

    rows: Ints
    """Indices of messages that pass."""

    looked_at: int
    """Count of messages looked at, from the first on."""


def properties_at(view: memoryview, position: int, size: int) -> bytes | None:
    """Return the encoded properties of the record at `position`; None when it is not `size` long.

    Nothing else of it is checked.
    """
    end = position + size
    if size < BODY_AT or end > len(view):
        return None
    total_bytes, magic, sys_flag = _HEAD.unpack_from(view, position)
    if magic != MAGIC_V1:
        return _properties_of(view, position, size)
    body = position + BODY_AT
    if sys_flag & FLAG_BORN_HOST_V6:
        body += _HOST_MORE_BYTES
    if sys_flag & FLAG_STORE_HOST_V6:
        body += _HOST_MORE_BYTES
    if total_bytes != size or body >= end:
        return None
    body_bytes: int = _INT.unpack_from(view, body - _INT.size)[0]
    topic = body + body_bytes
    if not body <= topic < end:
        return None
    begin = topic + 1 + view[topic] + _SHORT.size
    if begin > end or _SHORT.unpack_from(view, begin - _SHORT.size)[0] != end - begin:
        return None
    return bytes(view[begin:end])


def _properties_of(view: memoryview, position: int, size: int) -> bytes | None:
    try:
        record = decode_record(view, position, check_crc=False)
    except CorruptRecord:
        return None
    if record is None or record.header.total_bytes != size:
        return None
    return record.properties


def passes(view: memoryview, position: int, size: int, record_filter: RecordFilter) -> bool:
    """Tell whether the record at `position` is wanted; one that cannot be read is not."""
    properties = properties_at(view, position, size)
    return properties is not None and record_filter(properties)


def keep_wanted(
    view: memoryview,
    base: int,
    starts: Ints,
    sizes: Ints,
    record_filter: RecordFilter,
    *,
    messages_max: int,
    bytes_max: int,
) -> FilteredRows:
    """Look at messages, in their order, until enough of them are wanted.

    Args:
        view: The file of the log that holds their records.
        base: Where it begins.
        starts: Where the records begin.
        sizes: How long they are.
        record_filter: Tells which are wanted.
        messages_max: Most that are wanted.
        bytes_max: Their length; the first one may be longer.
    """
    wanted: list[int] = []
    count, left, room = len(starts), bytes_max, FILTER_PROPERTY_BYTES_MAX
    for row, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        if room <= 0:
            count = row
            break
        properties = properties_at(view, start - base, size)
        if properties is None:
            continue
        room -= len(properties)
        if not record_filter(properties):
            continue
        if len(wanted) == messages_max or (wanted and size > left):
            count = row
            break
        wanted.append(row)
        left -= size
    return FilteredRows(np.array(wanted, dtype=np.int64), count)
