"""Finding the record of a message whose consume queue unit is damaged, and what its unit must be.

A queue's records lie in the log in the order of their numbers, so the record lies between those of
its neighbours. It is looked for there by the queue id and the queue offset in its head, and counts
only when all of it is verified and names the topic. Plain values: for any thread.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

import numpy as np

from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record import (
    BLANK_BYTES,
    FLAG_PREPARED,
    MAGIC_V1,
    MAGIC_V2,
    OVERHEAD_BYTES,
    RECORD_BYTES_MAX,
    SIZE_BYTES,
)
from ternmq_model.record_batch import RecordBatch
from ternmq_model.record_heads import Ints
from ternmq_model.record_scan import scan_records
from ternmq_store.hints import stored_units
from ternmq_store.queues.consume_queue import ConsumeQueue, are_same_codes, are_same_places
from ternmq_store.queues.consume_queue_ext import ExtSource, TagCodes, plain_tag_codes
from ternmq_store.queues.unit_files import UnitFiles
from ternmq_store.queues.units import PADDING_SIZE, Mend, Unit, Units, unit_of
from ternmq_store.reading.source import Source

SEARCH_BYTES: Final = 64 << 20
"""Of the log, looked through in one go; the next read of the message goes on there."""

IN_VAIN: Final = 1 << 62
"""Behind every place: the log has no good record of the message."""

_PIECE_BYTES: Final = 512 << 10
_NEIGHBOURS: Final = 32
"""So many units on each side are looked at for a good one."""

_OFFSET_BITS: Final = 63
_MAGIC_AT: Final = SIZE_BYTES
_HEAD_BYTES: Final = 28
"""A record's head up to its queue offset."""

_MAGICS: Final = tuple(magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2))
_ALIKE: Final = slice(3)


class QueueSource(NamedTuple):
    """One queue's units: where they lie, and what is known of them."""

    topic: str
    queue_id: int
    files: UnitFiles
    floor: PhysicalOffset
    """Records of the topic before it count no more."""

    ext: ExtSource | None
    """What the units have no room for, if there is such a thing."""

    sought: Mapping[int, int]
    """Messages whose records were looked for: up to which place of the log, or `IN_VAIN`."""


class Found(NamedTuple):
    """What a search came to."""

    unit: Units | None
    """The right unit; None while the record is not found."""

    place: int
    """Up to here the log was looked through; `IN_VAIN` when nothing is left."""


def source_of(
    queue: ConsumeQueue, source: Source, floor: PhysicalOffset, sought: Mapping[int, int]
) -> QueueSource:
    """Return a queue as it is now, for who reads it in another thread."""
    units = UnitFiles(
        *(source.files, queue.files.folder, queue.files.file_bytes, queue.min_offset, queue.end)
    )
    ext = None if queue.ext is None else queue.ext.source()
    return QueueSource(queue.topic, queue.queue_id, units, floor, ext, sought)


def units_in(
    batch: RecordBatch, topic: str, queue_id: int, floor: PhysicalOffset
) -> tuple[Ints, Units]:
    """Return the numbers of one queue's messages in a verified batch, and their right units."""
    for queue in batch.queues:
        if (queue.topic, queue.queue_id) == (topic, queue_id):
            return counted(batch, topic, queue.rows, floor)
    none = np.zeros(0, dtype=np.int64)
    return none, stored_units(batch, topic, none)


def counted(
    batch: RecordBatch, topic: str, rows: Ints, floor: PhysicalOffset
) -> tuple[Ints, Units]:
    """Return numbers and right units of those rows of a topic that have units."""
    heads = batch.heads
    is_message = (heads["sys_flag"][rows] & FLAG_PREPARED) == 0
    rows = rows[is_message & (heads["physical_offset"][rows] >= floor)]
    return heads["queue_offset"][rows].astype(np.int64), stored_units(batch, topic, rows)


