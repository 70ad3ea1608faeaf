"""Finding the next record behind damaged bytes. Pure.

A place counts when a record's magic is there and its PHYSICALOFFSET says just that place, or when a
blank record reaches from there to the end of the file.
"""

import struct
from typing import Final

import numpy as np

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import (
    BLANK_BYTES,
    BODY_AT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    OVERHEAD_BYTES,
    RecordHeader,
    header_struct,
)

_PIECE_BYTES: Final = 1 << 20
_MAGIC_AT: Final = 4
_OFFSET_AT: Final = 28
_OFFSET: Final = struct.Struct(">q")
_SIZE: Final = struct.Struct(">i")
_MAGIC: Final = struct.Struct(">i")
_MAGICS: Final = tuple(_MAGIC.pack(magic) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))
_BLANK: Final = _MAGICS[2]
_FLAGS_AT: Final = slice(36, 40)

HEAD_BYTES: Final = _OFFSET_AT + _OFFSET.size
"""Bytes of a record that `claimed_offset` needs."""

WHOLE_HEAD_BYTES: Final = BODY_AT + 24
"""No header is longer."""


def next_record(view: memoryview, position: int, *, base: PhysicalOffset) -> int | None:
    """Return the first position from `position` on at which a record lies; None if there is none.

    That it is good is for the caller to check.

    Args:
        view: One file of the log, whole.
        position: Where to begin.
        base: The file's physical offset.
    """
    for piece in range(position + _MAGIC_AT, len(view), _PIECE_BYTES):
        # A magic that begins in this piece may end in the next.
        part = view[piece : piece + _PIECE_BYTES + _MAGIC_AT - 1]
        if not np.frombuffer(part, dtype=np.uint8).any():
            continue  # most of the last file, often
        data = bytes(part)
        found = [at for magic in _MAGICS for at in _all(data, magic)]
        for at in sorted(found):
            start = piece + at - _MAGIC_AT
            if lies_at(view, start, base=base):
                return start
    return None


def _all(data: bytes, magic: bytes) -> list[int]:
    found: list[int] = []
    at = data.find(magic)
    while at >= 0:
        found.append(at)
        at = data.find(magic, at + 1)
    return found


def is_blank(view: memoryview, start: int) -> bool:
    """Tell whether at position `start` begins the blank record that ends the file."""
    left = len(view) - start
    if left < BLANK_BYTES or bytes(view[start + _MAGIC_AT : start + BLANK_BYTES]) != _BLANK:
        return False
    size: int = _SIZE.unpack_from(view, start)[0]
    return size == left


def lies_at(view: memoryview, start: int, *, base: PhysicalOffset) -> bool:
    """Tell whether a record says that it lies at position `start`."""
    if is_blank(view, start):
        return True
    magic = bytes(view[start + _MAGIC_AT : start + BLANK_BYTES])
    if magic not in _MAGICS[:2] or len(view) - start < OVERHEAD_BYTES:
        return False
    offset: int = _OFFSET.unpack_from(view, start + _OFFSET_AT)[0]
    return offset == base + start


def claimed_offset(head: bytes) -> PhysicalOffset | None:
    """Return where the record says it lies that begins with `head`; None if none begins there."""
    if len(head) < _OFFSET_AT + _OFFSET.size or head[_MAGIC_AT:BLANK_BYTES] not in _MAGICS[:2]:
        return None
    return PhysicalOffset(_OFFSET.unpack_from(head, _OFFSET_AT)[0])


def stored_at_ms(head: bytes, at: PhysicalOffset) -> int | None:
    """Return the store time that a record's head tells; None if it is no record's at `at`."""
    layout = header_struct(int.from_bytes(head[_FLAGS_AT], "big"))
    if len(head) < layout.size:
        return None
    header = RecordHeader(*layout.unpack_from(head))
    is_record = header.magic in (MAGIC_V1, MAGIC_V2) and header.physical_offset == at
    return header.stored_at_ms if is_record else None
