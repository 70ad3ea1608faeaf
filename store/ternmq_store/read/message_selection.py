"""Selection of the messages that one read of a queue returns, and its status without any. Pure.

Source: RocketMQ `DefaultMessageStore.getMessage`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record.format import (
    FLAG_BORN_HOST_V6,
    FLAG_HOSTS_MASK,
    FLAG_STORE_HOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    OVERHEAD_BYTES,
    RECORD_BYTES_MAX,
    Record,
    encode_topic,
)
from ternmq_model.record.header_arrays import header_type, take_headers
from ternmq_store.disk.layout import base_of
from ternmq_store.log.quarantine import DamagedRanges
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.consume_queue_ext import TagCodes, plain_tag_codes
from ternmq_store.queues.read_request import ReadLimits, ReadRequest, ReadStatus
from ternmq_store.queues.unit_files import UnitFiles
from ternmq_store.queues.units import PADDING_SIZE, Units

_NO_PLACE: Final = (1 << 63) - 1
_FIRST_UNITS: Final = 64
_NO_ROWS: Final[Ints] = np.zeros(0, dtype=np.int64)


class _HeaderLayout(NamedTuple):
    """Layout of the headers of one kind."""

    magic: int
    host_flags: int
    head: "np.dtype[np.void]"


_HEADER_LAYOUTS: Final = [
    _HeaderLayout(magic, host_flags, header_type(host_flags))
    for magic in (MAGIC_V1, MAGIC_V2)
    for host_flags in (0, FLAG_STORE_HOST_V6, FLAG_BORN_HOST_V6, FLAG_HOSTS_MASK)
]
"""The most frequent one first."""


_UNSIGNED: Final = np.dtype(np.uint64)


class MessagePositions(NamedTuple):
    """Queue of some messages, and their queue offsets."""

    topic: bytes
    queue_id: int
    numbers: Ints
    """Queue offsets of the messages, row by row."""

    def of(self, rows: slice | NDArray[np.bool_] | Ints) -> "MessagePositions":
        """Return the positions in some rows."""
        return self._replace(numbers=self.numbers[rows])

    def has(self, record: Record, row: int) -> bool:
        """Return whether a record claims the queue and queue offset of `row`."""
        header = record.header
        return (record.topic, header.queue_id, header.queue_offset) == (
            self.topic,
            self.queue_id,
            int(self.numbers[row]),
        )


class Selection(NamedTuple):
    """Inspected messages that may be returned."""

    starts: Ints
    sizes: Ints
    rows: Ints | None
    """Rows of their units; None = all inspected units."""

    is_gone: bool
    """True if the record of the first message is no longer in the log."""

    wrong: Sequence[int] = ()
    """Rows of units that point to no offset of the log, or not to one between their neighbours'."""

    def scanned(self, count: int, units: int) -> int:
        """Return how many of `units` are inspected when the first `count` messages are taken."""
        if count == len(self.starts):
            return units
        return count if self.rows is None else int(self.rows[count])

    def numbers(self, request: ReadRequest) -> Ints:
        """Return the queue offsets of the messages."""
        if self.rows is None:
            return np.arange(request.offset, request.offset + len(self.starts))
        return self.rows + request.offset

    def positions(self, request: ReadRequest) -> MessagePositions:
        """Return the queue and queue offsets of the messages."""
        return MessagePositions(request.topic.encode(), request.queue_id, self.numbers(request))

    def only(self, rows: slice | Ints) -> "Selection":
        """Return some of the messages."""
        known = np.arange(len(self.starts)) if self.rows is None else self.rows
        return self._replace(starts=self.starts[rows], sizes=self.sizes[rows], rows=known[rows])

    def without(
        self,
        damaged: DamagedRanges,
        units: Units,
        queue: ConsumeQueue | UnitFiles,
        offset: QueueOffset,
    ) -> "tuple[Selection, Ints]":
        """Return the messages outside damaged ranges, and the rows of the others' units.

        A unit that breaks the order of log offsets is `wrong`; its message may not be lost.

        Args:
            damaged: Damaged ranges of the log.
            units: Units from `offset` on: the inspected ones, and known ones behind them.
            queue: Queue of the units.
            offset: Queue offset of the first unit.
        """
        if not len(damaged.starts) or not (bad := damaged.are_in(self.starts)).any():
            return self, _NO_ROWS
        rows = np.flatnonzero(bad) if self.rows is None else self.rows[bad]
        fits = are_in_order(units, queue, offset)[rows]
        wrong = sorted({*self.wrong, *rows[~fits].tolist()})
        return self.only(np.flatnonzero(~bad))._replace(wrong=wrong), rows[fits]


