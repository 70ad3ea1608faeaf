"""A filter on the bit maps beside consume queue units, which needs no records. Pure.

Source: RocketMQ `ExpressionMessageFilter.isMatchedByConsumeQueue`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_store.queues.ext_units import EXT_FIELDS


class BitMapFilter(NamedTuple):
    """A reader's filter on bit maps."""

    bits: bytes
    """Bits that are all set in the bit map of a message that may match. A message whose bit map has
    another length may match, too."""

    begin: int
    """Log offset before which every message may match, whatever its bit map."""

    @property
    def unit_type(self) -> "np.dtype[np.void]":
        """Layout of a unit with such a bit map."""
        return np.dtype([*EXT_FIELDS, ("bit_map", "u1", (len(self.bits),))])

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
