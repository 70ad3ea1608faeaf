"""Where a queue stands when the log ends at some place."""

from typing import Protocol

import numpy as np

from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_store.queues.units import PADDING_SIZE, Unit, Units

_PIECE_UNITS = 4096


class UnitRow(Protocol):
    """The units of a queue, wherever they are read."""

    min_offset: QueueOffset
    end: QueueOffset

    def units(self, offset: QueueOffset, count: int) -> Units:
        """Return up to `count` units from `offset` on, at least one where there are any."""
        ...

    def unit(self, offset: QueueOffset) -> Unit:
        """Return the unit of message `offset`."""
        ...


def first_from(
    queue: UnitRow, place: PhysicalOffset, *, end: QueueOffset | None = None
) -> QueueOffset:
    """Return the queue's first message whose record lies at `place` or behind it.

    Offsets of records rise along a queue, so it is found by halving: some twenty units are read.

    Args:
        queue: Its units.
        place: Of the log.
        end: Only messages before it are looked at. None = all.

    Returns:
        That end where there is none.
    """
    end = queue.end if end is None else end
    low, high = queue.min_offset, end
    while low < high:
        middle = QueueOffset((low + high) // 2)
        message = _first_message(queue, middle, high)
        if message == high or queue.unit(message).offset >= place:
            high = middle
        else:
            low = QueueOffset(message + 1)
    return _first_message(queue, low, end)


def _first_message(queue: UnitRow, begin: QueueOffset, end: QueueOffset) -> QueueOffset:
    """Return the first unit from `begin` on that stands for a message; `end` if none does."""
    count = 1
    while begin < end:
        units = queue.units(begin, min(count, end - begin))
        if not len(units):
            return end
        found = np.flatnonzero(units["size"] != PADDING_SIZE)
        if len(found):
            return QueueOffset(begin + int(found[0]))
        begin, count = QueueOffset(begin + len(units)), _PIECE_UNITS
    return end
