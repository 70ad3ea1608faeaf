"""Reading a queue: which messages one read returns, and what it says when there are none.

Source: RocketMQ `DefaultMessageStore.getMessage`.
"""

import enum
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record_heads import Ints
from ternmq_store.commit_log import CommitLog
from ternmq_store.consume_queue import PADDING_SIZE, ConsumeQueue

FILTER_UNITS_MAX: Final = 800
"""How many messages one read looks at when it may pass some over."""


def _no_sizes() -> NDArray[np.int32]:
    return np.zeros(0, dtype=np.int32)


class ReadStatus(enum.Enum):
    """How a read ended; RocketMQ's names and order."""

    FOUND = enum.auto()
    NO_MATCHED_MESSAGE = enum.auto()
    MESSAGE_WAS_REMOVING = enum.auto()
    OFFSET_FOUND_NULL = enum.auto()
    OFFSET_OVERFLOW_BADLY = enum.auto()
    OFFSET_OVERFLOW_ONE = enum.auto()
    OFFSET_TOO_SMALL = enum.auto()
    NO_MATCHED_LOGIC_QUEUE = enum.auto()
    NO_MESSAGE_IN_QUEUE = enum.auto()


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What a read found.

    Attributes:
        status: How it ended.
        next_offset: Where the next read should begin.
        min_offset: The first message of the queue.
        max_offset: Behind its last one.
        records: The messages' records as they lie in the log, back to back.
        record_sizes: Their lengths.
        scanned: Messages looked at, the returned ones among them.
    """

    status: ReadStatus
    next_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    records: bytes = b""
    record_sizes: NDArray[np.int32] = field(default_factory=_no_sizes)
    scanned: int = 0


def read_queue(
    log: CommitLog,
    queue: ConsumeQueue | None,
    offset: QueueOffset,
    *,
    messages_max: int,
    bytes_max: int,
    tag_codes: frozenset[int] | None,
) -> ReadResult:
    """Return messages from `offset` on.

    The first one is taken however long it is. A read ends with the file of the queue or of the log.

    Args:
        log: Where the records are.
        queue: Whose messages; None when nobody wrote to it.
        offset: The first message wanted.
        messages_max: How many at most; at least 1.
        bytes_max: How many bytes of records at most.
        tag_codes: Only messages with one of these codes; None for all.
    """
    status, next_offset = _without_reading(queue, offset)
    if queue is None:
        return ReadResult(status, next_offset, QueueOffset(0), QueueOffset(0))
    if status is not ReadStatus.FOUND:
        return ReadResult(status, next_offset, queue.min_offset, queue.end)
    units = queue.units(offset, messages_max if tag_codes is None else FILTER_UNITS_MAX)
    sizes: Ints = units["size"].astype(np.int64)
    starts: Ints = units["offset"].astype(np.int64)
    scanned = len(units)
    rows: Ints | None = None
    gone = int(starts[0]) < log.start
    if tag_codes is not None or gone or int(sizes.max()) == PADDING_SIZE:
        wanted = (sizes != PADDING_SIZE) & (starts >= log.start)
        if tag_codes is not None:
            wanted &= _has_code(units["tag_code"].astype(np.int32), tag_codes)
        rows = np.flatnonzero(wanted)
        sizes, starts = sizes[rows], starts[rows]
    count = _take(log, starts, sizes, messages_max, bytes_max)
    if count < len(starts):
        scanned = count if rows is None else int(rows[count])
        sizes, starts = sizes[:count], starts[:count]
    if count:
        status = ReadStatus.FOUND
    else:
        status = ReadStatus.MESSAGE_WAS_REMOVING if gone else ReadStatus.NO_MATCHED_MESSAGE
    return ReadResult(
        status,
        QueueOffset(offset + scanned),
        queue.min_offset,
        queue.end,
        _copy(log, starts, sizes),
        sizes.astype(np.int32),
        scanned,
    )


def _without_reading(
    queue: ConsumeQueue | None, offset: QueueOffset
) -> tuple[ReadStatus, QueueOffset]:
    """Return what the offset alone decides; FOUND when one has to look."""
    if queue is None:
        return ReadStatus.NO_MATCHED_LOGIC_QUEUE, QueueOffset(0)
    if queue.end == 0:
        return ReadStatus.NO_MESSAGE_IN_QUEUE, QueueOffset(0)
    if offset < queue.min_offset:
        return ReadStatus.OFFSET_TOO_SMALL, queue.min_offset
    if offset == queue.end:
        return ReadStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > queue.end:
        return ReadStatus.OFFSET_OVERFLOW_BADLY, queue.end
    return ReadStatus.FOUND, offset


def _has_code(codes: NDArray[np.int32], wanted: frozenset[int]) -> NDArray[np.bool_]:
    if len(wanted) > 4:
        return np.isin(codes, np.fromiter(wanted, dtype=np.int64, count=len(wanted)))
    matched = np.zeros(len(codes), dtype=bool)
    for code in wanted:
        matched |= codes == code
    return matched


def _take(log: CommitLog, starts: Ints, sizes: Ints, messages_max: int, bytes_max: int) -> int:
    """Return how many of the messages one read returns."""
    count = min(len(starts), messages_max)
    if count <= 1:
        return count
    ends = np.cumsum(sizes[:count])
    if ends[-1] > bytes_max:
        count = max(int(np.searchsorted(ends, bytes_max, side="right")), 1)
    file_end = log.files.at(int(starts[0])).end
    if starts[count - 1] >= file_end:
        count = int(np.searchsorted(starts[:count], file_end))
    return count


def _copy(log: CommitLog, starts: Ints, sizes: Ints) -> bytes:
    """Return the records, which lie in one file, back to back."""
    count = len(starts)
    if not count:
        return b""
    first = int(starts[0])
    file = log.files.at(first)
    view, base = file.view, file.base
    ends = starts + sizes
    last = int(ends[-1])
    if last - first == int(sizes.sum()):
        return bytes(view[first - base : last - base])
    # Rows that lie next to each other are copied in one go.
    cuts = np.flatnonzero(starts[1:] != ends[:-1])
    begins = (starts[np.concatenate(((0,), cuts + 1))] - base).tolist()
    stops = (ends[np.concatenate((cuts, (count - 1,)))] - base).tolist()
    return b"".join([view[begin:stop] for begin, stop in zip(begins, stops, strict=True)])


def stored_at_ms(log: CommitLog, offset: PhysicalOffset, end: PhysicalOffset) -> int:
    """Return the store time of the record at `offset`; 0 when there is none before `end`."""
    record = log.record_at(offset, end)
    return record.header.stored_at_ms if record else 0
