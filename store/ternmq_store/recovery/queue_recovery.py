"""Recovery of consume queues: their ends before it, findings, and a comparison with the log.

Without notes of a log only the ends of its queues show its length. Queue offsets that were assigned
are not assigned again, even when their records are gone.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints
from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import UNIT_BYTES, PhysicalOffset, QueueOffset
from ternmq_model.record.checksum import verify_checksum
from ternmq_model.record.format import OVERHEAD_BYTES, RECORD_BYTES_MAX, Record
from ternmq_model.record.integrity import check_record
from ternmq_store.disk.layout import file_name
from ternmq_store.log.checksum_ranges import Ranges, is_inside
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.log.log_notes import LastUse
from ternmq_store.log.store_session import StoreSession
from ternmq_store.opened_files import RecoveryAction, RecoveryFinding, RecoveryFindings
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.consume_queues import ConsumeQueues
from ternmq_store.queues.unit_files import UnitFiles
from ternmq_store.queues.units import PADDING_SIZE
from ternmq_store.recovery.log_scan import record_lies_at

_HEAD_BYTES: Final = 65_536
_ANYWHERE: Final = PhysicalOffset((1 << 63) - 1)

QueueKey = tuple[str, int]


class QueueTail(NamedTuple):
    """The last units of a queue, back to one with a good record or one removed with its file."""

    first: QueueOffset
    """Queue offset of the first of these units."""

    places: Ints
    """Log offsets of the records; padding has that of the record before it."""

    are_lost: NDArray[np.bool_]
    """Mask: True for units of records in bytes that no file of the log has."""

    def end(self, limit: PhysicalOffset) -> QueueOffset:
        """Return the offset behind the last record before `limit` or lost; 0 = there is none."""
        rows = np.flatnonzero((self.places < limit) | self.are_lost)
        return QueueOffset(self.first + int(rows[-1]) + 1 if len(rows) else 0)


class QueueEnds(NamedTuple):
    """Ends of a store's queues, by their files."""

    known_end: PhysicalOffset
    """Greatest end of a record with a unit, at most that of the log's files; 0 = there is none."""

    ends: Mapping[QueueKey, QueueOffset]
    """Offset behind the last unit of each queue."""

    tails: Mapping[QueueKey, QueueTail]
    """Last units of each queue with files."""

    def given(self, limit: PhysicalOffset) -> Mapping[QueueKey, QueueOffset]:
        """Return the least next offset of each queue.

        RocketMQ cuts a queue where it cuts the log, and so does this store behind its notes.
        Padding before later messages would hide them from RocketMQ, which takes padding for removed
        messages and skips the rest of the same answer.

        Records in bytes without a file were on the disk, since each file is made durably and of its
        full length before its first record. The file may be put back.

        Args:
            limit: End of the log, or noted offset up to which it was on the disk.
        """
        return {key: tail.end(limit) for key, tail in self.tails.items()}


def read_queue_ends(
    log: CommitLog, queues: Iterable[ConsumeQueue], is_missing: Callable[[int], bool]
) -> QueueEnds:
    """Return the ends of all queues by their files, without a change.

    `is_missing` returns whether no file had a byte of the log at its opening.
    """
    limit = PhysicalOffset(log.files.last.end if log.files.files else 0)
    known_end = PhysicalOffset(0)
    ends: dict[QueueKey, QueueOffset] = {}
    tails: dict[QueueKey, QueueTail] = {}
    for queue in queues:
        key = (queue.topic, queue.queue_id)
        with closing(queue.unit_files()) as units:
            ends[key] = end = units.count_before(_ANYWHERE)
            if queue.files.files:
                tails[key] = _queue_tail(log, units, end, is_missing)
            inside = units.written_unit(QueueOffset(units.count_before(limit) - 1))
        if inside is not None and OVERHEAD_BYTES <= inside.size <= RECORD_BYTES_MAX:
            known_end = max(known_end, min(limit, PhysicalOffset(inside.offset + inside.size)))
    return QueueEnds(known_end, ends, tails)


