"""Headers of many records at once, as one numpy array of structures.

A window over a buffer has one item per byte, each as long as a header, overlapping its
neighbours. Taking or putting the items at the records' starts copies headers at memory speed
(4 ns each, measured) where per-record packing takes a microsecond.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Bytes, Ints, layout_bytes

Headers = NDArray[np.void]
"""Structures with the fields of `RecordHeader`, big-endian, as they lie in a record."""


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


_HEADER_TYPES: Final = {
    (born, store): _header_type(born, store) for born in (8, 20) for store in (8, 20)
}
assert _HEADER_TYPES[8, 8].itemsize == 88


def header_type(born_host_bytes: int, store_host_bytes: int) -> "np.dtype[np.void]":
    """Return the structure of a header whose hosts take 8 (IPv4) or 20 bytes (IPv6)."""
    return _HEADER_TYPES[born_host_bytes, store_host_bytes]


def take_headers(
    data: bytes | bytearray | memoryview | Bytes, starts: Ints, kind: "np.dtype[np.void]"
) -> Headers:
    """Return copies of the headers at `starts`; each must lie wholly in `data`."""
    return _window(data, kind)[starts].view(kind)


def put_headers(target: bytearray | memoryview | Bytes, starts: Ints, headers: Headers) -> None:
    """Write `headers` at `starts` of the writable `target`."""
    kind = header_type(headers.dtype["born_host"].itemsize, headers.dtype["store_host"].itemsize)
    whole = layout_bytes(headers, kind).view(np.dtype((np.void, kind.itemsize)))
    _window(target, kind)[starts] = whole


def _window(
    data: bytes | bytearray | memoryview | Bytes, kind: "np.dtype[np.void]"
) -> NDArray[np.void]:
    size = kind.itemsize
    return np.ndarray(
        (max(len(data) - size + 1, 0),), np.dtype((np.void, size)), data, strides=(1,)
    )
