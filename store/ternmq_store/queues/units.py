"""Units of consume queues, many at once (docs/formats/consume-queue.md).

A unit is 20 bytes: physical offset 8, record size 4, tag code 8, big-endian.
"""

import struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Bytes, Ints, layout_bytes
from ternmq_model.offsets import UNIT_BYTES, PhysicalOffset, QueueOffset
from ternmq_model.record.format import OVERHEAD_BYTES, RECORD_BYTES_MAX
from ternmq_store.disk.filesystem import File

Units = NDArray[np.void]
"""Units in the layout of their file."""

_FIELDS: Final[list[Any]] = [("offset", ">i8"), ("size", ">i4"), ("tag_code", ">i8")]
UNIT: Final[np.dtype[np.void]] = np.dtype(_FIELDS)
assert UNIT.itemsize == UNIT_BYTES

_UNIT: Final = struct.Struct(">qiq")
assert _UNIT.size == UNIT_BYTES

_NO_LIMIT: Final = (1 << 63) - 1

PADDING_SIZE: Final = 0x7FFFFFFF
"""Size in a unit without a message: before a queue's first message, or in a gap."""


class Unit(NamedTuple):
    """Content of one unit."""

    offset: PhysicalOffset
    size: int
    tag_code: int


class UnitRepair(NamedTuple):
    """A damaged unit, and the right one."""

    offset: QueueOffset
    was: Unit
    unit: Unit


def unit_of(units: Units, row: int = 0) -> Unit:
    """Return the unit in one row."""
    offset, size, tag_code = units[row].item()
    return Unit(PhysicalOffset(offset), size, tag_code)


def read_unit(view: memoryview, position: int) -> Unit:
    """Return the unit at a position of its file, as `unit_of` does."""
    offset, size, tag_code = _UNIT.unpack_from(view, position)
    return Unit(PhysicalOffset(offset), size, tag_code)


def decode_units(data: bytes | memoryview) -> Units:
    """Return the complete units in `data`, which begins with one."""
    return np.frombuffer(data, dtype=UNIT, count=len(data) // UNIT_BYTES)


def as_units(unit: Unit) -> Units:
    """Return one unit in the layout of its file."""
    return decode_units(_UNIT.pack(*unit))


def one_unit_bytes(unit: Unit) -> Bytes:
    """Return the bytes of one unit, as `unit_bytes` does for many."""
    return np.frombuffer(_UNIT.pack(*unit), dtype=np.uint8)


def make_units(offsets: Ints, sizes: Ints, tag_codes: Ints) -> Units:
    """Return the units of records at `offsets`."""
    units = np.empty(len(offsets), dtype=UNIT)
    units["offset"] = offsets
    units["size"] = sizes
    units["tag_code"] = tag_codes
    return units


def make_padding(count: int) -> Units:
    """Return units without a message."""
    zeros = np.zeros(count, dtype=np.int64)
    return make_units(zeros, zeros + PADDING_SIZE, zeros)


def first_units(units: Units, count: int) -> Units:
    """Return the first `count` units, or those up to the first message if it lies further on."""
    if int(units["size"][0]) != PADDING_SIZE:
        return units[:count]
    is_message = units["size"] != PADDING_SIZE
    return units[: max(count, int(is_message.argmax()) if is_message.any() else len(units))]


def good_units(units: Units, below: int = _NO_LIMIT) -> Units:
    """Return the units before the first unwritten one, or one of a record at or behind `below`.

    Source: RocketMQ `ConsumeQueue.recover`, `truncateDirtyLogicFiles`.
    """
    bad = (units["size"] <= 0) | (units["offset"] < 0) | (units["offset"] >= below)
    return units[: int(bad.argmax())] if bad.any() else units


def read_units(file: File, first: int, count: int) -> Units:
    """Return up to `count` units of a file from unit `first` on, by a plain read."""
    return decode_units(file.read(first * UNIT_BYTES, count * UNIT_BYTES))


def unit_bytes(units: Units) -> Bytes:
    """Return the bytes of units, back to back."""
    return layout_bytes(units, UNIT)


def find_turned(units: Units, end: PhysicalOffset) -> tuple[Ints, Units]:
    """Return the rows of units in the other byte order, as old versions wrote, and right units.

    Such a unit fits no record of the log in its own order, and may fit one in the other.

    Args:
        units: Units of one queue.
        end: End of the log. Few offsets lie before it in both orders: 0, and multiples of 4 GiB.
    """
    turned = units.view(UNIT.newbyteorder())
    rows = np.flatnonzero(~_may_fit(units, end) & _may_fit(turned, end))
    return rows, turned[rows].astype(UNIT)


def turned_unit(unit: Unit) -> Unit:
    """Return a unit read in the other byte order."""
    return unit_of(as_units(unit).view(UNIT.newbyteorder()))


def _may_fit(units: Units, end: PhysicalOffset) -> NDArray[np.bool_]:
    offsets, sizes = units["offset"], units["size"]
    has_place = (offsets >= 0) & (offsets < end)
    may: NDArray[np.bool_] = has_place & (sizes >= OVERHEAD_BYTES) & (sizes <= RECORD_BYTES_MAX)
    return may


def can_be(offset: QueueOffset, unit: Units) -> bool:
    """Return whether a message behind a gap can have that queue offset.

    The log before its record must have had space for one record of each earlier message.
    """
    is_padding = int(unit["size"][0]) == PADDING_SIZE
    return is_padding or offset * OVERHEAD_BYTES <= int(unit["offset"][0])
