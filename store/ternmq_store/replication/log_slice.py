"""Pieces of a log that go from one replica to another: where they end, and whether they fit. Pure.

Logs of replicas are the same byte for byte, so a piece holds whole records as they lie in the log,
with the blank record that ends a file and everything behind it. It never crosses a file's end. What
of a log is known to be damaged goes as it is, in pieces that end anywhere.
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
"""Returns so many bytes of a log from an offset on; fewer where its file ends."""


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Bytes of a log, as they lie there."""

    start: PhysicalOffset
    data: bytes
    """At least one."""

    is_checksummed: bool
    """Every record has a checksum of the whole: where `start` lies it is enforced."""

    damage: str = ""
    """Empty = whole records. Else what is wrong with these bytes, whose extent means nothing."""

    @property
    def end(self) -> PhysicalOffset:
        """Start of the next one."""
        return PhysicalOffset(self.start + len(self.data))


def take_records(
    read: Reader, at: PhysicalOffset, stop: int, *, file_end: int, bytes_max: int
) -> bytes | None:
    """Return whole records of a log from `at` on; None when none lies there.

    Args:
        read: Reads the log.
        at: Where a record begins, before `stop`.
        stop: Nothing behind it is taken; at most `file_end`.
        file_end: Where the file ends that holds `at`.
        bytes_max: How much to take at most, unless the first record alone is longer, or the rest
            of the file is, which a blank record ends.
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


def check_piece(data: bytes, at: PhysicalOffset, *, file_end: int) -> int:
    """Refuse bytes that are not whole records which lie at `at`.

    Sizes must add up and every record must say that it lies where it will: that costs little. What
    the records hold is checked where they are read.

    Args:
        data: The piece.
        at: Where it belongs.
        file_end: Where the file ends that holds `at`.

    Returns:
        The store time of the newest record; 0 when there is only a blank one.

    Raises:
        CorruptRecord: Tells what does not fit.
    """
    if not data or at + len(data) > file_end:
        raise CorruptRecord(at, f"a piece of {len(data)} bytes does not fit into the file")
    view = memoryview(data)
    starts, end = _follow(view)
    if end == len(data) and at + end + BLANK_BYTES > file_end:
        raise CorruptRecord(at, "a record leaves no room for the blank one at the file's end")
    if end < len(data) and (at + len(data) < file_end or not is_blank(view, end, len(view) - end)):
        raise CorruptRecord(PhysicalOffset(at + end), "the piece goes on with no record")
    if not len(starts):
        return 0
    claimed = take_headers(data, starts, header_type(0))["physical_offset"]
    is_right = claimed == at + starts
    if not is_right.all():
        row = int(is_right.argmin())
        where = PhysicalOffset(at + int(starts[row]))
        raise CorruptRecord(where, f"the record says it is at {int(claimed[row])}")
    last = int(starts[-1])
    header = find_header(view[:end], last)
    if header is None:
        raise CorruptRecord(PhysicalOffset(at + last), "the record's size does not hold its header")
    return header.stored_at_ms


def _follow(view: memoryview) -> tuple[Ints, int]:
    """Return where the records of a piece begin and where the last one ends."""
    starts: list[int] = []
    end, is_stopped = 0, False
    while end < len(view) and not is_stopped:
        found, end, is_stopped = follow_lengths(view, end, len(view), _MANY)
        starts += found
    return np.array(starts, dtype=np.int64), end
