"""Check of a whole store without a change: log, consume queues, index and checkpoint.

Log, queues and index are walked side by side, in the log's order: every record is compared with its
unit and its entries, and every unit and entry with its record. The use of memory does not depend on
the length of the log.

A sound store has no *problem*. It may have *notes*, which help a reader.
"""

import enum
from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import (
    checkpoint_path,
    deletions_path,
    file_name,
    lock_path,
    next_file_path,
)
from ternmq_store.disk.mapped_file_queue import FoundFile
from ternmq_store.disk.state_file import read_whole
from ternmq_store.dispatch.topic_deletions import load_deletions
from ternmq_store.inspection.audit_findings import AuditFinding, note, problem
from ternmq_store.inspection.audit_index import IndexAudit
from ternmq_store.inspection.audit_queues import QueueAudit
from ternmq_store.inspection.log_inspection import (
    BadRange,
    FoundRecord,
    LogItem,
    find_log_files,
    walk_log,
)
from ternmq_store.inspection.queue_inspection import find_queues
from ternmq_store.log.checkpoint import CHECKPOINT_BYTES, decode_checkpoint
from ternmq_store.log.checksum_ranges import is_inside
from ternmq_store.log.log_notes import LastUse, LogNotes, last_use, load_abort, load_notes


class LogState(enum.Enum):
    """State of the directory: in use, or as its last user left it."""

    IN_USE = "in use"
    CLOSED = "closed"
    NOT_CLOSED = "not closed"


@dataclass(slots=True)
class AuditCounts:
    """Counts of the records, files, units and findings of an audit."""

    log_files: int = 0
    records: int = 0
    blanks: int = 0
    bad_stretches: int = 0
    checksummed: int = 0
    queues: int = 0
    units: int = 0
    index_files: int = 0
    index_entries: int = 0
    problems: int = 0
    notes: int = 0


class BadPlace(NamedTuple):
    """A bad record of the log."""

    file: Path
    offset: int
    end: int
    """Offset behind the last bad byte."""


