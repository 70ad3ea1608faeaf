"""Recovery of log and queues: load them, check them, and bring them into agreement.

No append comes before the log's end is known, the bytes behind it are zeros on the disk, and the
consume queues agree with the log.

Source: RocketMQ `DefaultMessageStore.load`, `recover`.
"""

import os
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from ternmq_model.offsets import UNIT_BYTES, PhysicalOffset, QueueOffset
from ternmq_store.config import StoreConfig
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import (
    checkpoint_path,
    commit_log_folder,
    consume_queue_ext_folder,
    consume_queue_folder,
    deletions_path,
    next_file_path,
    notes_path,
)
from ternmq_store.disk.reserve_file import give_up_reserve
from ternmq_store.dispatch.dispatch_request import no_bit_maps
from ternmq_store.dispatch.log_dispatcher import LogDispatcher
from ternmq_store.dispatch.topic_deletions import load_deletions, settle_deletions
from ternmq_store.log.checkpoint import Checkpoint
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.log.log_notes import LastUse, QueueNote
from ternmq_store.log.store_session import StoreSession
from ternmq_store.opened_files import OpenedFiles, RecoveryAction, RecoveryFindings, RecoveryReport
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.consume_queues import ConsumeQueues
from ternmq_store.queues.units import Units
from ternmq_store.recovery.log_files import LogFilePlan, carry_out, find_plan
from ternmq_store.recovery.log_scan import (
    LogScan,
    OldUnits,
    add_torn,
    first_records,
    lift_repaired,
    pad_to,
    record_lies_at,
)
from ternmq_store.recovery.queue_recovery import (
    QueueConsistency,
    find_cuts,
    find_later_files,
    find_lost,
    find_oddities,
    find_repairs,
    numbers_given,
    read_queue_ends,
)
from ternmq_store.recovery.scan_rules import ALWAYS_MS, ScanRules, scan_start

_MANY: Final = 1 << 62


def open_files(
    files: FileSystem,
    root: Path,
    config: StoreConfig,
    *,
    now_ms: int,
    serve_to: PhysicalOffset | None = None,
) -> OpenedFiles:
    """Load and recover log and queues at `root`, which may be empty.

    The log keeps every good record that was on the disk before a crash, and later ones up to the
    first bad record. There it ends now, on the disk too, unless notes demand an earlier cut; the
    consume queues agree with it.

    Args:
        files: File system.
        root: Directory of the store, locked by the caller.
        config: Sizes of a new store, and the checksums of its records.
        now_ms: Wall clock, which names the session.
        serve_to: Log offset behind which records are checked, but have no units; None = no limit.

    Raises:
        StoreError: The files are not those of one log; nothing was changed.
        OSError: A file cannot be read or written; a retry starts from the beginning.
    """
    return _Opening(files, root, config, now_ms=now_ms, serve_to=serve_to).run()