class UnitSearch:
    """Searches for one queue. Keeps one file of it open, and one of the log."""

    def __init__(self, source: Source, queue: QueueSource) -> None:
        self._source = source
        self._queue = queue

    def unit_at(self, number: int, place: int) -> Units | None:
        """Return the right unit of a message if its good record begins at `place` of the log.

        Raises:
            OSError: The disk failed.
        """
        queue, batch = self._queue, record_at(self._source, place)
        if batch is None:
            return None
        numbers, units = units_in(batch, queue.topic, queue.queue_id, queue.floor)
        return units if numbers.tolist() == [number] else None

    def fits(self, number: int, unit: Unit) -> bool:
        """Tell whether a unit tells where the message's good record is, and how long.

        Raises:
            OSError: The disk failed.
        """
        right = None if unit.size == PADDING_SIZE else self.unit_at(number, unit.offset)
        return right is not None and int(right["size"][0]) == unit.size

    def codes_of(self, units: Units) -> TagCodes:
        """Return the tag codes of units, wherever they are kept.

        Raises:
            OSError: The disk failed.
        """
        ext = self._queue.ext
        return plain_tag_codes(units) if ext is None else ext.tag_codes(units)

    def mends(
        self, numbers: Ints, there: Units, right: Units, codes: TagCodes | None = None
    ) -> list[Mend]:
        """Return which units of messages are damaged, given the right ones of good records.

        A unit that tells of another good record of the same number stays: the number was given
        twice. A code that is right stays where it is kept.

        Raises:
            OSError: The disk failed.
        """
        codes = self.codes_of(there) if codes is None else codes
        same_codes = are_same_codes(self._queue.topic, codes, right)
        same_places = are_same_places(there, right)
        found: list[Mend] = []
        for row in np.flatnonzero(~(same_places & same_codes)).tolist():
            number, was, unit = (
                QueueOffset(int(numbers[row])),
                unit_of(there, row),
                unit_of(right, row),
            )
            if not same_places[row] and self.fits(number, was):
                continue
            if same_codes[row]:
                unit = unit._replace(tag_code=was.tag_code)
            found.append(Mend(number, was, unit))
        return found

    def find_all(self, number: int, was: Unit) -> Units | None:
        """Return the right unit of a message whose unit says `was`; None if the log has no record.

        Raises:
            OSError: The disk failed.
        """
        found = self.find(number, was)
        while found.unit is None and found.place != IN_VAIN:
            found = self.find(number, was, begin=found.place)
        return found.unit

    def find(self, number: int, was: Unit, *, begin: int | None = None) -> Found:
        """Look for the record of a message whose unit says `was`, in a part of the log at most.

        Args:
            number: Of the message.
            was: What is there.
            begin: Where an earlier look ended. None = where one that is remembered did.

        Raises:
            OSError: The disk failed.
        """
        begin = self._queue.sought.get(number, -1) if begin is None else begin
        if begin == IN_VAIN:
            return Found(None, IN_VAIN)
        low, high = self._between(number)
        if begin < 0:
            for place in (was.offset, *(was.offset ^ 1 << bit for bit in range(_OFFSET_BITS))):
                if low <= place < high and (unit := self.unit_at(number, place)) is not None:
                    return Found(unit, place)
        low = max(low, begin)
        end = min(high, low + SEARCH_BYTES)
        for place in self._claims(number, low, end):
            if (unit := self.unit_at(number, place)) is not None:
                return Found(unit, place)
        return Found(None, end if end < high else IN_VAIN)

    def _between(self, number: int) -> tuple[int, int]:
        """Return where the good neighbours of a message end and begin in the log."""
        files = self._queue.files
        low, high = int(max(self._source.start, self._queue.floor)), int(self._source.end)
        before = range(number - 1, max(number - _NEIGHBOURS, files.min_offset) - 1, -1)
        behind = range(number + 1, min(number + 1 + _NEIGHBOURS, files.end))
        if (unit := self._first_good(before)) is not None:
            low = max(low, unit.offset + unit.size)
        if (unit := self._first_good(behind)) is not None:
            high = min(high, unit.offset)
        return low, high

    def _first_good(self, numbers: Sequence[int]) -> Unit | None:
        for number in numbers:
            unit = self._queue.files.unit(QueueOffset(number))
            if self.fits(number, unit):
                return unit
        return None

    def _claims(self, number: int, low: int, high: int) -> Iterator[int]:
        """Yield where records begin, from `low` on before `high`, that say they are the message."""
        source, pattern = self._source, _pattern(self._queue.queue_id, number)
        while low < high:
            base = low - low % source.file_bytes
            end = min(high, base + source.file_bytes)
            with ExitStack() as stack, contextlib.suppress(FileNotFoundError):
                file, _ = source.open(low)
                stack.callback(file.close)
                for at in range(low, end, _PIECE_BYTES):
                    length = min(_PIECE_BYTES, end - at) + _HEAD_BYTES - 1
                    data = file.read(at - base, length)
                    yield from (at + found.start() - _MAGIC_AT for found in pattern.finditer(data))
            low = end


def record_at(source: Source, place: int) -> RecordBatch | None:
    """Return the record that begins at `place` of the log, verified; None if no good one does.

    Raises:
        OSError: The disk failed.
    """
    if not source.start <= place < source.end:
        return None
    try:
        file, base = source.open(place)
    except FileNotFoundError:
        return None
    try:
        size = int.from_bytes(file.read(place - base, SIZE_BYTES), "big")
        if not OVERHEAD_BYTES <= size <= min(RECORD_BYTES_MAX, source.end - place):
            return None
        data = memoryview(file.read(place - base, size + BLANK_BYTES))
    finally:
        file.close()
    at = PhysicalOffset(place)
    return scan_records(data, 0, size, at=at, records_max=1, verify=source.verify(at)).batch


def _pattern(queue_id: int, number: int) -> re.Pattern[bytes]:
    """Return what the heads of a message's records look like, from the magic on."""
    last = b"".join(re.escape(magic[3:]) for magic in _MAGICS)
    return re.compile(
        re.escape(_MAGICS[0][_ALIKE])
        + b"["
        + last
        + b"].{4}"
        + re.escape(queue_id.to_bytes(4, "big"))
        + b".{4}"
        + re.escape(number.to_bytes(8, "big")),
        re.DOTALL,
    )
