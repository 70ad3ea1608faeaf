"""The dispatcher: follows the log and tells each record to its consume queue.

There are two roads. The append leaves a hint with the units already made; where there is none
(after a restart, or when too many wait) the log itself is read. Both give the same bytes.

Source: RocketMQ `ReputMessageService`, `CommitLogDispatcherBuildConsumeQueue`.
"""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from ternmq_model.errors import CorruptRecord, IllegalName
from ternmq_model.names import SCHEDULE_TOPIC, check_topic
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import DELAY, decode_properties
from ternmq_model.record import FLAG_PREPARED, Record, decode_record
from ternmq_model.record_check import check_record
from ternmq_model.record_passes import tag_code_of
from ternmq_store.commit_log import CommitLog
from ternmq_store.consume_queue import ConsumeQueue, Units, make_units
from ternmq_store.consume_queues import ConsumeQueues

logger = logging.getLogger(__name__)

HINTED_RECORDS_MAX: Final = 1 << 20
"""Records that hints may stand for; about 40 bytes each. Beyond, the log is read instead."""

_SCAN_RECORDS: Final = 4096
_SECOND_MS: Final = 1000
_DELAYS_S: Final[tuple[int, ...]] = (1, 5, 10, 30, *range(60, 660, 60), 1200, 1800, 3600, 7200)


class Arrival(NamedTuple):
    """Messages of a queue became readable, up to and without `max_offset`."""

    topic: str
    queue_id: int
    max_offset: QueueOffset


class Dispatched(NamedTuple):
    """What one step did."""

    arrivals: Sequence[Arrival]
    more: bool
    """There is more to do at once."""


class HintPart(NamedTuple):
    """The units that one queue gets from a hint."""

    queue: ConsumeQueue
    first: QueueOffset
    units: Units


class Hint(NamedTuple):
    """What the append knew about the log from `start` to `end`."""

    start: PhysicalOffset
    end: PhysicalOffset
    stored_at_ms: int
    records: int
    parts: Sequence[HintPart]


@dataclass(slots=True)
class _Rows:
    """Units of one queue, as they are read."""

    queue_offsets: list[int] = field(default_factory=list[int])
    offsets: list[int] = field(default_factory=list[int])
    sizes: list[int] = field(default_factory=list[int])
    tag_codes: list[int] = field(default_factory=list[int])


