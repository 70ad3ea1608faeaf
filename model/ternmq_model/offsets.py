"""Offsets of a store. There are three, each with a type, so that a checker finds confusions.

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
    """Return the begin of the unit of message `offset`."""
    return LogicOffset(offset * UNIT_BYTES)


def queue_offset(offset: LogicOffset) -> QueueOffset:
    """Return the message whose unit has byte `offset`."""
    return QueueOffset(offset // UNIT_BYTES)
