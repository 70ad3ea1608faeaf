"""Types of numpy arrays, and their bytes in files and on the wire. Pure."""

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

INT32_BYTES: Final = 4
"""Length of a number in an int32 array on the wire, bytes."""

_ASCII_END: Final = 0x80

_BITS_MAX: Final = 48
"""Most codes of one bit each whose sum over the values of a row is exact."""

_INT32: Final = np.dtype("<i4")
_INT64: Final = np.dtype("<i8")


def read_int32s(data: bytes) -> "NDArray[np.int32]":
    """Return the array in a field of the wire contract: contiguous little-endian int32."""
    return np.frombuffer(data, dtype=_INT32)


def read_int64s(data: bytes) -> Ints:
    """Return the array in a field of the wire contract: contiguous little-endian int64."""
    return np.frombuffer(data, dtype=_INT64)


def read_int64(data: bytes) -> int:
    """Return the number in an int64 array of one. See `read_int64s`."""
    return int.from_bytes(data, "little", signed=True)


def pack_int32(value: int) -> bytes:
    """Return an int32 array of one number. See `pack_int32s`."""
    return value.to_bytes(INT32_BYTES, "little", signed=True)


def pack_int32s(values: ArrayLike) -> bytes:
    """Return the int32 array of a field of the wire contract."""
    return np.asarray(values, dtype=_INT32).tobytes()


def pack_int64s(values: ArrayLike) -> bytes:
    """Return the int64 array of a field of the wire contract."""
    return np.asarray(values, dtype=_INT64).tobytes()


def layout_bytes(items: "NDArray[Any]", layout: "np.dtype[Any]") -> Bytes:
    """Return the bytes of contiguous items in the `layout` of a file.

    The byte order of an array depends on its origin: numpy's `concatenate` and `where` return
    numbers in the machine's order. So this function sets the order of the bytes.
    """
    return np.ascontiguousarray(items, dtype=layout).view(np.uint8)


def windows(data: bytes | bytearray | memoryview | Bytes, length: int) -> NDArray[np.void]:
    """Return a view with an item for each byte of `data`: the `length` bytes, at least 1, from it.

    Items at indices are copied, and written if `data` is writable, without an object for each.
    """
    kind = np.dtype((np.void, length))
    return np.ndarray((max(len(data) - length + 1, 0),), kind, data, strides=(1,))


def cut_equal(data: bytes | memoryview | Bytes, starts: Ints, length: int) -> Bytes:
    """Return copies of the `length` bytes of `data` from each of `starts`, as rows."""
    if not length:
        return np.zeros((len(starts), 0), dtype=np.uint8)
    return windows(data, length)[starts].view(np.uint8).reshape(len(starts), length)


def is_ascii(data: Bytes) -> bool:
    """Return whether all bytes are ASCII characters, which are valid UTF-8."""
    return not data.size or int(data.max()) < _ASCII_END


def rows_with_repeats(rows: Ints, codes: Ints, count: int) -> list[int]:
    """Return the rows in which a code occurs more than once, ascending.

    Args:
        rows: Row of each code, ascending.
        codes: Codes from 0 on.
        count: Number of different codes.
    """
    if not len(codes):
        return []
    if count <= _BITS_MAX:
        firsts = np.flatnonzero(np.diff(rows, prepend=-1))
        bits = np.int64(1) << codes
        repeats = np.add.reduceat(bits, firsts) != np.bitwise_or.reduceat(bits, firsts)
        found: list[int] = rows[firsts[repeats]].tolist()
        return found
    keys = np.sort(rows * count + codes)
    repeated: list[int] = np.unique(keys[1:][keys[1:] == keys[:-1]] // count).tolist()
    return repeated
