"""Slices of a log for replicas: their ends and their checks. Pure.

Logs of replicas are equal byte for byte. So a slice has whole records in the form of the log, with
the blank record at the end of a file and the bytes behind it. A slice never crosses the end of a
file. Known damage is sent unchanged, in slices with any end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import (
    BLANK_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    OVERHEAD_BYTES,
    RECORD_BYTES_MAX,
    find_header,
    is_blank,
    read_start,
)
from ternmq_model.record.header_arrays import header_type, take_headers
from ternmq_model.record.scanner import follow_lengths

_MANY: Final = 1 << 62

Reader = Callable[[int, int], memoryview]
"""Function of an offset and a length that returns bytes of a log; fewer at the end of a file."""


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Bytes of a log."""

    start: PhysicalOffset
    data: bytes
    """Bytes, at least one."""

    is_checksummed: bool
    """True = every record must have a checksum of the whole record."""

    damage: str = ""
    """Damage of the bytes, which end anywhere; empty = whole records."""

    @property
    def end(self) -> PhysicalOffset:
        """Begin of the next slice."""
        return PhysicalOffset(self.start + len(self.data))


def take_records(
    read: Reader, at: PhysicalOffset, stop: int, *, file_end: int, bytes_max: int
) -> bytes | None:
    """Return whole records of a log from `at` on; None = no record begins at `at`.

    Args:
        read: Reader of the log.
        at: Begin of a record, before `stop`.
        stop: End of the slice at most; not above `file_end`.
        file_end: End of the file with `at`.
        bytes_max: Most bytes, except for a single longer record, or the rest of a file behind a
            blank record.
    """
    part = read(at, min(bytes_max, stop - at))
    _, taken, _ = follow_lengths(part, 0, len(part), _MANY)
    left = file_end - at - taken
    if file_end <= stop and left >= BLANK_BYTES and (not taken or taken + left <= bytes_max):
        taken += left if is_blank(read(at + taken, BLANK_BYTES), 0, left) else 0
    if not taken and stop - at >= OVERHEAD_BYTES:
        size, magic = read_start(read(at, BLANK_BYTES), 0)
        if magic in (MAGIC_V1, MAGIC_V2) and OVERHEAD_BYTES <= size <= RECORD_BYTES_MAX:
            taken = size if size <= stop - at else 0
    if not taken:
        return None
    return bytes(part[:taken]) if taken <= len(part) else bytes(read(at, taken))


def check_slice(data: bytes, at: PhysicalOffset, *, file_end: int) -> int:
    """Check that bytes are whole records for the offset `at`.

    The check covers the sizes and the physical offset in every record, at a low cost. Reads check
    the contents of records.

    Args:
        data: Bytes of a slice.
        at: Log offset of the slice.
        file_end: End of the file with `at`.

    Returns:
        Store time of the newest record, Unix ms; 0 for a blank record only.

    Raises:
        CorruptRecord: The bytes do not fit. The error has the reason.
    """
    if not data or at + len(data) > file_end:
        raise CorruptRecord(at, f"a piece of {len(data)} bytes does not fit into the file")
    view = memoryview(data)
    starts, end = _follow(view)
    if end == len(data) and at + end + BLANK_BYTES > file_end:
        raise CorruptRecord(at, "a record leaves no space for the blank record at the file's end")
    if end < len(data) and (at + len(data) < file_end or not is_blank(view, end, len(view) - end)):
        raise CorruptRecord(PhysicalOffset(at + end), "the rest of the piece is no record")
    if not len(starts):
        return 0
    claimed = take_headers(data, starts, header_type(0))["physical_offset"]
    is_right = claimed == at + starts
    if not is_right.all():
        row = int(is_right.argmin())
        where = PhysicalOffset(at + int(starts[row]))
        raise CorruptRecord(where, f"the record contains the offset {int(claimed[row])}")
    last = int(starts[-1])
    header = find_header(view[:end], last)
    if header is None:
        raise CorruptRecord(
            PhysicalOffset(at + last), "the record's size is smaller than its header"
        )
    return header.stored_at_ms


def _follow(view: memoryview) -> tuple[Ints, int]:
    """Return the begins of the records in a piece, and the end of the last one."""
    starts: list[int] = []
    end, is_stopped = 0, False
    while end < len(view) and not is_stopped:
        found, end, is_stopped = follow_lengths(view, end, len(view), _MANY)
        starts += found
    return np.array(starts, dtype=np.int64), end