class _Opening:
    """One attempt to open a store."""

    def __init__(
        self,
        files: FileSystem,
        root: Path,
        config: StoreConfig,
        *,
        now_ms: int,
        serve_to: PhysicalOffset | None,
    ) -> None:
        self._serve_to = serve_to
        self._files = files
        self._root = root
        self._config = config
        self._findings = RecoveryFindings()
        self._session = StoreSession(files, root, partial(self._report, notes_path(root)))
        self._plan = find_plan(files, root, self._session, config.commit_log_file_bytes)
        self._token = f"{now_ms:x}-{os.getpid():x}"

    def run(self) -> OpenedFiles:
        """Return log and queues in agreement."""
        session, config = self._session, self._config
        give_up_reserve(self._files, self._root)
        session.claim(pid=os.getpid(), token=self._token)
        for damaged in self._plan.damage(session.flushed):
            session.quarantine.add(damaged.start, damaged.end, damaged.reason)
        if self._plan.short:
            session.note_quarantine()
        self._load(self._plan)
        add_torn(self._log, session.quarantine, self._plan.damage(session.flushed))
        repaired = lift_repaired(self._log, session.quarantine, session.check_at)
        self._is_repaired = bool(repaired)
        self._findings.extend((*repaired, *find_lost(self._log, session)))
        start, scan, is_rebuilt = self._read_log()
        log, queues = self._log, self._queues
        cut_bytes = self._settle(start)
        if cut_bytes:
            path = log.files.at(log.end).file.path
            self._findings.add(RecoveryAction.CUT, path, log.end, cut_bytes, scan.reason)
        self._findings.extend(find_oddities(queues))
        self._retain_offsets()
        newest_at_ms = self._dispatcher.stored_at_ms
        self._dispatcher.offset, self._dispatcher.stored_at_ms = scan.dispatched
        session.settle(
            log,
            queues,
            self._dispatcher.offset,
            is_checksummed=config.record_checksum if self._serve_to is None else None,
        )
        settle_deletions(self._files, self._root, log, self._dispatcher)
        for queue in queues:
            queue.correct_min_offset(log.start)
        report = RecoveryReport(
            was_clean=session.last_use.is_clean,
            log_files=len(log.files.files),
            scanned_from=start,
            end=log.end,
            cut_bytes=cut_bytes,
            cut_reason=scan.reason if cut_bytes else "",
            records_scanned=self._dispatcher.scanned,
            queues=len(queues),
            queues_rebuilt=is_rebuilt,
            findings=tuple(self._findings.all),
        )
        return OpenedFiles(
            log, queues, self._dispatcher, session, report, newest_at_ms, self._serve_to
        )

    def _read_log(self) -> tuple[PhysicalOffset, LogScan, bool]:
        """Scan the part of the log that is not known to be good and dispatched.

        Returns:
            Start of the scan; the scan; and whether all queues were built from the log.
        """
        log, session = self._log, self._session
        are_complete = self._load_queues()
        self._limit = self._find_limit()
        if self._limit is not None:
            self._limit_queues(self._limit)
        self._queue_ends = read_queue_ends(log, self._queues, self._plan.lacks)
        self._rules = self._scan_rules()
        start = self._start(are_complete)
        if start is not None:
            is_clean = session.last_use.is_clean
            old_units = () if is_clean else self._cut_queues(start, keep=True)
            if is_clean or self._consistency.holds(self._queues):
                scan = self._scan(start, old_units)
                if not self._lacks_units(start):
                    if is_clean and not session.has_notes:
                        self._findings.extend(find_repairs(self._queues, self._queue_ends.ends))
                    return start, scan, False
        # Until all queues are built, no checkpoint may claim that they are on the disk.
        session.save_checkpoint(Checkpoint())
        self._cut_queues(log.start, keep=False)
        scan = self._scan(log.start, ())
        is_rebuilt = scan.dispatched[0] > log.start
        if is_rebuilt:
            folder = consume_queue_folder(self._root)
            self._findings.add(RecoveryAction.REBUILT, folder, 0, 0, "queues were missing or wrong")
        return log.start, scan, is_rebuilt

    def _find_limit(self) -> PhysicalOffset | None:
        """Return the log offset behind which no record may have a unit; None = no limit."""
        limits = [at for at in (self._serve_to, self._session.notes.cut_to) if at is not None]
        return max(min(limits), self._log.start) if limits else None

    def _limit_queues(self, limit: PhysicalOffset) -> None:
        """Wipe the units of records that end behind `limit`."""
        self._cut_queues(limit, keep=False)
        units = (queue.last_unit() for queue in self._queues)
        crossing = [u.offset for u in units if u is not None and u.offset + u.size > limit]
        if crossing:
            self._cut_queues(min(crossing), keep=False)

    def _report(self, path: Path, reason: str) -> None:
        self._findings.add(RecoveryAction.REPORTED, path, 0, 0, reason)

    def _load(self, plan: LogFilePlan) -> None:
        files, root = self._files, self._root
        if files.exists(next_file_path(root)):
            files.remove(next_file_path(root))
        carry_out(files, root, plan, self._session.flushed, self._findings)
        files.make_folder(commit_log_folder(root))
        files.make_folder(consume_queue_folder(root))
        self._log = log = CommitLog(files, root, plan.file_bytes)
        for file in plan.row:
            log.files.open_file(file.base)
            log.files.park_before(file.base)
        config = self._config
        self._queues = ConsumeQueues(
            files,
            root,
            config.consume_queue_file_bytes,
            ext_file_bytes=config.consume_queue_ext_file_bytes,
            ext_unit_bytes=config.consume_queue_ext_unit_bytes,
        )
        self._dispatcher = LogDispatcher(log, self._queues)
        self._dispatcher.bit_maps = no_bit_maps if config.consume_queue_ext_enabled else None
        path = deletions_path(root)
        self._dispatcher.dropped = load_deletions(files, path, partial(self._report, path))
        self._dispatcher.check_at = self._session.check_at
        self._dispatcher.quarantine = self._session.quarantine
        end = PhysicalOffset(log.files.last.end if log.files.files else 0)
        self._session.quarantine.keep_between(log.start, end)
        self._consistency = QueueConsistency(log, self._session, self._findings)

    def _scan_rules(self) -> ScanRules:
        log, session = self._log, self._session
        end = PhysicalOffset(log.files.last.end if log.files.files else 0)
        match session.last_use:
            case LastUse.CLEAN | LastUse.FOREIGN_CLEAN:
                safe_at_ms = ALWAYS_MS
            case LastUse.CRASHED | LastUse.FOREIGN_CRASHED:
                safe_at_ms = session.checkpoint.log_safe_at_ms
        is_ours = session.last_use is LastUse.CRASHED
        left_at = session.notes.flushed if session.last_use is LastUse.CLEAN else None
        known_end = None
        if not session.has_notes:
            left_at, known_end = None, self._queue_ends.known_end
        # What is known to be damaged was on the disk, and so was all before it.
        flushed = max([session.flushed, *(one.end for one in session.quarantine.ranges)])
        self._noted_to = flushed
        return ScanRules(min(flushed, end), is_ours, left_at, safe_at_ms, known_end)

    def _load_queues(self) -> bool:
        """Map the queues' files but those of deleted topics; return whether all are complete."""
        queues, dispatcher, was_clean = (
            self._queues,
            self._dispatcher,
            self._session.last_use.is_clean,
        )
        are_complete = queues.load(was_clean=was_clean)
        # A crash may have come between the note of a deletion and the removal of the files.
        stale = {
            queue.topic
            for queue in queues
            if queue.begins_before(dispatcher.dropped.get(queue.topic, PhysicalOffset(0)))
        }
        queues.delete(*stale)
        # A killed process may leave names that are not on the disk; the next one relies on them.
        folders = [self._root, self._log.files.folder, consume_queue_folder(self._root)]
        if not was_clean:
            of_queues = [queue.files.folder for queue in queues]
            further = [queue.ext.files for queue in queues if queue.ext is not None]
            of_queues += [files.folder for files in further if files.files]
            if any(files.files for files in further):
                folders.append(consume_queue_ext_folder(self._root))
            folders += [*sorted({folder.parent for folder in of_queues}), *of_queues]
        for folder in folders:
            self._files.sync_folder(folder)
        return are_complete

    def _start(self, are_complete: bool) -> PhysicalOffset | None:
        """Return the start of the scan; None = the queues are unreliable, and all is scanned."""
        log = self._log
        if not log.files.files or not are_complete or self._is_repaired:
            return None
        if self._session.last_use.is_clean:
            for queue in self._queues:
                queue.find_written()
            if not self._consistency.holds(self._queues) or any(
                queue.lacks_ext for queue in self._queues
            ):
                return None
            if not self._session.has_notes:
                return log.start if len(self._queues) else None
            return self._within_limit(min(self._last_dispatched(), self._noted(log.start)))
        if not len(self._queues):
            return None
        vouched = self._checkpointed() or scan_start(
            first_records(log), self._session.checkpoint.safe_at_ms
        )
        start = self._within_limit(min(vouched, self._noted(log.start)))
        if start < vouched:
            self._session.lower_queues(start)
        return start

    def _within_limit(self, start: PhysicalOffset) -> PhysicalOffset:
        """Return `start`, or the end of the last dispatched record when there is a limit."""
        return min(start, self._last_dispatched()) if self._limit is not None else start

    def _noted(self, default: PhysicalOffset) -> PhysicalOffset:
        """Return the log offset up to which the noted ends of the queues are valid."""
        log, at = self._log, self._session.notes.queues_at
        if not log.start <= at <= log.files.last.end:
            return default
        if self._limit is not None and at > self._limit:
            return at
        is_border = at % log.files.file_bytes == 0 or self._log_goes_on_at(at)
        return at if is_border else default

    def _checkpointed(self) -> PhysicalOffset | None:
        """Return the offset in the checkpoint, if there is one and a record begins there."""
        checkpoint, log = self._session.checkpoint, self._log
        at = PhysicalOffset(checkpoint.dispatched_offset)
        if self._session.last_use is not LastUse.CRASHED or not at:
            return None
        if not log.start <= at <= min(checkpoint.flushed_offset, log.files.last.end):
            return None
        if at % log.files.file_bytes == 0 or self._log_goes_on_at(at):
            return at
        if self._limit is not None and at > self._limit:
            return at  # its unit was wiped, and no scan begins there
        self._findings.add(
            RecoveryAction.REPORTED, checkpoint_path(self._root), at, 0, "no record begins there"
        )
        return None

    def _log_goes_on_at(self, at: PhysicalOffset) -> bool:
        """Return whether a record begins at `at`, or the last dispatched one ends there."""
        if record_lies_at(self._log, at):
            return True
        for queue in self._queues:
            with closing(queue.unit_files()) as units:
                unit = units.written_unit(QueueOffset(units.count_before(at) - 1))
            if unit is not None and unit.offset + unit.size == at:
                return True
        return False

    def _cut_queues(self, limit: PhysicalOffset, *, keep: bool) -> OldUnits:
        """Wipe the units of records at `limit` and behind; with `keep`, return them."""
        old = list[tuple[ConsumeQueue, QueueOffset, Units]]()
        for queue in self._queues:
            queue.repeated = queue.skipped = queue.fileless = 0
            if keep:
                with closing(queue.unit_files()) as units:
                    first = units.count_before(limit)
                    old.append((queue, first, units.written_from(first)))
            queue.cut_from(limit)
        return old

    def _last_dispatched(self) -> PhysicalOffset:
        """Return the end of the newest record with a unit, after a clean stop."""
        newest = self._log.start
        for queue in self._queues:
            unit = queue.last_unit()
            if unit is not None and unit.offset >= newest:
                newest = PhysicalOffset(unit.offset + unit.size)
        return newest

    def _scan(self, start: PhysicalOffset, old_units: OldUnits) -> LogScan:
        scan = LogScan(
            self._log,
            self._dispatcher,
            self._queues,
            self._session.quarantine,
            self._rules,
            self._session.ranges,
            self._findings,
        )
        scan.run(start, old_units, serve_to=self._serve_to, cut_to=self._session.notes.cut_to)
        return scan

    def _lacks_units(self, scanned_from: PhysicalOffset) -> bool:
        """Return whether the queues lack units of records in the log, or else whole files."""
        if scanned_from <= self._log.start:
            return any(queue.fileless for queue in self._queues)
        has_gap = self._dispatcher.gaps > 0
        return has_gap or bool(self._short_queues()) or self._has_lost_beginnings()

    def _has_lost_beginnings(self) -> bool:
        """Return whether a queue has lost its first file without the log."""
        if self._log.start != self._session.notes.log_start:
            return False
        noted = {(note.topic, note.queue_id): note.first for note in self._session.notes.queues}
        return any(
            queue.files.files[0].base // UNIT_BYTES
            > noted.get((queue.topic, queue.queue_id), _MANY)
            for queue in self._queues
            if queue.files.files
        )

    def _short_queues(self) -> Sequence[QueueNote]:
        """Return the notes of queues that ended behind their present end."""
        notes = self._session.notes
        if self._limit is not None and notes.queues_at > self._limit:
            return ()
        found = {(queue.topic, queue.queue_id): queue.end for queue in self._queues}
        return [
            note
            for note in notes.queues
            if self._dispatcher.dropped.get(note.topic, -1) < notes.queues_at
            and found.get((note.topic, note.queue_id), 0) < note.end
        ]

    def _retain_offsets(self) -> None:
        """Pad queues so that offsets of lost messages are not assigned again."""
        for note in self._short_queues():
            queue = self._queues.of(note.topic, note.queue_id)
            missing = note.end - queue.end
            path = queue.files.folder
            reason = f"{missing} messages are gone; the next one is number {note.end}"
            self._findings.add(RecoveryAction.REPORTED, path, queue.end * UNIT_BYTES, 0, reason)
            pad_to(queue, note.end)
        given = self._queue_ends.given(max(self._log.end, self._noted_to))
        for (topic, queue_id), end in numbers_given(self._queues, given):
            if topic in self._dispatcher.dropped:
                continue
            queue = self._queues.of(topic, queue_id)
            reason = f"units point to lost records; the next message is number {end}"
            at, path = queue.end * UNIT_BYTES, queue.files.folder
            self._findings.add(RecoveryAction.REPORTED, path, at, 0, reason)
            pad_to(queue, end)
        self._findings.extend(find_cuts(self._queues, self._queue_ends.ends))

    def _settle(self, scanned_from: PhysicalOffset) -> int:
        """Cut the log where the scan ended, durably; return the count of bytes cut."""
        log, session, end = self._log, self._session, self._dispatcher.offset
        if not log.files.files:
            session.lower(PhysicalOffset(0))
            return 0
        # After a crash of the process alone, what was scanned may still be in memory only.
        for file in log.files_between(scanned_from, end):
            file.sync()
        session.lower(end)
        self._findings.extend(find_later_files(log, end))
        return log.cut(end, was_left_there=end == self._rules.left_at)