def are_in_order(
    units: Units, queue: ConsumeQueue | UnitFiles, offset: QueueOffset
) -> NDArray[np.bool_]:
    """Return for each unit whether its log offset lies between those of its neighbours.

    Args:
        units: Units from `offset` on, in order.
        queue: Queue of the units; its message before the first unit counts, too.
        offset: Queue offset of the first unit.
    """
    starts: Ints = units["offset"].astype(np.int64)
    is_message = (units["size"] > 0) & (units["size"] != PADDING_SIZE)
    lows = np.append(queue.newest_before(offset), np.where(is_message, starts, -1)[:-1])
    highs = np.append(np.where(is_message, starts, _NO_PLACE)[1:], _NO_PLACE)
    low = np.maximum.accumulate(lows)
    high = np.minimum.accumulate(highs[::-1])[::-1]
    return (low < starts) & (starts < high)


def select(
    units: Units,
    log_start: PhysicalOffset,
    log_end: PhysicalOffset,
    tag_codes: frozenset[int] | None,
    codes: TagCodes | None = None,
    may_match: NDArray[np.bool_] | None = None,
) -> Selection:
    """Select messages by their units, at least one.

    Args:
        units: Units of one queue, in order.
        log_start: Log offset before which records are gone.
        log_end: End of the log. A damaged unit may lead behind it.
        tag_codes: Codes of the requested tags; None = all messages.
        codes: Tag codes of the units, if they were looked up. A message with an unknown code is
            selected, because its consumer compares the tag itself.
        may_match: Mask of the units that a filter may match; None = all.
    """
    sizes: Ints = units["size"].astype(np.int64)
    starts: Ints = units["offset"].astype(np.int64)
    first = int(starts[0])
    gone = first < log_start
    has_all = tag_codes is None and may_match is None
    if has_all and _are_within(starts, log_start, log_end) and _are_within(sizes, 1, PADDING_SIZE):
        return Selection(starts, sizes, None, is_gone=False)
    chosen = (sizes > 0) & (sizes != PADDING_SIZE) & (starts >= log_start) & (starts < log_end)
    if tag_codes is not None:
        found, is_known = plain_tag_codes(units) if codes is None else codes
        matched = _has_code(found.astype(np.int32), tag_codes)
        chosen &= matched if is_known is None else matched | ~is_known
    if may_match is not None:
        chosen &= may_match
    rows = np.flatnonzero(chosen)
    return Selection(
        starts[rows],
        sizes[rows],
        rows,
        is_gone=gone and int(sizes[0]) != PADDING_SIZE,
        wrong=_wrong(starts, sizes, log_start, log_end),
    )


def _are_within(numbers: Ints, least: int, end: int) -> bool:
    """Return whether all numbers are `least` or more, and less than `end`."""
    # A negative difference is a large number without its sign.
    return int((numbers - least).view(_UNSIGNED).max()) < end - least


def _wrong(starts: Ints, sizes: Ints, log_start: int, log_end: int) -> Sequence[int]:
    """Return the rows of units that point to no record although units before them do."""
    is_late = np.maximum.accumulate(starts) >= log_start
    wrong = (starts < 0) | (starts >= log_end) | (sizes <= 0) | (is_late & (starts < log_start))
    rows: list[int] = np.flatnonzero(wrong & (sizes != PADDING_SIZE)).tolist()
    return rows


def _has_code(codes: NDArray[np.int32], tag_codes: frozenset[int]) -> NDArray[np.bool_]:
    if len(tag_codes) > 4:
        return np.isin(codes, np.fromiter(tag_codes, dtype=np.int64, count=len(tag_codes)))
    matched = np.zeros(len(codes), dtype=bool)
    for code in tag_codes:
        matched |= codes == code
    return matched


def without_reading(
    offset: QueueOffset, bounds: tuple[QueueOffset, QueueOffset] | None
) -> tuple[ReadStatus, QueueOffset]:
    """Return the status that the offset alone decides, and the next offset; FOUND = read units.

    Args:
        offset: Queue offset of the first requested message.
        bounds: Queue offset of the first message, and behind the last; None = there is no queue.
    """
    if bounds is None:
        return ReadStatus.NO_MATCHED_LOGIC_QUEUE, QueueOffset(0)
    first, end = bounds
    if end == 0:
        return ReadStatus.NO_MESSAGE_IN_QUEUE, QueueOffset(0)
    if offset < first:
        return ReadStatus.OFFSET_TOO_SMALL, first
    if offset == end:
        return ReadStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > end:
        return ReadStatus.OFFSET_OVERFLOW_BADLY, end
    return ReadStatus.FOUND, offset


