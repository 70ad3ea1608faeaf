"""Consistency of consume queues and log, by some units of each queue and their messages."""

from collections.abc import Iterable

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import UNIT_BYTES, PhysicalOffset, QueueOffset
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.log.store_session import StoreSession
from ternmq_store.opened_files import RecoveryAction
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.units import PADDING_SIZE
from ternmq_store.recovery.findings import RecoveryFindings
from ternmq_store.recovery.log_scan import read_record, record_lies_at


class QueueConsistency:
    """Comparison of units with their messages. Used by an opening."""

    def __init__(self, log: CommitLog, session: StoreSession, findings: RecoveryFindings) -> None:
        self._log = log
        self._session = session
        self._findings = findings

    def holds(self, queues: Iterable[ConsumeQueue]) -> bool:
        """Return whether the first and the last unit of every file of a queue are of its messages.

        Records found damaged thereby are quarantined.
        """
        for queue in queues:
            for file in queue.files.files:
                begin = QueueOffset(max(file.base // UNIT_BYTES, queue.min_offset))
                end = QueueOffset(min(file.end // UNIT_BYTES, queue.end))
                for offset in {begin, QueueOffset(end - 1)} if begin < end else ():
                    if not self._agrees(queue, offset):
                        at, reason = (
                            offset * UNIT_BYTES,
                            "the unit is not of a message of this queue",
                        )
                        path = file.file.path
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
            record = read_record(log, unit.offset, self._session.ranges)
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