class StoreAudit:
    """One check of one store. `findings` has to be exhausted before the attributes are read.

    Args:
        files: File system, never written.
        root: Directory of the store.
        known_topics: Existing topics; None = they are unknown. The records of other topics, which
            were deleted, need no queue.

    Attributes:
        counts: Counts so far.
        state: Use of the store: open, closed, or not closed.
        last_use: End of the last use.
        notes: The store's notes of its log.
        start: Start of the log.
        end: End of the last record or blank record.
        bad: Bad records and ranges of the log.
        queues: Comparison of log and queues.

    Raises:
        StoreNotFound: `root` is no store.
        OSError: A folder cannot be read.
    """

    def __init__(
        self, files: FileSystem, root: Path, *, known_topics: Collection[str] | None = None
    ) -> None:
        self._files = files
        self._root = root
        self._known_topics = known_topics
        self._log_files = find_log_files(files, root)
        self.counts = AuditCounts()
        self._notes_problems: list[AuditFinding] = []
        self.notes: LogNotes = load_notes(files, root, self._add_notes_problem)
        abort = load_abort(files, root)
        self.last_use: LastUse = last_use(self.notes, abort)
        if files.is_locked(lock_path(root)):
            self.state = LogState.IN_USE
        else:
            self.state = LogState.CLOSED if abort is None else LogState.NOT_CLOSED
        self.pid = None if abort is None else abort.pid
        used = [file for file in self._log_files if file.file_bytes]
        self.start = used[0].base if used else 0
        self.end = self.start
        self.bad: list[BadPlace] = []
        self.queues: QueueAudit | None = None
        self._newest_stored_at_ms = 0

    def _add_notes_problem(self, reason: str) -> None:
        self._notes_problems.append(problem("notes", None, None, reason))

    def findings(self) -> Generator[AuditFinding]:
        """Check the store and yield the findings in the order of the walk.

        Raises:
            OSError: A file cannot be read.
        """
        yield from self.counted(self._findings())

    def counted(self, findings: Iterable[AuditFinding]) -> Generator[AuditFinding]:
        """Yield `findings` and count them."""
        for finding in findings:
            if finding.is_problem:
                self.counts.problems += 1
            else:
                self.counts.notes += 1
            yield finding

    def _findings(self) -> Generator[AuditFinding]:
        yield from self._notes_problems
        yield from check_row(self._log_files)
        queues = find_queues(self._files, self._root)
        lost: list[str] = []
        path = deletions_path(self._root)
        dropped = load_deletions(self._files, path, lost.append)
        yield from (problem("notes", path, None, reason) for reason in lost)
        beside = QueueAudit(
            self._files,
            self._root,
            queues,
            dropped,
            self._known_topics,
            log_start=self.start,
            log_end=max((each.base + each.file_bytes for each in self._log_files), default=0),
        )
        self.queues = beside
        index = IndexAudit(self._files, self._root, log_start=self.start)
        yield from beside.check_files(was_clean=self.last_use.is_clean)
        yield from index.check_files()
        for piece in walk_log(self._files, self._log_files):
            count = len(self.bad)
            yield from self._check_piece(piece)
            if len(self.bad) > count:
                beside.pass_over(self.bad[-1].offset, self.bad[-1].end)
            if isinstance(piece, FoundRecord):
                if len(self.bad) == count:
                    yield from beside.check(piece)
                yield from index.check(piece)
        yield from beside.finish(self.end)
        yield from index.finish(self.end, dispatched=beside.dispatched)
        yield from self._check_small_files()
        counts = self.counts
        counts.log_files, counts.queues = len(self._log_files), len(queues)
        counts.units, counts.index_files = beside.units, index.files
        counts.index_entries = index.entries

    def _check_piece(self, piece: LogItem) -> Generator[AuditFinding]:
        path, at = piece.file.path, piece.offset
        if isinstance(piece, BadRange):
            self.counts.bad_stretches += 1
            self.bad.append(BadPlace(path, at, at + piece.size))
            yield problem("log", path, at, f"{piece.size} bytes: {piece.reason}")
            return
        if not isinstance(piece, FoundRecord):
            self.counts.blanks += 1
            self.end = max(self.end, at + piece.size)
            return
        header = piece.record.header
        self.counts.records += 1
        self.counts.checksummed += piece.is_checksummed
        self.end = max(self.end, at + header.total_bytes)
        self._newest_stored_at_ms = max(self._newest_stored_at_ms, header.stored_at_ms)
        fault = piece.problem
        if not fault and is_inside(self.notes.checksummed, at):
            if not piece.is_checksummed:
                fault = "the record has no checksum, and was written with one"
            elif not piece.is_checksum_right:
                fault = "the record's checksum differs"
        if fault:
            self.bad.append(BadPlace(path, at, at + header.total_bytes))
            yield problem("log", path, at, fault)
        elif not piece.is_checksum_right:
            text = "the record's checksum differs, in a part of the log that may lack right ones"
            yield note("log", path, at, text)

    def _check_small_files(self) -> Generator[AuditFinding]:
        path = checkpoint_path(self._root)
        if not self._files.exists(path):
            if self.counts.records:
                yield note("checkpoint", path, None, "is not there: a crash scans the whole log")
        else:
            yield from self._check_checkpoint(path)
        for damaged in self.notes.quarantined:
            text = f"noted as damaged up to {damaged.end}: {damaged.reason}"
            yield note("log", None, damaged.start, text)
        if self.start > self.notes.log_start and not self.last_use.is_clean and self.notes.session:
            text = (
                f"began here when that was noted, and begins at {self.start} now: the files between"
                " were deleted as expired, or are lost; the log does not show which"
            )
            yield note("log", None, self.notes.log_start, text)
        if self.notes.cut_to is not None:
            text = "the next start cuts the log here"
            yield note("log", None, self.notes.cut_to, text)
        path = next_file_path(self._root)
        if self._files.exists(path) and self.state is not LogState.IN_USE:
            yield note("log", path, None, "a file that was prepared; the next start removes it")

    def _check_checkpoint(self, path: Path) -> Generator[AuditFinding]:
        data = read_whole(self._files, path)
        if len(data) > CHECKPOINT_BYTES:
            text = f"has {len(data)} bytes, of which only the first {CHECKPOINT_BYTES} are used"
            yield note("checkpoint", path, None, text)
        elif len(data) < CHECKPOINT_BYTES:
            yield problem(
                "checkpoint", path, None, f"has {len(data)} bytes, not {CHECKPOINT_BYTES}"
            )
            return
        checkpoint = decode_checkpoint(data)
        newest = self._newest_stored_at_ms
        for name, at_ms in (
            ("log", checkpoint.log_stored_at_ms),
            ("consume queues", checkpoint.queues_stored_at_ms),
            ("index", checkpoint.index_stored_at_ms),
        ):
            if at_ms > newest and self.state is not LogState.IN_USE:
                text = f"claims {name} data on disk up to {at_ms}; the newest record is of {newest}"
                yield problem("checkpoint", path, None, text)


def check_row(log_files: Sequence[FoundFile]) -> Generator[AuditFinding]:
    """Yield the faults in lengths and names of the log's files."""
    row = [file for file in log_files if file.file_bytes]
    for file in log_files:
        if not file.file_bytes:
            where = (
                "the next start removes it" if file == log_files[-1] else "it should not be there"
            )
            yield problem("log", file.path, None, f"is empty; {where}")
    for number, file in enumerate(row):
        if file.file_bytes != row[0].file_bytes:
            text = f"has {file.file_bytes} bytes, others have {row[0].file_bytes}"
            yield problem("log", file.path, None, text)
        expected = row[0].base + number * row[0].file_bytes
        if number and row[number - 1].base + row[0].file_bytes != file.base:
            missing = file_name(row[number - 1].base + row[0].file_bytes)
            yield problem("log", file.path, None, f"does not follow: {missing} is missing")
        elif file.base % row[0].file_bytes:
            text = (
                f"its name is no multiple of {row[0].file_bytes} (expected {file_name(expected)})"
            )
            yield problem("log", file.path, None, text)
