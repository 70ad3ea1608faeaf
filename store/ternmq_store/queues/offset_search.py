"""Binary search of a consume queue by offsets of the log."""

from typing import Protocol

import numpy as np

from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_store.queues.units import PADDING_SIZE, Unit, Units

_PIECE_UNITS = 4096


class UnitRow(Protocol):
    """Units of a queue, from a map or from plain reads."""

    min_offset: QueueOffset
    end: QueueOffset

    def units(self, offset: QueueOffset, count: int) -> Units:
        """Return up to `count` units from `offset` on, at least one if there are any."""
        ...

    def unit(self, offset: QueueOffset) -> Unit:
        """Return the unit of message `offset`."""
        ...


def first_from(
    queue: UnitRow, place: PhysicalOffset, *, end: QueueOffset | None = None
) -> QueueOffset:
    """Return the queue's first message whose record lies at log offset `place` or behind it.

    Log offsets rise along a queue, so a binary search finds it: some twenty units are read.

    Args:
        queue: Units of the queue.
        place: Log offset.
        end: Queue offset behind the last message to search. None = the end of the queue.

    Returns:
        The message's queue offset; `end` if there is none.
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


def first_kept(queue: UnitRow, log_start: PhysicalOffset) -> QueueOffset:
    """Return the queue's first message that is not gone from the log; its end when all are gone.

    One damaged unit may mislead the binary search, so that all messages before it seem to be gone.
    So the message before the result is inspected: one with a damaged unit counts as present.

    Source: RocketMQ `ConsumeQueue.correctMinOffset`, which trusts every unit.
    """
    first = first_from(queue, log_start)
    while (gone := last_message(queue, first)) is not None:
        if not _is_doubtful(queue, gone, log_start):
            break
        first = first_from(queue, log_start, end=gone)
    return first


def last_message(
    queue: UnitRow, end: QueueOffset, *, begin: QueueOffset | None = None
) -> QueueOffset | None:
    """Return the queue offset of the last message before `end`; None if there are only gaps.

    Args:
        queue: Units of the queue.
        end: Queue offset behind the last unit to search.
        begin: Queue offset of the first unit to search. None = the queue's first message.
    """
    first, count = queue.min_offset if begin is None else begin, 1
    while end > first:
        piece = at = max(QueueOffset(end - count), first)
        found: QueueOffset | None = None
        while at < end and len(units := queue.units(at, end - at)):
            rows = np.flatnonzero(units["size"] != PADDING_SIZE)
            if len(rows):
                found = QueueOffset(at + int(rows[-1]))
            at = QueueOffset(at + len(units))
        if found is not None:
            return found
        end, count = piece, _PIECE_UNITS
    return None


def _is_doubtful(queue: UnitRow, gone: QueueOffset, log_start: PhysicalOffset) -> bool:
    """Return whether a message only seems gone because its damaged unit has misled the search.

    A damaged unit has a negative log offset, or the message before it is not gone.
    """
    if queue.unit(gone).offset < 0:
        return True
    before = last_message(queue, gone)
    return before is not None and queue.unit(before).offset >= log_start


def _first_message(queue: UnitRow, begin: QueueOffset, end: QueueOffset) -> QueueOffset:
    """Return the queue offset of the first message from `begin` on; `end` if there is none."""
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
