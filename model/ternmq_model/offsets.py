"""The three offsets of a store. Mixing them is the likeliest mistake, so each is a type.

physical offset   byte in the commit log, counted over all its files
logic offset      byte in a consume queue, counted over all its files: 20 × queue offset
queue offset      message in a queue, counted from 0
"""

from typing import Final, NewType

PhysicalOffset = NewType("PhysicalOffset", int)
LogicOffset = NewType("LogicOffset", int)
QueueOffset = NewType("QueueOffset", int)

OFFSET_MAX: Final = (1 << 63) - 1
"""Highest offset of any kind."""

UNIT_BYTES = 20
"""Length of one consume queue unit."""


def logic_offset(offset: QueueOffset) -> LogicOffset:
    """Return where the unit of message `offset` begins."""
    return LogicOffset(offset * UNIT_BYTES)


def queue_offset(offset: LogicOffset) -> QueueOffset:
    """Return which message the unit that holds byte `offset` belongs to."""
    return QueueOffset(offset // UNIT_BYTES)
