"""Reads of a store: queues, their messages, single records.

Messages in memory are read from the map, at once. The others are read in another thread:
`plan_read` and `plan_record` then return a task, and `finish` accepts its outcome.
"""

import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.clock import Clock
from ternmq_model.offsets import UNIT_BYTES, PhysicalOffset, QueueOffset, logic_offset
from ternmq_model.record.header_arrays import have_sizes_and_offsets
from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import commit_log_folder
from ternmq_store.dispatch.log_dispatcher import Arrival
from ternmq_store.log.quarantine import DamagedRange
from ternmq_store.opened_files import OpenedFiles
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.read_request import ReadLimits, ReadRequest, ReadResult, ReadStatus
from ternmq_store.queues.units import first_units
from ternmq_store.read.cold_read import BadRecord, ColdRead, DanglingUnits
from ternmq_store.read.log_source import LogSource
from ternmq_store.read.map_read import newest_record, slices, take_wanted
from ternmq_store.read.message_selection import (
    are_records,
    select,
    units_within,
    without_reading,
)
from ternmq_store.read.read_repair import ReadRepair
from ternmq_store.read.record_reader import ColdRecord
from ternmq_store.read.residency import Residency
from ternmq_store.read.unit_search import QueueSource
from ternmq_store.store_statistics import ReaderLag, StoreStatistics

logger = logging.getLogger(__name__)

_UNITS_AHEAD: Final = 3_200
"""Units that a cold read loads into memory for the next reads: 64 KB of them."""

_EVERYTHING: Final = 1 << 62


