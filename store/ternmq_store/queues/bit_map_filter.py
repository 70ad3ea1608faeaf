"""A filter on the bit maps beside consume queue units, which needs no records. Pure.

Source: RocketMQ `ExpressionMessageFilter.isMatchedByConsumeQueue`.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Bytes, Ints

EXT_FIELDS: list[Any] = [
    ("size", ">i2"),
    ("tag_code", ">i8"),
    ("stored_at_ms", ">i8"),
    ("bit_map_bytes", ">i2"),
]
"""Header of a unit beside a consume queue; its bit map follows."""


class BitMapFilter(NamedTuple):
    """A reader's filter on bit maps."""

    bits: bytes
    """Bits that are all set in the bit map of a message that may match. A bit map of another length
    decides nothing."""

    begin: int
    """Log offset before which bit maps of messages decide nothing."""

    @property
    def unit_type(self) -> "np.dtype[np.void]":
        """Return the layout of a unit with such a bit map."""
        return np.dtype([*EXT_FIELDS, ("bit_map", "u1", (len(self.bits),))])

    def may_match(self, units: NDArray[np.void]) -> NDArray[np.bool_]:
        """Return for each message at `begin` or behind it whether the filter may match it.

        Args:
            units: As `unit_type` says.
        """
        bits: Bytes = np.frombuffer(self.bits, dtype=np.uint8)
        tells = units["bit_map_bytes"] == len(bits)
        tells &= units["size"] == units.dtype.itemsize
        matched: NDArray[np.bool_] = ((units["bit_map"] & bits) == bits).all(axis=1)
        matched |= ~tells
        return matched


def units_in(view: memoryview, positions: Ints, kind: "np.dtype[np.void]") -> NDArray[np.void]:
    """Return the units at positions of a file, each of which lies before its end."""
    window: NDArray[np.void] = np.ndarray(
        (len(view) - kind.itemsize + 1,), np.dtype((np.void, kind.itemsize)), view, strides=(1,)
    )
    return window[positions].view(kind)
