"""Headers of many records as numpy arrays, in the byte layout of `record.format`.

A window over a buffer has an item for each byte, as long as a header, so that items overlap. A copy
of the items at the records' begins runs at memory speed (4 ns for each header, measured); unpacking
one record takes a microsecond.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Bytes, Ints, layout_bytes, windows
from ternmq_model.record.format import (
    HOSTS_SHIFT,
    QUEUE_OFFSET_AT,
    RecordHeader,
    header_struct,
    host_flags,
    read_queue_offset,
    read_size,
)

Headers = NDArray[np.void]
"""Array of structures with the big-endian fields of `RecordHeader`."""


def _header_type(born_host_bytes: int, store_host_bytes: int) -> "np.dtype[np.void]":
    fields: list[Any] = [
        ("total_bytes", ">i4"),
        ("magic", ">i4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_at_ms", ">i8"),
        ("born_host", f"V{born_host_bytes}"),
        ("stored_at_ms", ">i8"),
        ("store_host", f"V{store_host_bytes}"),
        ("reconsume_times", ">i4"),
        ("prepared_offset", ">i8"),
        ("body_bytes", ">i4"),
    ]
    return np.dtype(fields)


# Indexed by the two bits of the sys flag, as the scalar layouts are.
_HEADER_TYPES: Final = tuple(_header_type(born, store) for store in (8, 20) for born in (8, 20))
assert all(kind.names == RecordHeader._fields for kind in _HEADER_TYPES)
assert all(
    kind.itemsize == header_struct(hosts << HOSTS_SHIFT).size
    for hosts, kind in enumerate(_HEADER_TYPES)
)

_LONG: Final = np.dtype(">i8")
_SHORT: Final = np.dtype(">i2")
_OFFSETS_AND_SIZES_AT: Final = np.array([[QUEUE_OFFSET_AT], [0]])


def header_type(sys_flag: int) -> "np.dtype[np.void]":
    """Return the structure of a header for the lengths of hosts in `sys_flag`."""
    return _HEADER_TYPES[(sys_flag >> HOSTS_SHIFT) & 3]


def take_headers(
    data: bytes | bytearray | memoryview | Bytes, starts: Ints, kind: "np.dtype[np.void]"
) -> Headers:
    """Return copies of the headers at `starts`. Each must lie inside `data`."""
    return windows(data, kind.itemsize)[starts].view(kind)


def put_headers(target: bytearray | memoryview | Bytes, starts: Ints, headers: Headers) -> None:
    """Write `headers` at `starts` of the writable `target`."""
    born_host, store_host = headers.dtype["born_host"], headers.dtype["store_host"]
    kind = header_type(host_flags(born_host.itemsize, store_host.itemsize))
    items = layout_bytes(headers, kind).view(np.dtype((np.void, kind.itemsize)))
    windows(target, kind.itemsize)[starts] = items


def pieces_of(structures: Headers) -> list[bytes]:
    """Return the bytes of each header, or of another structure."""
    pieces: list[bytes] = structures.view(f"V{structures.dtype.itemsize}").tolist()
    return pieces


def pack_lengths(lengths: Ints) -> list[bytes]:
    """Return the bytes of each length of properties. See `pack_length`."""
    pieces: list[bytes] = lengths.astype(">i2").view("V2").tolist()
    return pieces


def read_lengths(view: Bytes, ends: Ints) -> Ints:
    """Return the lengths of properties, or of V2 topics, that end at `ends`."""
    return windows(view, _SHORT.itemsize)[ends - _SHORT.itemsize].view(_SHORT).astype(np.int64)


def have_sizes_and_offsets(
    view: memoryview, starts: Ints, sizes: Ints, queue_offsets: Ints
) -> bool:
    """Return whether the headers at `starts` have these sizes and queue offsets. It takes 5 µs."""
    window: Ints = np.ndarray((len(view) - _LONG.itemsize + 1,), _LONG, view, strides=(1,))
    try:
        claimed = window[_OFFSETS_AND_SIZES_AT + starts].astype(np.int64)
    except IndexError:
        return False
    differs = claimed[0] ^ queue_offsets
    differs |= (claimed[1] >> 32) ^ sizes
    return not np.count_nonzero(differs)


def has_size_and_offset(view: memoryview, start: int, size: int, queue_offset: int) -> bool:
    """Return whether the header at `start` has that size and queue offset, in scalars."""
    if start < 0 or start + QUEUE_OFFSET_AT + _LONG.itemsize > len(view):
        return False
    return read_size(view, start) == size and read_queue_offset(view, start) == queue_offset
