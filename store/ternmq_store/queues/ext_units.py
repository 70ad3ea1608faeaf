"""Layout of the units beside consume queues, and filters on their bit maps. Pure.

A unit: size 2 | tag code 8 | store time 8 | bit map length 2 | bit map, big-endian
(docs/formats/consume-queue-ext.md).

Source: RocketMQ `ConsumeQueueExt.CqExtUnit`.
"""

import struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints

_FIELDS: Final[list[Any]] = [
    ("size", ">i2"),
    ("tag_code", ">i8"),
    ("stored_at_ms", ">i8"),
    ("bit_map_bytes", ">i2"),
]
"""Fields of a unit's header; its bit map follows."""

EXT_HEADER: Final[np.dtype[np.void]] = np.dtype(_FIELDS)
_HEAD: Final = struct.Struct(">hqqh")
assert EXT_HEADER.itemsize == _HEAD.size

EXT_UNIT_BYTES_LEAST: Final = _HEAD.size
EXT_UNIT_BYTES_MAX: Final = 32_767
END_MARK: Final = b"\xff\xff"
"""Size of -1 behind the last unit of a file that another one follows."""

FIRST_ADDRESS: Final = -(1 << 63)
"""Address of the unit at the beginning of the first file."""


class ExtUnit(NamedTuple):
    """Content of one unit."""

    tag_code: int
    stored_at_ms: int
    bit_map: bytes


def encode_ext_unit(tag_code: int, stored_at_ms: int, bit_map: bytes) -> bytes:
    """Return the bytes of a unit."""
    return _HEAD.pack(_HEAD.size + len(bit_map), tag_code, stored_at_ms, len(bit_map)) + bit_map


def find_ext_unit(data: bytes | memoryview, position: int) -> ExtUnit | None:
    """Return the unit at `position`; None when no unit lies there completely."""
    begin = position + _HEAD.size
    if begin > len(data):
        return None
    size, tag_code, stored_at_ms, bit_map_bytes = _HEAD.unpack_from(data, position)
    end = begin + bit_map_bytes
    if bit_map_bytes < 0 or position + size != end or end > len(data):
        return None
    return ExtUnit(tag_code, stored_at_ms, bytes(data[begin:end]))


def ext_units_at(view: memoryview, positions: Ints, kind: "np.dtype[np.void]") -> NDArray[np.void]:
    """Return copies of the units at `positions`, each of the layout `kind`, all within `view`."""
    window: NDArray[np.void] = np.ndarray(
        (len(view) - kind.itemsize + 1,), np.dtype((np.void, kind.itemsize)), view, strides=(1,)
    )
    return window[positions].view(kind)


class BitMapFilter(NamedTuple):
    """Filter of a reader on bit maps, which needs no records.

    Source: RocketMQ `ExpressionMessageFilter.isMatchedByConsumeQueue`.
    """

    bits: bytes
    """Bits that are all set in the bit map of a message that may match. A message whose bit map has
    another length may match, too."""

    begin: int
    """Log offset before which every message may match, for any bit map."""

    @property
    def unit_type(self) -> "np.dtype[np.void]":
        """Layout of a unit with such a bit map."""
        return np.dtype([*_FIELDS, ("bit_map", "u1", (len(self.bits),))])

    def may_match(self, units: NDArray[np.void]) -> NDArray[np.bool_]:
        """Return for each message at `begin` or behind it whether the filter may match it.

        Args:
            units: Units of the layout `unit_type`.
        """
        bits: NDArray[np.uint8] = np.frombuffer(self.bits, dtype=np.uint8)
        is_decided = units["bit_map_bytes"] == len(bits)
        is_decided &= units["size"] == units.dtype.itemsize
        matched: NDArray[np.bool_] = ((units["bit_map"] & bits) == bits).all(axis=1)
        matched |= ~is_decided
        return matched