def _queue_tail(
    log: CommitLog, files: UnitFiles, end: QueueOffset, is_missing: Callable[[int], bool]
) -> QueueTail:
    """Return the last units of a queue that ends at `end`."""
    # Doubled steps find a good record before any damage without a read of the whole queue.
    begin, step = files.min_offset, 1
    first = QueueOffset(max(end - step, begin))
    while first > begin and not _is_settled(log, files, first):
        step *= 2
        first = QueueOffset(max(end - step, begin))
    units = files.written_from(first)
    offsets, sizes = units["offset"].astype(np.int64), units["size"].astype(np.int64)
    is_message = (sizes >= OVERHEAD_BYTES) & (sizes <= RECORD_BYTES_MAX)
    lasts = (offsets + sizes - 1).tolist()
    are_lost = is_message & np.array([is_missing(last) for last in lasts], dtype=np.bool_)
    rows = np.maximum.accumulate(np.where(is_message, np.arange(len(units)), 0))
    places = np.where(is_message, offsets, _ANYWHERE)[rows]
    return QueueTail(first, places, are_lost[rows])


def _is_settled(log: CommitLog, files: UnitFiles, number: QueueOffset) -> bool:
    """Return whether the record of a unit is good, or was removed with the first files."""
    unit = files.written_unit(number)
    if unit is None or unit.size > RECORD_BYTES_MAX:
        return False
    if not log.files.has(unit.offset):
        return unit.offset < log.start
    file = log.files.at(unit.offset)
    try:
        record = check_record(file.view, unit.offset - file.base, at=unit.offset, next_file=True)
    except CorruptRecord:
        return False
    return record is not None and record.header.queue_offset == number


def find_repairs(
    queues: Iterable[ConsumeQueue], before: Mapping[QueueKey, QueueOffset]
) -> Iterable[RecoveryFinding]:
    """Yield the units that a scan of the whole log added, by the ends of the queues before it."""
    for queue in queues:
        end = before.get((queue.topic, queue.queue_id), QueueOffset(0))
        added, path = queue.end - end, queue.files.folder
        if added > 0:
            reason = f"{added} units were missing"
            yield RecoveryFinding(
                RecoveryAction.REPAIRED, path, end * UNIT_BYTES, added * UNIT_BYTES, reason
            )


def find_cuts(
    queues: Iterable[ConsumeQueue], before: Mapping[QueueKey, QueueOffset]
) -> Iterable[RecoveryFinding]:
    """Yield the queues that are shorter than before: later messages get the same offsets."""
    for queue in queues:
        old, end = before.get((queue.topic, queue.queue_id), QueueOffset(0)), queue.end
        if end < old:
            reason = f"{queue.topic} {queue.queue_id} ended at {old} and ends at {end} now: "
            reason += "the log has lost its last messages"
            at, cut_bytes = end * UNIT_BYTES, (old - end) * UNIT_BYTES
            yield RecoveryFinding(RecoveryAction.CUT, queue.files.folder, at, cut_bytes, reason)


def find_oddities(queues: Iterable[ConsumeQueue]) -> Iterable[RecoveryFinding]:
    """Yield the records without a unit, and the offsets without a record."""
    for queue in queues:
        if queue.repeated:
            reason = (
                f"{queue.repeated} records skipped: their queue offsets are taken or impossible"
            )
            yield RecoveryFinding(RecoveryAction.REPORTED, queue.files.folder, 0, 0, reason)
        if queue.skipped:
            reason = f"{queue.skipped} numbers belong to no record of the log"
            yield RecoveryFinding(RecoveryAction.REPORTED, queue.files.folder, 0, 0, reason)


def numbers_given(
    queues: ConsumeQueues, given: Mapping[QueueKey, QueueOffset]
) -> Iterable[tuple[QueueKey, QueueOffset]]:
    """Yield the queues that end before their least next offset, with that offset."""
    for key, end in given.items():
        queue = queues.find(*key)
        if queue is None or queue.end < end:
            yield key, end


