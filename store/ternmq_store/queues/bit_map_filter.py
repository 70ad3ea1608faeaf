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
    """All of these are set where the message may be for it. A bit map of another length tells
    nothing."""

    begin: int
    """Bit maps of messages that lie before this place of the log tell nothing."""

    @property
    def unit_type(self) -> "np.dtype[np.void]":
        """Return the layout of a unit with such a bit map."""
        return np.dtype([*EXT_FIELDS, ("bit_map", "u1", (len(self.bits),))])

    def may_match(self, units: NDArray[np.void]) -> NDArray[np.bool_]:
        """Tell which messages may be wanted that lie at `begin` or behind it.

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
    """Return what begins at positions of a file, which lie so that it fits."""
    window: NDArray[np.void] = np.ndarray(
        (len(view) - kind.itemsize + 1,), np.dtype((np.void, kind.itemsize)), view, strides=(1,)
    )
    return window[positions].view(kind)
