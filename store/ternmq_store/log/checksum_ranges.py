"""The ranges of the log in which every record was written with a checksum of the whole. Pure.

Inside a range a record without its checksum, or with another, is bad. Outside, records may be
RocketMQ's without a checksum, or have a property of that name from an application: a mismatch is
reported there and nothing more. Ranges begin and end where records do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.scanner import Verify


@dataclass(frozen=True, slots=True)
class ChecksumRange:
    """Range of the log from `start` to `end`; None = to the end of a log that is being written."""

    start: PhysicalOffset
    end: PhysicalOffset | None


Ranges = Sequence[ChecksumRange]
"""Sorted, without overlap; only the last may be open."""


def is_inside(ranges: Ranges, offset: PhysicalOffset) -> bool:
    """Return whether the record at `offset` must have its checksum."""
    return any(r.start <= offset and (r.end is None or offset < r.end) for r in ranges)


def next_border(ranges: Ranges, offset: PhysicalOffset) -> PhysicalOffset | None:
    """Return the first border of a range behind `offset`, or None."""
    borders = [r.start for r in ranges] + [r.end for r in ranges if r.end is not None]
    return min((border for border in borders if border > offset), default=None)


def opened(ranges: Ranges, start: PhysicalOffset) -> Ranges:
    """Return `ranges` with an open one: the last if it is open, else one that begins at `start`."""
    if ranges and ranges[-1].end is None:
        return ranges
    if ranges and ranges[-1].end == start:
        return (*ranges[:-1], ChecksumRange(ranges[-1].start, None))
    return (*ranges, ChecksumRange(start, None))


def closed(ranges: Ranges, end: PhysicalOffset) -> Ranges:
    """Return `ranges` with the end `end` for the open one, if there is one."""
    if not ranges or ranges[-1].end is not None:
        return ranges
    return _without_empty((*ranges[:-1], ChecksumRange(ranges[-1].start, end)))


def kept(ranges: Ranges, start: PhysicalOffset, end: PhysicalOffset) -> Ranges:
    """Return the parts of `ranges` in a log from `start` to `end`; an open one stays open."""
    return _without_empty(
        [
            ChecksumRange(
                PhysicalOffset(min(max(r.start, start), end)),
                None if r.end is None else PhysicalOffset(max(start, min(r.end, end))),
            )
            for r in ranges
        ]
    )


def _without_empty(ranges: Ranges) -> Ranges:
    return tuple(r for r in ranges if r.end is None or r.start < r.end)


class VerifyRange(NamedTuple):
    """Verification of the log from some offset on."""

    verify: Verify
    until: PhysicalOffset | None
    """Log offset from which another verification may apply; None = none does."""


def check_bodies(_: PhysicalOffset) -> VerifyRange:
    """Return the verification of a log without notes."""
    return VerifyRange(Verify.BODY, None)
