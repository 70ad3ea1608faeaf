"""Finding the next record behind damaged bytes. Pure.

A place counts when a record's magic is there and its PHYSICALOFFSET says just that place, or when a
blank record reaches from there to the end of the file.
"""

from typing import Final

import numpy as np

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import (
    BLANK_BYTES,
    OVERHEAD_BYTES,
    claimed_offset,
    is_blank,
    possible_starts,
)

_PIECE_BYTES: Final = 1 << 20


def next_record(view: memoryview, position: int, *, base: PhysicalOffset) -> int | None:
    """Return the first position from `position` on at which a record lies; None if there is none.

    That it is good is for the caller to check.

    Args:
        view: One file of the log, whole.
        position: Where to begin.
        base: The file's physical offset.
    """
    for piece in range(position, len(view), _PIECE_BYTES):
        # A start in this piece may have its magic in the next.
        part = view[piece : piece + _PIECE_BYTES + BLANK_BYTES - 1]
        if not np.frombuffer(part, dtype=np.uint8).any():
            continue  # most of the last file, often
        for start in possible_starts(bytes(part)):
            if lies_at(view, piece + start, base=base):
                return piece + start
    return None


def lies_at(view: memoryview, start: int, *, base: PhysicalOffset) -> bool:
    """Return whether a record says that it lies at position `start`."""
    left = len(view) - start
    if is_blank(view, start, left):
        return True
    return left >= OVERHEAD_BYTES and claimed_offset(view[start:]) == base + start