def find_lost(log: CommitLog, session: StoreSession) -> Iterable[RecoveryFinding]:
    """Yield the parts of the log that were on the disk and are gone."""
    end = log.files.last.end if log.files.files else 0
    if end < session.flushed:
        path = log.files.folder / file_name(end)
        reason = f"the log was on the disk up to {session.flushed}, and this file is gone"
        yield RecoveryFinding(RecoveryAction.LOST, path, end, session.flushed - end, reason)
    start, is_ours = session.notes.log_start, session.last_use in {LastUse.CLEAN, LastUse.CRASHED}
    gone = min(log.start, session.flushed) - start
    if is_ours and gone > 0:
        path = log.files.folder / file_name(start)
        reason = f"the log was noted to begin at {start} and begins at {log.start}: files are gone"
        yield RecoveryFinding(RecoveryAction.LOST, path, start, gone, reason)


def find_later_files(log: CommitLog, end: PhysicalOffset) -> Iterable[RecoveryFinding]:
    """Yield the files with content that a cut of the log at `end` removes."""
    for file in log.files.files:
        if file.base > end and any(file.file.read(0, min(_HEAD_BYTES, file.file_bytes))):
            reason = "it was behind the log's end"
            yield RecoveryFinding(
                RecoveryAction.REMOVED, file.file.path, file.base, file.file_bytes, reason
            )


class QueueConsistency:
    """Comparison of some units with their messages. Owned by one opening."""

    def __init__(self, log: CommitLog, session: StoreSession, findings: RecoveryFindings) -> None:
        self._log = log
        self._session = session
        self._findings = findings

    def holds(self, queues: Iterable[ConsumeQueue]) -> bool:
        """Return whether first and last unit of each file of the queues match their records.

        Damaged records are quarantined.
        """
        for queue in queues:
            for file in queue.files.files:
                begin = QueueOffset(max(file.base // UNIT_BYTES, queue.min_offset))
                end = QueueOffset(min(file.end // UNIT_BYTES, queue.end))
                for offset in {begin, QueueOffset(end - 1)} if begin < end else ():
                    if not self._agrees(queue, offset):
                        at, path = offset * UNIT_BYTES, file.file.path
                        reason = "the unit is not of a message of this queue"
                        self._findings.add(RecoveryAction.REPORTED, path, at, UNIT_BYTES, reason)
                        return False
        return True

    def _agrees(self, queue: ConsumeQueue, offset: QueueOffset) -> bool:
        log, unit = self._log, queue.unit(offset)
        if unit.size == PADDING_SIZE or 0 <= unit.offset < log.start:
            return unit.size > 0
        if self._session.quarantine.end_at(unit.offset) is not None:
            return True
        if not record_lies_at(log, unit.offset):
            return False
        end = PhysicalOffset(unit.offset + unit.size)
        try:
            record = _read_record(log, unit.offset, self._session.ranges)
        except CorruptRecord as error:
            if unit.size < 0 or end > log.files.last.end or not self._is_border(end):
                return False
            self._quarantine(unit.offset, end, error.reason)
            return True
        return (
            record is not None
            and record.header.total_bytes == unit.size
            and record.header.queue_id == queue.queue_id
            and record.header.queue_offset == offset
            and record.topic == queue.topic.encode()
        )

    def _is_border(self, at: PhysicalOffset) -> bool:
        return at == self._session.notes.flushed or record_lies_at(self._log, at)

    def _quarantine(self, start: PhysicalOffset, end: PhysicalOffset, reason: str) -> None:
        path = self._log.files.at(start).file.path
        self._session.quarantine.add(start, end, reason)
        self._findings.add(RecoveryAction.QUARANTINED, path, start, end - start, reason)


def _read_record(log: CommitLog, at: PhysicalOffset, ranges: Ranges) -> Record | None:
    """Return the record at `at`, which lies in a file; None = a blank record.

    Raises:
        CorruptRecord: The record is damaged, by the checksum of the whole inside `ranges`.
    """
    file = log.files.at(at)
    position = at - file.base
    record = check_record(file.view, position, at=at, next_file=log.files.has(file.end))
    if record is not None and is_inside(ranges, at):
        data = file.view[position : position + record.header.total_bytes]
        if not verify_checksum(data, record.properties):
            raise CorruptRecord(at, "the record's checksum is missing or differs")
    return record