class Dispatcher:
    """Feeds the consume queues, in the order of the log.

    Owned by `MessageStore`, on the store's thread.

    Attributes:
        offset: Everything before it is dispatched.
        stored_at_ms: Store time of the newest record dispatched.
        dropped: Of each deleted topic, the offset before which its records count no more.
        gaps: How often a scan met a message whose predecessor is not in its queue.
        scanned: Records that were read from the log because there was no hint.
        stopped_by: What was wrong with the bytes at `offset`, when a scan could not go on.
    """

    def __init__(self, log: CommitLog, queues: ConsumeQueues) -> None:
        self.log = log
        self._queues = queues
        self._hints: deque[Hint] = deque()
        self._hinted = 0
        self.dropped: dict[str, PhysicalOffset] = {}
        self.gaps = 0
        self.offset = PhysicalOffset(0)
        self.stored_at_ms = 0
        self.scanned = 0
        self.stopped_by: CorruptRecord | None = None

    def hint(self, hint: Hint) -> None:
        """Take a hint of the records just appended; it may be thrown away."""
        if self._hinted < HINTED_RECORDS_MAX:
            self._hints.append(hint)
            self._hinted += hint.records

    def step(self, limit: PhysicalOffset, *, messages_max: int) -> Dispatched:
        """Dispatch up to `limit`, and about `messages_max` records at most.

        Raises:
            OSError: There was no space for units. The step may be taken again.
        """
        moved: dict[ConsumeQueue, None] = {}
        count = 0
        while self.offset < limit and count < messages_max and self.stopped_by is None:
            while self._hints and self._hints[0].start < self.offset:
                self._hinted -= self._hints.popleft().records
            hint = self._hints[0] if self._hints else None
            if hint is not None and hint.start == self.offset and hint.end <= limit:
                count += hint.records
                self._follow(hint, moved)
                self._hinted -= self._hints.popleft().records
            else:
                end = limit if hint is None or hint.start == self.offset else hint.start
                before = self.offset
                count += self.scan(end, moved, records_max=messages_max - count)
                if self.offset == before:
                    break
        arrivals = [Arrival(queue.topic, queue.queue_id, queue.end) for queue in moved]
        more = self.offset < limit and count >= messages_max
        return Dispatched(arrivals, more)

    def _follow(self, hint: Hint, moved: dict[ConsumeQueue, None]) -> None:
        for queue, first, units in hint.parts:
            if self.dropped and hint.start < self.dropped.get(queue.topic, 0):
                continue
            if first == queue.end:
                queue.append(units)
            else:
                queue.put(np.arange(first, first + len(units), dtype=np.int64), units)
            moved[queue] = None
        self.offset = hint.end
        self.stored_at_ms = hint.stored_at_ms

    def scan(
        self,
        limit: PhysicalOffset,
        moved: dict[ConsumeQueue, None],
        *,
        records_max: int = _SCAN_RECORDS,
        is_trusted: bool = True,
    ) -> int:
        """Read records from the log and dispatch them.

        Args:
            limit: Where to stop; a record that ends later is left.
            moved: Gets the queues that have new units.
            records_max: How many records to read at most.
            is_trusted: The records are known to be whole. Else each is checked, and the first bad
                one is remembered in `stopped_by`.

        Returns:
            How many records were dispatched.

        Raises:
            OSError: There was no space for units; `offset` has not moved.
        """
        rows: dict[tuple[bytes, int], _Rows] = {}
        offset, stored_at_ms, count = self.offset, self.stored_at_ms, 0
        while offset < limit and count < min(records_max, _SCAN_RECORDS):
            try:
                record = self._read(offset, is_trusted=is_trusted)
            except CorruptRecord as error:
                self.stopped_by = error
                break
            if record is None:
                offset = PhysicalOffset(self.log.files.at(offset).end)
                continue
            header = record.header
            end = PhysicalOffset(offset + header.total_bytes)
            if end > limit:
                break
            if not header.sys_flag & FLAG_PREPARED:  # rolled back has that bit too
                row = rows.setdefault((record.topic, header.queue_id), _Rows())
                row.queue_offsets.append(header.queue_offset)
                row.offsets.append(offset)
                row.sizes.append(header.total_bytes)
                row.tag_codes.append(unit_tag_code(record))
            stored_at_ms = header.stored_at_ms
            offset = end
            count += 1
        for (topic, queue_id), row in rows.items():
            self._put(topic, queue_id, row, moved)
        self.offset, self.stored_at_ms = offset, stored_at_ms
        self.scanned += count
        return count

    def _read(self, offset: PhysicalOffset, *, is_trusted: bool) -> Record | None:
        if not self.log.files.has(offset):
            raise CorruptRecord(offset, "there is no file")
        file = self.log.files.at(offset)
        if is_trusted:
            return decode_record(file.view, offset - file.base, at=offset, check_crc=False)
        follows = self.log.files.has(file.end)
        return check_record(file.view, offset - file.base, at=offset, next_file=follows)

    def _put(
        self, topic: bytes, queue_id: int, rows: _Rows, moved: dict[ConsumeQueue, None]
    ) -> None:
        try:
            name = check_topic(topic.decode("ascii", "replace"))
        except IllegalName as error:
            logger.warning("records left out of queues count=%d %s", len(rows.offsets), error)
            return
        if queue_id < 0 or min(rows.queue_offsets) < 0:
            logger.warning("records left out of queues topic=%s queue=%d", name, queue_id)
            return
        offsets = np.array(rows.offsets, dtype=np.int64)
        queue_offsets = np.array(rows.queue_offsets, dtype=np.int64)
        sizes, codes = np.array(rows.sizes, np.int64), np.array(rows.tag_codes, np.int64)
        keep = offsets >= self.dropped.get(name, 0)
        if keep.any():
            queue = self._queues.of(name, queue_id)
            units = make_units(offsets[keep], sizes[keep], codes[keep])
            self.gaps += not queue.put(queue_offsets[keep], units)
            moved[queue] = None


def unit_tag_code(record: Record) -> int:
    """Return what a unit keeps of a record's tag, or of the time until which it is delayed.

    Source: RocketMQ `CommitLog.checkMessageAndReturnSize`.
    """
    if record.topic == SCHEDULE_TOPIC.encode():
        level = decode_properties(record.properties).get(DELAY, "")
        if level.isascii() and level.isdigit() and int(level) > 0:
            delay_s = _DELAYS_S[min(int(level), len(_DELAYS_S)) - 1]
            return record.header.stored_at_ms + delay_s * _SECOND_MS
    return tag_code_of(record.properties)
