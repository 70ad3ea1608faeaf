"""The checksum of a whole record: a last property, `__CRC32#`, of 20 bytes.

    8 `__CRC32#` | 0x01 | 10 decimal digits, the least significant first | 0x02

The value is the CRC-32, without its top bit, of everything in the record before these 20 bytes, as
it lies in the log: header, offsets and store time included. Who builds a record leaves room for it
with digits of zero; the log fills them in when everything else is in place. To readers that do not
know it, it is one more property.

Source: RocketMQ `MessageExtEncoder`, `CommitLog` (`enabledAppendPropCRC`).
"""

import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Bytes, Ints
from ternmq_model.record.format import CRC31_MASK, crc31

CHECKSUM_BYTES: Final = 20
RESERVED_CHECKSUM: Final = b"__CRC32#\x010000000000\x02"
"""The property in place of the checksum of a record that has none yet."""

_DIGITS: Final = 10
_DIGITS_BEFORE_END: Final = _DIGITS + 1
_NAME: Final = RESERVED_CHECKSUM[:9]
_PAIR_END: Final = 2
_POWERS: Final = 10 ** np.arange(_DIGITS, dtype=np.uint32)
_ZERO: Final = ord("0")
assert len(RESERVED_CHECKSUM) == CHECKSUM_BYTES


def crc31_of_ranges(data: bytes | memoryview | Bytes, starts: Ints, ends: Ints) -> Ints:
    """Return `crc31` of the bytes of `data` from each of `starts` to its end."""
    view, crc32 = np.frombuffer(data, dtype=np.uint8).data, zlib.crc32
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.array([crc32(view[start:end]) for start, end in pairs], dtype=np.int64) & CRC31_MASK


def checksum_digits(value: int) -> bytes:
    """Return `value` as a record keeps it: 10 digits, the least significant first."""
    return (b"%010d" % value)[::-1]


def checksum_of(record: bytes | memoryview) -> int:
    """Return the checksum that `record`, whole, must carry."""
    return crc31(memoryview(record)[:-CHECKSUM_BYTES])


def has_checksum(properties: bytes) -> bool:
    """Tell whether encoded properties end with a checksum, right or wrong, or with room for one."""
    at = len(properties) - CHECKSUM_BYTES
    return (
        at >= 0
        and properties[-1] == _PAIR_END
        and properties.startswith(_NAME, at)
        and properties[at + len(_NAME) : -1].isdigit()
        and (not at or properties[at - 1] == _PAIR_END)
    )


def strip_checksum(properties: bytes) -> bytes:
    """Return encoded properties without a checksum at their end: for storing them again."""
    return properties[:-CHECKSUM_BYTES] if has_checksum(properties) else properties


def verify_checksum(record: bytes | memoryview, properties: bytes) -> bool:
    """Tell whether `record` carries the right checksum; one that carries none does not.

    Args:
        record: All of its bytes, as they lie in the log.
        properties: Its properties field.
    """
    return (
        has_checksum(properties)
        and checksum_digits(checksum_of(record)) == properties[-_DIGITS_BEFORE_END:-1]
    )


def rows_with_reserved_checksum(data: bytes, properties: Ints, ends: Ints) -> NDArray[np.bool_]:
    """Tell for each record whether its properties end with `RESERVED_CHECKSUM` exactly.

    Args:
        data: Records back to back.
        properties: Where each record's properties begin in it.
        ends: Where they, and so the record, end; at least 21 bytes from the start of `data`.
    """
    last: NDArray[np.bool_] = (
        _window(data, CHECKSUM_BYTES)[ends - CHECKSUM_BYTES] == RESERVED_CHECKSUM
    )
    before = np.frombuffer(data, dtype=np.uint8)[ends - CHECKSUM_BYTES - 1]
    left = ends - properties - CHECKSUM_BYTES
    is_own: NDArray[np.bool_] = (left == 0) | ((left > 0) & (before == _PAIR_END))
    return last & is_own


def put_checksums(data: Bytes, starts: Ints, sizes: Ints) -> None:
    """Fill in the checksums of records that are otherwise complete and all have room for one.

    Args:
        data: Writable; holds the records.
        starts: Where they begin in it.
        sizes: Their whole lengths.
    """
    if len(starts) == 1:
        end = int(starts[0] + sizes[0])
        digits = checksum_digits(checksum_of(data.data[int(starts[0]) : end]))
        data[end - _DIGITS_BEFORE_END : end - 1] = np.frombuffer(digits, dtype=np.uint8)
        return
    ends = starts + sizes
    _window(data, _DIGITS)[ends - _DIGITS_BEFORE_END] = _digits(data, starts, ends)


def match_checksums(
    data: bytes | memoryview | Bytes, starts: Ints, properties: Ints, ends: Ints
) -> NDArray[np.bool_]:
    """Tell for each of many records what `verify_checksum` tells for one.

    Args:
        data: Holds the records, each of at least 21 bytes.
        starts: Where they begin in it.
        properties: Where their properties begin.
        ends: Where they end.
    """
    view = np.frombuffer(data, dtype=np.uint8)
    left = ends - properties - CHECKSUM_BYTES
    is_there: NDArray[np.bool_] = (
        (left >= 0)
        & (_window(data, len(_NAME))[ends - CHECKSUM_BYTES] == _NAME)
        & (view[ends - 1] == _PAIR_END)
        & ((left == 0) | (view[ends - CHECKSUM_BYTES - 1] == _PAIR_END))
    )
    digits = _window(data, _DIGITS)[ends - _DIGITS_BEFORE_END]
    is_right: NDArray[np.bool_] = digits == _digits(data, starts, ends)
    return is_there & is_right


def _digits(data: bytes | memoryview | Bytes, starts: Ints, ends: Ints) -> NDArray[np.bytes_]:
    crcs = crc31_of_ranges(data, starts, ends - CHECKSUM_BYTES).astype(np.uint32)
    # A checksum has 31 bits, and 64 take twice as long to divide.
    rows = (crcs[:, None] // _POWERS % 10 + _ZERO).astype(np.uint8)
    return rows.view(f"S{_DIGITS}").reshape(-1)


def _window(data: bytes | memoryview | Bytes, length: int) -> NDArray[np.bytes_]:
    """Return one item for every byte of `data`: the `length` bytes that begin there."""
    return np.ndarray((max(len(data) - length + 1, 0),), f"S{length}", data, strides=(1,))
