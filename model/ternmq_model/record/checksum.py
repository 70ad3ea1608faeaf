"""Checksum of a whole record: the last property, `__CRC32#`, of 20 bytes.

    8 `__CRC32#` | 0x01 | 10 decimal digits, the least significant first | 0x02

The value is the CRC-32, without its top bit, of all bytes of the record in the log before these 20
bytes, with header, offsets and store time. The builder of a record reserves the space with zero
digits, and the log fills in the value last. For readers without support it is one more property.

Source: RocketMQ `MessageExtEncoder`, `CommitLog` (`enabledAppendPropCRC`).
"""

from collections.abc import Iterable
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Bytes, Ints, windows
from ternmq_model.crc32 import crc32
from ternmq_model.properties import CRC32, PAIR_END_CODE, encode_name, encode_pair
from ternmq_model.record.format import CRC31_MASK, crc31

CHECKSUM_BYTES: Final = 20
_DIGITS: Final = 10
_NAME: Final = encode_name(CRC32)
RESERVED_CHECKSUM: Final = encode_pair(CRC32, "0" * _DIGITS)
"""Property that reserves the space of the checksum."""

_DIGITS_BEFORE_END: Final = _DIGITS + 1
_POWERS: Final = 10 ** np.arange(_DIGITS, dtype=np.uint32)
_ZERO: Final = ord("0")
_ROW_BYTES: Final = 2048
"""Longest pieces of equal length and distance that numpy returns in two thirds of the time of
slices."""

_SHORT_BYTES: Final = 512
"""Longest pieces of equal length that are copied, which takes half the time of slices."""

assert len(RESERVED_CHECKSUM) == CHECKSUM_BYTES


def crc31_of_ranges(data: bytes | memoryview | Bytes, starts: Ints, ends: Ints) -> Ints:
    """Return `crc31` of the bytes of `data` from each of `starts` to its end."""
    crcs = map(crc32, _pieces(data, starts, ends))
    return np.fromiter(crcs, np.int64, len(starts)) & CRC31_MASK


def _pieces(
    data: bytes | memoryview | Bytes, starts: Ints, ends: Ints
) -> Iterable[bytes | memoryview]:
    """Return the ranges, never as a list of views: the garbage collector would visit them."""
    view = np.frombuffer(data, dtype=np.uint8)
    length = int(ends[0] - starts[0]) if len(starts) else 0
    if 0 < length <= _ROW_BYTES and (ends - starts == length).all():
        steps = np.diff(starts)
        if len(steps) and (steps == steps[0]).all():
            first, step = int(starts[0]), int(steps[0])
            rows: Any = np.ndarray((len(starts),), f"V{length}", view, first, (step,))
            return cast("Iterable[memoryview]", rows)
        if length <= _SHORT_BYTES:
            copies: list[bytes] = windows(view, length)[starts].tolist()
            return copies
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    slices = view.data
    return (slices[start:end] for start, end in pairs)


def checksum_digits(value: int) -> bytes:
    """Return the digits of `value` in a record: 10 digits, the least significant first."""
    return (b"%010d" % value)[::-1]


def checksum_of(record: bytes | memoryview) -> int:
    """Return the expected checksum of the complete `record`."""
    return crc31(memoryview(record)[:-CHECKSUM_BYTES])


def ends_with_reserved(properties: bytes) -> bool:
    """Return whether encoded properties end with exactly `RESERVED_CHECKSUM`."""
    at = len(properties) - CHECKSUM_BYTES
    return properties.endswith(RESERVED_CHECKSUM) and (
        not at or properties[at - 1] == PAIR_END_CODE
    )


def has_checksum(properties: bytes) -> bool:
    """Return whether encoded properties end with a checksum, valid or not, or its space."""
    at = len(properties) - CHECKSUM_BYTES
    return (
        at >= 0
        and properties[-1] == PAIR_END_CODE
        and properties.startswith(_NAME, at)
        and properties[at + len(_NAME) : -1].isdigit()
        and (not at or properties[at - 1] == PAIR_END_CODE)
    )


def strip_checksum(properties: bytes) -> bytes:
    """Return encoded properties without a checksum at their end, for a new record."""
    return properties[:-CHECKSUM_BYTES] if has_checksum(properties) else properties


def verify_checksum(record: bytes | memoryview, properties: bytes) -> bool:
    """Return whether `record` has a valid checksum; False without a checksum.

    Args:
        record: All bytes of the record in the log.
        properties: Properties field of the record.
    """
    return (
        has_checksum(properties)
        and checksum_digits(checksum_of(record)) == properties[-_DIGITS_BEFORE_END:-1]
    )


def rows_with_reserved_checksum(data: bytes, properties: Ints, ends: Ints) -> NDArray[np.bool_]:
    """Return a mask of the records whose properties end with exactly `RESERVED_CHECKSUM`.

    Args:
        data: Contiguous records.
        properties: Begin of each record's properties in `data`.
        ends: End of each record, at least 21 bytes behind the begin of `data`.
    """
    last: NDArray[np.bool_] = (
        _window(data, CHECKSUM_BYTES)[ends - CHECKSUM_BYTES] == RESERVED_CHECKSUM
    )
    before = np.frombuffer(data, dtype=np.uint8)[ends - CHECKSUM_BYTES - 1]
    left = ends - properties - CHECKSUM_BYTES
    is_own: NDArray[np.bool_] = (left == 0) | ((left > 0) & (before == PAIR_END_CODE))
    return last & is_own


def put_checksum(record: memoryview) -> None:
    """Write the checksum of an otherwise complete record with space for one."""
    record[-_DIGITS_BEFORE_END:-1] = checksum_digits(checksum_of(record))


def put_checksums(data: Bytes, starts: Ints, sizes: Ints) -> None:
    """Write the checksums of otherwise complete records with space for one.

    Args:
        data: Writable buffer with the records.
        starts: Begin of each record in `data`.
        sizes: Length of each record.
    """
    if len(starts) == 1:
        put_checksum(data.data[int(starts[0]) : int(starts[0] + sizes[0])])
        return
    ends = starts + sizes
    _window(data, _DIGITS)[ends - _DIGITS_BEFORE_END] = _digits(data, starts, ends)


def match_checksums(
    data: bytes | memoryview | Bytes, starts: Ints, properties: Ints, ends: Ints
) -> NDArray[np.bool_]:
    """Return a mask of the records with a valid checksum. See `verify_checksum`.

    Args:
        data: Buffer with the records, each of at least 21 bytes.
        starts: Begin of each record in `data`.
        properties: Begin of each record's properties in `data`.
        ends: End of each record in `data`.
    """
    view = np.frombuffer(data, dtype=np.uint8)
    left = ends - properties - CHECKSUM_BYTES
    is_there: NDArray[np.bool_] = (
        (left >= 0)
        & (_window(data, len(_NAME))[ends - CHECKSUM_BYTES] == _NAME)
        & (view[ends - 1] == PAIR_END_CODE)
        & ((left == 0) | (view[ends - CHECKSUM_BYTES - 1] == PAIR_END_CODE))
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
    """Return an item for every byte of `data`: the `length` bytes from it on."""
    return np.ndarray((max(len(data) - length + 1, 0),), f"S{length}", data, strides=(1,))