class StoreReads:
    """Reader of dispatched messages, which repairs units that do not fit their records.

    Owned by `MessageStore`, on the store's thread.

    Attributes:
        config: Settings of the store: limits of a read, and the share of memory for the log.
        quarantine: Damaged ranges of the log, which reads skip.
        memory_bytes: Memory of the machine. Records further behind the log's end than the
            configured share of it are read from the disk.
        bad_records: Count of records that were not served because they are damaged.
        repair: Repair of units that do not point to their message.
    """

    def __init__(
        self,
        opened: OpenedFiles,
        statistics: StoreStatistics,
        config: StoreConfig,
        files: FileSystem,
        root: Path,
        clock: Clock,
    ) -> None:
        self._log = opened.log
        self._queues = opened.queues
        self._dispatcher = opened.dispatcher
        self._statistics = statistics
        self.config = config
        self._files = files
        self._folder = commit_log_folder(root)
        self._clock = clock
        self.quarantine = opened.session.quarantine
        self.memory_bytes = _EVERYTHING
        self.bad_records = 0
        self.repair = ReadRepair()
        self._session = opened.session
        self._dangling = DanglingUnits()
        self._memory = Residency(self._log.end, self._dispatcher.offset, self._queues)

    @property
    def dangling_units(self) -> Sequence[DamagedRange]:
        """Ranges of the log to which units point without their record."""
        return self._dangling.ranges(self._log.start, self._log.files.file_bytes)

    @property
    def log_files(self) -> int:
        """Count of the log's files."""
        return len(self._log.files.files)

    def queues(self) -> Sequence[tuple[str, int]]:
        """Return topic and queue id of every queue, sorted."""
        return sorted((queue.topic, queue.queue_id) for queue in self._queues)

    def next_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Return the queue offset that the next message gets."""
        queue = self._queues.find(topic, queue_id)
        return queue.next_offset if queue else QueueOffset(0)

    def queue_range(self, topic: str, queue_id: int) -> tuple[QueueOffset, QueueOffset]:
        """Return the offset of the first readable message, and the offset behind the last one."""
        queue = self._queues.find(topic, queue_id)
        return (queue.min_offset, queue.end) if queue else (QueueOffset(0), QueueOffset(0))

    def last_stored_at_ms(self, topic: str, queue_id: int) -> int:
        """Return the store time of the queue's newest readable message; 0 if it has none."""
        queue = self._queues.find(topic, queue_id)
        unit = queue.last_unit() if queue else None
        record = self._log.record_at(unit.offset, self._dispatcher.offset) if unit else None
        return record.header.stored_at_ms if record else 0

    def dispatched(self, arrivals: Sequence[Arrival]) -> None:
        """Record the messages that became readable."""
        end, distance = self._dispatcher.offset, self.hot_bytes >> 4
        for arrival in arrivals:
            queue = self._queues.find(arrival.topic, arrival.queue_id)
            if queue is not None and queue.end:
                self._memory.units_of(queue).follow(queue, end, distance)

    @property
    def hot_bytes(self) -> int:
        """Bytes of the log, up to its end, that count as in memory."""
        return self.memory_bytes * self.config.access_message_in_memory_max_ratio // 100

    @property
    def _border(self) -> int:
        return self._log.end - self.hot_bytes

    def in_memory_to(self, offset: PhysicalOffset) -> int:
        """Return the end of the log in memory from `offset` on; `offset` if it is evicted."""
        return self._memory.log.end_at(offset) if offset >= self._border else offset

    def units_in_memory_to(self, queue: ConsumeQueue, offset: QueueOffset) -> int:
        """Return the end of a queue's units in memory from `offset` on; `offset` without any."""
        return self._memory.units_of(queue).end_at(offset, self._border)

    def limits(self) -> tuple[ReadLimits, ReadLimits]:
        """Return RocketMQ's limits of one read: from memory, and from the disk."""
        config = self.config
        return (
            ReadLimits(config.read_memory_messages_max, config.read_memory_bytes_max),
            ReadLimits(config.read_disk_messages_max, config.read_disk_bytes_max),
        )

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: QueueOffset,
        *,
        messages_max: int = 32,
        bytes_max: int = 262_144,
        tag_codes: frozenset[int] | None = None,
    ) -> ReadResult:
        """Return messages of a queue from `offset` on, as copies of their records.

        The read is made at once, from memory or disk, with the rules of `plan_read`: for tools and
        tests.

        Raises:
            OSError: The disk failed.

        Source: RocketMQ `DefaultMessageStore.getMessage`.
        """
        most = ReadLimits(messages_max, bytes_max)
        request = ReadRequest(
            topic=topic, queue_id=queue_id, offset=offset, hot=most, cold=most, tag_codes=tag_codes
        )
        result = self.plan_read(request)
        if isinstance(result, ColdRead):
            try:
                result.run()
            finally:
                self.release(result)
            result = self.finish(result)
        return replace(result, pieces=(result.records,) if result.pieces else ())

    def plan_read(self, request: ReadRequest) -> ReadResult | ColdRead:
        """Read messages of a queue from an offset on, from memory if they are there.

        The first message may be longer than the limit. A read with a filter inspects 800 messages
        at most, or as many as it may return, and may find none. A read ends with its file of the
        queue or of the log.

        Returns:
            The result; or a task for another thread, whose outcome `finish` accepts.

        Source: RocketMQ `DefaultMessageStore.getMessage`.
        """
        plan = self.plan_read_within(request, room=sys.maxsize)
        assert plan is not None, "no messages are that long"
        return plan

    def plan_read_within(self, request: ReadRequest, *, room: int) -> ReadResult | ColdRead | None:
        """Return the plan of `plan_read`; None for messages in memory of more than `room` bytes.

        No statistics count those: their reader comes again.
        """
        begun_at = self._clock.monotonic_ms()
        queue = self._queues.find(request.topic, request.queue_id)
        result = self._without_reading(request, queue)
        if result is None:
            assert queue is not None, "a read without a queue has a result"
            border = self._border
            units_end = self._memory.units_of(queue).end_at(request.offset, border)
            if units_end > request.offset:
                result = self._read_newest(request, queue, border=border)
                result = result or self._read_map(request, queue, units_end, border=border)
            if result is None:
                return self._plan_cold(request, queue, begun_at)
        if result.record_bytes > room:
            return None
        self._count(request, result, begun_at, from_disk=False)
        return result

    def _count(
        self, request: ReadRequest, result: ReadResult, begun_at_ms: int, *, from_disk: bool
    ) -> None:
        count, statistics = len(result.record_sizes), self._statistics
        took_ms = self._clock.monotonic_ms() - begun_at_ms
        statistics.got(count, took_ms=took_ms, from_disk=from_disk)
        if not count:
            return
        now_ms = self._clock.wall_ms()
        if statistics.observer is not None:
            statistics.observer.got(request, result, took_ms, now_ms, from_disk=from_disk)
        if request.group and self.config.disk_fall_recorded:
            lag = result.max_offset - result.next_offset
            behind = ReaderLag(result.behind_bytes, lag, now_ms)
            statistics.fell_behind(request.group, request.topic, request.queue_id, behind)

    def _without_reading(
        self, request: ReadRequest, queue: ConsumeQueue | None
    ) -> ReadResult | None:
        bounds = (queue.min_offset, queue.end) if queue else None
        status, next_offset = without_reading(request.offset, bounds)
        if status is not ReadStatus.FOUND:
            first, end = bounds or (QueueOffset(0), QueueOffset(0))
            return ReadResult(status, next_offset, first, end)
        assert queue is not None, "a read without a queue has another status"
        if not queue.files.has(logic_offset(request.offset)):
            return self._found_null(request, queue)
        return None

    def _found_null(self, request: ReadRequest, queue: ConsumeQueue) -> ReadResult:
        units = queue.files.file_bytes // UNIT_BYTES
        next_offset = QueueOffset(request.offset - request.offset % units + units)
        return ReadResult(
            ReadStatus.OFFSET_FOUND_NULL,
            QueueOffset(min(next_offset, queue.end)),
            queue.min_offset,
            queue.end,
        )

    def _read_newest(
        self, request: ReadRequest, queue: ConsumeQueue, *, border: int
    ) -> ReadResult | None:
        least, damaged = max(border, self._memory.log_end), self.quarantine.places
        found = newest_record(request, queue, self._log, damaged, least=least)
        return found and self._result(
            request,
            queue,
            scanned=1,
            is_gone=False,
            last=found.start,
            pieces=(found.data,),
            sizes=np.array((len(found.data),), dtype=np.int64),
            skipped=0,
        )

    def _read_map(
        self, request: ReadRequest, queue: ConsumeQueue, units_end: int, *, border: int
    ) -> ReadResult | None:
        """Return messages from the map; None when they are not in memory, or a unit is damaged.

        Args:
            request: Request of the reader.
            queue: Queue of the request, which has a message at its offset.
            units_end: Queue offset behind the units in memory.
            border: Log offset at which the memory begins.
        """
        log, count = self._log, request.units_max(request.hot)
        units = queue.units(request.offset, min(count + _UNITS_AHEAD, units_end - request.offset))
        ahead, units = units, first_units(units, count)
        if not request.has_filter:
            units = units_within(units, request.hot.bytes_max)
        codes = None if request.tag_codes is None else queue.tag_codes(units)
        test, ext = request.bit_map_filter, queue.ext
        may_match = None if test is None or ext is None else ext.may_match(units, test)
        chosen = select(units, log.start, log.end, request.tag_codes, codes, may_match)
        chosen, bad_rows = chosen.without(self.quarantine.places, ahead, queue, request.offset)
        if not len(chosen.starts):
            taken, kept = 0, chosen
        else:
            first = int(chosen.starts[0])
            end = self._memory.log.end_at(first) if first >= border else first
            if end <= first:
                return None
            taken, kept = take_wanted(log, request, chosen, end)
            if first < self._memory.log_end and len(kept.starts):
                file = log.files.at(int(kept.starts[0]))
                place = kept.positions(request)
                if not are_records(file.view, file.base, kept.starts, kept.sizes, place).all():
                    return None  # a cold read finds the damage, if there is any
            elif len(kept.starts):
                file = log.files.at(int(kept.starts[0]))
                numbers = kept.numbers(request)
                starts = kept.starts - file.base
                if not have_sizes_and_offsets(file.view, starts, kept.sizes, numbers):
                    return None
        scanned = chosen.scanned(taken, len(units))
        wrong = [request.offset + row for row in chosen.wrong if row < scanned]
        if chosen.is_gone or (wrong and not self.repair.is_in_vain(queue, wrong)):
            return None
        return self._result(
            request,
            queue,
            scanned=scanned,
            is_gone=chosen.is_gone,
            last=int(units["offset"][scanned - 1]),
            pieces=slices(log, kept),
            sizes=kept.sizes,
            skipped=len(wrong) + (int((bad_rows < scanned).sum()) if len(bad_rows) else 0),
        )

    def _result(
        self,
        request: ReadRequest,
        queue: ConsumeQueue,
        *,
        scanned: int,
        is_gone: bool,
        last: int,
        pieces: Sequence[bytes | memoryview],
        sizes: Ints,
        skipped: int,
    ) -> ReadResult:
        if len(sizes):
            status = ReadStatus.FOUND
        elif is_gone:
            status = ReadStatus.MESSAGE_WAS_REMOVING
        else:
            status = ReadStatus.NO_MATCHED_MESSAGE
        behind = max(int(self._log.end) - last, 0)
        return ReadResult(
            status,
            QueueOffset(request.offset + scanned),
            queue.min_offset,
            queue.end,
            pieces,
            sizes.astype(np.int32),
            scanned,
            skipped,
            behind,
            suggest_pull_from_slave=last < self._border,
        )

    def _plan_cold(self, request: ReadRequest, queue: ConsumeQueue, begun_at_ms: int) -> ColdRead:
        file = queue.files.at(logic_offset(request.offset))
        file.hold()
        return ColdRead(
            request=request,
            source=self.source(),
            queue=queue,
            units=self.source_of(queue),
            units_max=max(request.units_max(request.cold), _UNITS_AHEAD),
            held=(file,),
            begun_at_ms=begun_at_ms,
        )

    def source_of(self, queue: ConsumeQueue) -> QueueSource:
        """Return the source of a queue's units, for reads in another thread."""
        floor = self._dispatcher.dropped.get(queue.topic, PhysicalOffset(0))
        units = queue.units_between(queue.min_offset, queue.end)
        ext = None if queue.ext is None else queue.ext.source()
        searched = self.repair.searched(queue)
        return QueueSource(queue.topic, queue.queue_id, units, floor, ext, searched)

    def source(self) -> LogSource:
        """Return the source of the dispatched log, for reads in another thread."""
        return LogSource(
            files=self._files,
            folder=self._folder,
            file_bytes=self._log.files.file_bytes,
            start=self._log.start,
            end=self._dispatcher.offset,
            verify=self._session.verify,
            read_ahead=self.config.read_ahead_enabled,
            beginnings=self._memory.log.ends(),
            damaged=self.quarantine.places,
        )

    def finish(self, plan: ColdRead) -> ReadResult:
        """Return the result of a task that has run, even if its topic was created again."""
        self.release(plan)
        result = self._result_of(plan)
        self._count(plan.request, result, plan.begun_at_ms, from_disk=True)
        return result

    def _result_of(self, plan: ColdRead) -> ReadResult:
        request, outcome = plan.request, plan.outcome
        for bad in outcome.bad:
            self._note_bad(bad)
        queue = self._queues.find(request.topic, request.queue_id)
        if queue is None or queue is not plan.queue:
            return self._changed(request, queue)
        self._memory.log.forget_before(self._border)
        if outcome.touched is not None and outcome.touched[0] >= self._log.start:
            self._memory.log.add(*outcome.touched)
        if not outcome.units:
            return self._found_null(request, queue)
        self.repair.repair(queue, outcome.repairs)
        self.repair.note_searched(queue, outcome.searched)
        end = request.offset + outcome.units
        self._memory.units_of(queue).add(request.offset, end, outcome.first)
        return self._result(
            request,
            queue,
            scanned=outcome.scanned,
            is_gone=outcome.is_gone,
            last=outcome.last,
            pieces=outcome.pieces,
            sizes=np.array(outcome.sizes, dtype=np.int64),
            skipped=len(outcome.bad) + len(outcome.wrong) + outcome.lost,
        )

    def _changed(self, request: ReadRequest, queue: ConsumeQueue | None) -> ReadResult:
        """Return the result when another queue has replaced the one that was read: read again."""
        result = self._without_reading(request, queue)
        if result is not None:
            return result
        assert queue is not None, "a read without a queue has a result"
        return ReadResult(
            ReadStatus.NO_MATCHED_MESSAGE, request.offset, queue.min_offset, queue.end
        )

    def _note_bad(self, bad: BadRecord) -> None:
        self.bad_records += 1
        if not bad.is_there:
            self._dangling.add(bad)
        elif self.quarantine.add(bad.start, PhysicalOffset(bad.start + bad.size), bad.reason):
            logger.error("damaged record not served log_offset=%d bytes=%d reason=%s", *bad[:3])

    def release(self, plan: ColdRead | ColdRecord) -> None:
        """Release the files that `plan` holds. `finish` calls it too."""
        for file in plan.held:
            file.release()
        plan.held = ()

    def record_at(
        self, offset: PhysicalOffset, end: PhysicalOffset, *, is_checked: bool = True
    ) -> bytes | None:
        """Return the record that begins at `offset` and ends by `end`; None if there is none.

        The read is made at once, from the map. A caller that checks all of it passes
        `is_checked=False`.
        """
        log = self._log
        if (is_checked and log.record_at(offset, end) is None) or not log.files.has(offset):
            return None
        record = log.files.at(offset).sized_at(offset)
        if record is None or offset + len(record) > end or self.quarantine.end_at(offset):
            return None
        return bytes(record)

    def plan_record(
        self, offset: PhysicalOffset, end: PhysicalOffset, *, is_checked: bool = True
    ) -> ColdRecord | bytes | None:
        """Return the record as `record_at`; if it is not in memory, a task for another thread.

        After its run the task has `record`, which it checks in any case. `release` must follow.
        """
        if not self._log.files.has(offset) or offset >= end:
            return None
        if self.in_memory_to(offset) > offset:
            return self.record_at(offset, end, is_checked=is_checked)
        file = self._log.files.at(offset)
        file.hold()
        return ColdRecord(replace(self.source(), end=end), offset, (file,))