def units_within(units: Units, bytes_max: int) -> Units:
    """Return the first units: twice as many as fit if all records are as long as the first ones.

    A read without a filter returns no later message, so their units need no look.
    """
    first = units["size"][:_FIRST_UNITS]
    mean_bytes = int(first.sum(dtype=np.int64)) // len(first)
    if not OVERHEAD_BYTES <= mean_bytes <= RECORD_BYTES_MAX:
        return units  # padding, or damage
    return units[: 2 * bytes_max // mean_bytes + 1]


def take(starts: Ints, sizes: Ints, limits: ReadLimits, *, file_bytes: int, end: int) -> int:
    """Return how many of the messages, from the first on, one read returns.

    Args:
        starts: Log offsets of the records; a damaged unit may break their order.
        sizes: Lengths of the records.
        limits: Limits of the read.
        file_bytes: Length of a log file; a read ends with the file it begins in.
        end: Log offset behind the readable range; the first record begins before it.
    """
    count = min(len(starts), limits.messages_max)
    if count <= 1:
        return count
    ends = np.cumsum(sizes[:count])
    if ends[-1] > limits.bytes_max:
        count = max(int(np.searchsorted(ends, limits.bytes_max, side="right")), 1)
    return in_one_file(starts[:count], file_bytes=file_bytes, end=end)


def in_one_file(starts: Ints, *, file_bytes: int, end: int) -> int:
    """Return how many records, from the first on, lie in the file of the first.

    Args:
        starts: Log offsets of at least one record; a damaged unit may break their order.
        file_bytes: Length of a log file.
        end: Log offset behind the readable range; the first record begins before it.
    """
    base = base_of(int(starts[0]), file_bytes)
    # An offset before the file counts as behind it: a negative number without its sign is large.
    is_beyond = (starts - base).view(_UNSIGNED) >= min(file_bytes, end - base)
    return max(int(is_beyond.argmax()), 1) if is_beyond.any() else len(starts)


def runs(starts: Ints, sizes: Ints, *, gap_max: int = 0) -> list[tuple[int, int]]:
    """Return the start and the end of each run of records that lie close together.

    Args:
        starts: Log offsets of the records; ascending.
        sizes: Lengths of the records.
        gap_max: Most bytes between two records of one run.
    """
    ends = starts + sizes
    if len(starts) == 1:
        return [(int(starts[0]), int(ends[0]))]
    gaps = (starts[1:] - ends[:-1]).view(_UNSIGNED)
    cuts = np.flatnonzero(gaps > gap_max)  # a record before the one before it is far from it, too
    begins = [int(starts[0]), *starts[cuts + 1].tolist()]
    stops = [*ends[cuts].tolist(), int(ends[-1])]
    return list(zip(begins, stops, strict=True))


def are_records(
    view: memoryview, base: int, starts: Ints, sizes: Ints, place: MessagePositions
) -> NDArray[np.bool_]:
    """Return for each unit whether it points to a record of that offset, size and queue.

    Args:
        view: A log file, or a part of it.
        base: Log offset of the first byte of `view`.
        starts: Log offsets in the units.
        sizes: Sizes in the units.
        place: Queue and queue offsets that the records must claim.
    """
    good = _are_of_kind(view, base, starts, sizes, place, _HEADER_LAYOUTS[0])
    for kind in _HEADER_LAYOUTS[1:]:
        rows = np.flatnonzero(~good)
        if not len(rows):
            break
        good[rows] = _are_of_kind(view, base, starts[rows], sizes[rows], place.of(rows), kind)
    return good


def _are_of_kind(
    view: memoryview,
    base: int,
    starts: Ints,
    sizes: Ints,
    place: MessagePositions,
    kind: _HeaderLayout,
) -> NDArray[np.bool_]:
    good = np.zeros(len(starts), dtype=np.bool_)
    head_bytes = kind.head.itemsize
    if kind.magic == MAGIC_V1 and len(place.topic) > 255:
        return good
    topic = encode_topic(place.topic, kind.magic)
    if len(view) < head_bytes + len(topic):
        return good
    positions = np.clip(starts - base, 0, len(view) - head_bytes)
    headers = take_headers(view, positions, kind.head)
    topics = positions + head_bytes + headers["body_bytes"]
    good = (topics >= 0) & (topics + len(topic) <= positions + sizes)
    good &= (positions + sizes <= len(view)) & (headers["magic"] == kind.magic)
    good &= (headers["sys_flag"] & FLAG_HOSTS_MASK) == kind.host_flags
    good &= (headers["physical_offset"] == starts) & (headers["total_bytes"] == sizes)
    good &= (headers["queue_id"] == place.queue_id) & (headers["queue_offset"] == place.numbers)
    window: NDArray[np.bytes_] = np.ndarray(
        (len(view) - len(topic) + 1,), f"S{len(topic)}", view, strides=(1,)
    )
    matched: NDArray[np.bool_] = window[np.where(good, topics, 0)] == topic
    matched &= good
    return matched
