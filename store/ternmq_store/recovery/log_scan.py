"""The log scan at opening: good records are dispatched, bad ones are cut or quarantined.

Before it, damaged ranges grow to whole records, and ranges that are good again are lifted.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record.format import FLAG_PREPARED, decode_record, is_blank
from ternmq_model.record.integrity import check_record
from ternmq_model.record.scanner import Verify, follow_lengths, scan_records
from ternmq_store.disk.mapped_file import MappedFile
from ternmq_store.dispatch.dispatch_request import unit_runs
from ternmq_store.dispatch.log_dispatcher import LogDispatcher
from ternmq_store.log.checksum_ranges import Ranges, VerifyRange, is_inside
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.log.log_window import LogWindow
from ternmq_store.log.quarantine import DamagedRange, Quarantine
from ternmq_store.opened_files import RecoveryAction, RecoveryFinding, RecoveryFindings
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.consume_queues import ConsumeQueues
from ternmq_store.queues.units import (
    PADDING_SIZE,
    Units,
    make_padding,
)
from ternmq_store.recovery.scan_rules import FirstRecord, NextGood, ScanRules, end_of_damage

_RECORDS: Final = 4096

OldUnits = Sequence[tuple[ConsumeQueue, QueueOffset, Units]]
"""Old units of queues that are rebuilt, and the queue offset of the first."""


class LogScan:
    """One scan of the log from a record to the log's end, by the opening.

    Attributes:
        reason: Damage of the bytes behind the end; `dispatcher.offset` is the end after `run`.
        dispatched: End of the last dispatched record, and its store time.
    """

    def __init__(
        self,
        log: CommitLog,
        dispatcher: LogDispatcher,
        queues: ConsumeQueues,
        quarantine: Quarantine,
        rules: ScanRules,
        ranges: Ranges,
        findings: RecoveryFindings,
    ) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._queues = queues
        self._quarantine = quarantine
        self._rules = rules
        self._ranges = ranges
        self._findings = findings
        self.reason = ""
        self.dispatched = (PhysicalOffset(0), 0)
        self._cut_to = PhysicalOffset(0)
        self._is_replica = False

    def run(
        self,
        start: PhysicalOffset,
        old_units: OldUnits = (),
        *,
        serve_to: PhysicalOffset | None = None,
        cut_to: PhysicalOffset | None = None,
    ) -> None:
        """Dispatch every good record from `start` on.

        Args:
            start: Log offset of a record.
            old_units: Units of the queues before the scan.
            serve_to: Log offset behind which records are checked, and not dispatched.
            cut_to: Upper limit of the log's end.

        Raises:
            OSError: There is no space for units, or the disk failed.
        """
        dispatcher = self._dispatcher
        dispatcher.offset = start
        # Missing units before `start` have records in the log: padding would hide them.
        dispatcher.pads = start <= self._log.start
        limit = PhysicalOffset(self._log.files.last.end if self._log.files.files else 0)
        self._is_replica = serve_to is not None
        if cut_to is not None:
            self._cut_to = cut_to
            self.reason = "it was to be cut here"
            limit = min(limit, max(cut_to, start))
        goes_on = self._read(limit if serve_to is None else min(limit, serve_to), old_units)
        self.dispatched = (dispatcher.offset, dispatcher.stored_at_ms)
        if goes_on:
            dispatcher.is_dispatching = False
            self._read(limit, ())
            dispatcher.is_dispatching = True
        dispatcher.stopped_by, dispatcher.pads = None, True

    def _read(self, limit: PhysicalOffset, old_units: OldUnits) -> bool:
        """Scan to `limit`, or to the record that crosses it; return whether the log reaches it."""
        dispatcher = self._dispatcher
        while dispatcher.offset < limit:
            damaged_to = self._quarantine.end_at(dispatcher.offset)
            if damaged_to is not None:
                self._pass_over(min(damaged_to, limit), old_units)
                continue
            before = dispatcher.offset
            error = self._step(limit)
            if error is None:
                if dispatcher.offset == before:
                    return True
                continue
            if self._is_full(dispatcher.offset):
                dispatcher.offset = PhysicalOffset(self._log.files.last.end)
                return True
            end = self._end_of_damage(dispatcher.offset)
            if end is None:
                self.reason = error.reason
                return False
            self._add(end, error)
        return True

    def _step(self, limit: PhysicalOffset) -> CorruptRecord | None:
        """Dispatch some records; return the error of the next one, if it is bad."""
        self._dispatcher.stopped_by = None
        self._dispatcher.scan(limit, {}, is_trusted=False)
        return self._dispatcher.stopped_by

    def _is_full(self, at: PhysicalOffset) -> bool:
        """Return whether a blank record ends the last file, whose successor is gone."""
        file = self._log.files.at(at)
        # The last slice of a replica may be a blank record, before the next file is made.
        is_known = self._is_replica or file.end <= max(self._rules.flushed, self._cut_to)
        is_last = file is self._log.files.last and is_known
        return is_last and is_blank(file.view, at - file.base, file.end - at)

    def _end_of_damage(self, at: PhysicalOffset) -> PhysicalOffset | None:
        rules = self._rules
        if at == rules.left_at or (rules.is_ours and at >= rules.flushed):
            return None
        return end_of_damage(
            rules,
            at,
            find_good(self._log, PhysicalOffset(at + 1)),
            last_stored_at_ms=self._dispatcher.stored_at_ms,
            is_checksummed=is_inside(self._ranges, at),
        )

    def _add(self, end: PhysicalOffset, error: CorruptRecord) -> None:
        at = self._dispatcher.offset
        path = self._log.files.at(at).file.path
        self._quarantine.add(at, end, error.reason)
        self._findings.add(RecoveryAction.QUARANTINED, path, at, end - at, error.reason)

    def _pass_over(self, end: PhysicalOffset, old_units: OldUnits) -> None:
        """Continue behind a damaged range, found now or before."""
        self._dispatcher.pads = True
        if self._dispatcher.is_dispatching:
            self._write_old_units(self._dispatcher.offset, end, old_units)
        self._dispatcher.offset = end

    def _write_old_units(
        self, at: PhysicalOffset, end: PhysicalOffset, old_units: OldUnits
    ) -> None:
        """Write the units of damaged records, so that their offsets are not assigned again."""
        for queue, first, units in old_units:
            offsets = units["offset"].astype(np.int64)
            is_message = units["size"] < PADDING_SIZE
            rows = np.flatnonzero((offsets >= at) & (offsets < end) & is_message)
            if len(rows):
                queue.put(first + rows.astype(np.int64), units[rows])
        file = self._log.files.at(at)
        window = LogWindow.of_view(file.view, file.base)
        for position in window.claims(at - file.base, end - file.base):
            self._write_claimed_unit(file, position)

    def _write_claimed_unit(self, file: MappedFile, position: int) -> None:
        """Write the unit of a damaged record whose header has the next offset of its queue."""
        at = PhysicalOffset(file.base + position)
        batch = scan_records(
            file.view, position, file.file_bytes, at=at, records_max=1, verify=Verify.NOTHING
        ).batch
        if batch is None or batch.headers["sys_flag"][0] & FLAG_PREPARED:
            return
        for topic, queue_id, rows in batch.queues:
            queue = self._queues.find(topic, queue_id)
            is_next = queue is not None and batch.headers["queue_offset"][0] == queue.end
            if queue is not None and is_next and at >= self._dispatcher.dropped.get(topic, 0):
                runs = unit_runs(
                    batch,
                    [(queue, rows)],
                    offsets=batch.headers["physical_offset"].astype(np.int64),
                    queue_offsets=batch.headers["queue_offset"].astype(np.int64),
                    stored_at_ms=batch.headers["stored_at_ms"].astype(np.int64),
                    bit_maps=self._dispatcher.bit_maps,
                )
                for run in runs:
                    queue.put(run.offsets, run.units, run.ext)


def pad_to(queue: ConsumeQueue, end: QueueOffset) -> None:
    """Pad a queue so that its next message gets the offset `end`.

    Raises:
        OSError: There is no space.
    """
    if queue.end < end:
        queue.put(np.array([end - 1], dtype=np.int64), make_padding(1))


def record_lies_at(log: CommitLog, at: PhysicalOffset) -> bool:
    """Return whether a record, or a blank one, claims log offset `at` as its own."""
    if not log.files.has(at):
        return False
    file = log.files.at(at)
    return LogWindow.of_view(file.view, file.base).lies_at(at - file.base)


def find_good(log: CommitLog, start: PhysicalOffset) -> NextGood | None:
    """Return the first good record from `start` on, in this file or a later one.

    A good blank record counts as the first record of the next file.
    """
    for file in log.files.files:
        if file.end <= start:
            continue
        for position in LogWindow.of_view(file.view, file.base).claims(max(start - file.base, 0)):
            at = PhysicalOffset(file.base + position)
            try:
                record = check_record(file.view, position, at=at, next_file=True)
            except CorruptRecord:
                continue
            if record is not None:
                return NextGood(at, record.header.stored_at_ms)
            following = PhysicalOffset(file.end)
            if record_lies_at(log, following):
                return NextGood(at, _stored_at_ms(log, following))
            break
    return None


def _stored_at_ms(log: CommitLog, at: PhysicalOffset) -> int:
    file = log.files.at(at)
    try:
        record = decode_record(file.view, at - file.base, at=at, check_crc=False)
    except CorruptRecord:
        return 0
    return record.header.stored_at_ms if record else 0


def first_records(log: CommitLog) -> Sequence[FirstRecord]:
    """Return the start of each file of the log."""
    first: list[FirstRecord] = []
    for file in log.files.files:
        base = PhysicalOffset(file.base)
        try:
            record = decode_record(file.view, 0, at=base)
        except CorruptRecord:
            record = None
        first.append(FirstRecord(base, record.header.stored_at_ms if record else 0))
    return first


def add_torn(log: CommitLog, quarantine: Quarantine, damage: Iterable[DamagedRange]) -> None:
    """Extend damage to the records that end in missing bytes."""
    for damaged in damage:
        file = log.files.at(damaged.start)
        limit, at, before, is_stopped = damaged.start - file.base, 0, -1, False
        while before < at:
            before = at
            _, at, is_stopped = follow_lengths(file.view, at, limit, _RECORDS)
        if at < limit and not is_stopped:
            start = PhysicalOffset(file.base + at)
            quarantine.add(start, damaged.start, damaged.reason)


def lift_repaired(
    log: CommitLog, quarantine: Quarantine, check_at: Callable[[PhysicalOffset], VerifyRange]
) -> Sequence[RecoveryFinding]:
    """Remove parts of damaged ranges, file by file, that contain good records only.

    Args:
        log: The whole log.
        quarantine: Damaged ranges of the log.
        check_at: Depth of the check from a log offset on.

    Returns:
        A finding for each part removed.
    """
    repaired: list[RecoveryFinding] = []
    for damaged in quarantine.ranges:
        for file in log.files.files:
            start = PhysicalOffset(max(damaged.start, file.base))
            end = PhysicalOffset(min(damaged.end, file.end))
            if start < end and _is_good(log, start, end, check_at):
                quarantine.remove(start, end)
                reason = "the damaged range is good again"
                repaired.append(
                    RecoveryFinding(
                        RecoveryAction.REPAIRED, file.file.path, start, end - start, reason
                    )
                )
    return repaired


def _is_good(
    log: CommitLog,
    start: PhysicalOffset,
    end: PhysicalOffset,
    check_at: Callable[[PhysicalOffset], VerifyRange],
) -> bool:
    """Return whether the range, in one file, is a sequence of good records."""
    file, at = log.files.at(start), start
    while at < end:
        check = check_at(at)
        limit = end if check.until is None else min(end, check.until)
        found = log.scan(at, limit, records_max=_RECORDS, verify=check.verify)
        if found.is_blank:
            return end == file.end
        if found.error is not None or found.batch is None:
            return False
        at = PhysicalOffset(file.base + found.end)
    return True
