"""The store's claim on its directory while it is open, and its notes of the log.

Writes are ordered so that a crash can be told apart from use by another program: offsets of
another store are removed from the checkpoint before the notes name a session, and the notes name
it before `abort` does.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from ternmq_model.file_generations import read_state
from ternmq_model.offsets import UNIT_BYTES, PhysicalOffset, QueueOffset
from ternmq_model.record.scanner import Verify
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import checkpoint_path
from ternmq_store.disk.state_file import read_whole
from ternmq_store.log.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from ternmq_store.log.checksum_ranges import (
    Ranges,
    VerifyRange,
    closed,
    is_inside,
    kept,
    next_border,
    opened,
)
from ternmq_store.log.clock_moves import ClockDoubt, TimerMove, doubted, stepped, within
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.log.flush import write_checkpoint
from ternmq_store.log.log_notes import (
    AbortFile,
    LastUse,
    LogNotes,
    QueueNote,
    last_use,
    load_abort,
    load_notes,
    save_abort,
    save_notes,
)
from ternmq_store.log.quarantine import Quarantine
from ternmq_store.queues.consume_queue import ConsumeQueue

_QUEUES_INTERVAL_MS: Final = 10_000
"""Interval between notes of the queues' ends, ms. After a crash the log is read from the noted
offset on, so that notes or log prove every unit."""

_QUEUES_BYTES: Final = 64 << 20
"""Bytes of the log after which the ends of the queues are noted before the interval has passed."""


class _Seen(NamedTuple):
    """Ends of the queues at a time."""

    dispatched: PhysicalOffset
    queues: Sequence[QueueNote]


class StoreSession:
    """Session of one store: its notes, checkpoint and abort file.

    Owned by `MessageStore`, on the store's thread.

    Attributes:
        last_use: End of the last use.
        has_notes: True if notes of an earlier session of this store exist.
        notes: Content of the side file.
        checkpoint: Content of the checkpoint; void offsets are 0.
        index_notes: Notes of the index at the last clean stop; empty after a crash.
        index_durable: Log offset up to which the index was on the disk at the last opening.
        quarantine: Damaged ranges of the log.
        ranges: Ranges of the log in which records must have their checksum.
        clock: Notes of moves of the broker's clock.
    """

    def __init__(self, files: FileSystem, root: Path, on_damage: Callable[[str], None]) -> None:
        """Read notes, checkpoint and abort file; nothing is changed.

        `on_damage` is called with the reason why damaged notes do not apply.
        """
        self._files = files
        self._root = root
        self.notes = load_notes(files, root, on_damage)
        self.has_notes = bool(self.notes.session)
        self.last_use = last_use(self.notes, load_abort(files, root))
        self.checkpoint = _load_checkpoint(files, root)
        is_clean = self.last_use is LastUse.CLEAN
        self.index_notes = self.notes.index if is_clean else ()
        self.index_durable = min(self.notes.flushed, self.notes.queues_at)
        self.quarantine = Quarantine(self.notes.quarantined)
        self.ranges: Ranges = self.notes.checksummed
        self.clock = self.notes.clock
        self._recorded_at_ms = -_QUEUES_INTERVAL_MS
        self._seen: _Seen | None = None
        self._is_saved = False
        """True once notes were saved since the opening. The first one replaces both generations."""

    def claim(self, *, pid: int, token: str) -> None:
        """Mark the directory as in use by process `pid`.

        `token` names the session, unless the interrupted one continues.

        Raises:
            OSError: The directory is not marked.
        """
        if self.last_use is not LastUse.CRASHED:
            self.checkpoint = replace(self.checkpoint, flushed_offset=0, dispatched_offset=0)
            if self._files.exists(checkpoint_path(self._root)):
                self.save_checkpoint(self.checkpoint)
            self.ranges = closed(self.ranges, self.notes.flushed)
            notes = replace(
                self.notes, session=token, is_open=True, checksummed=self.ranges, index=()
            )
            # A log that is new to this store has no notes before it is settled: an interrupted
            # opening must not leave empty ones.
            if self.has_notes:
                self._save(notes)
            self.notes = notes
        save_abort(self._files, self._root, AbortFile(pid, self.notes.session))

    def note_quarantine(self) -> None:
        """Save the damaged ranges, before the log no longer shows them.

        Raises:
            OSError: Nothing is noted.
        """
        if self.has_notes:
            self._save(replace(self.notes, quarantined=self.quarantine.ranges))

    @property
    def flushed(self) -> PhysicalOffset:
        """Log offset up to which the log is known to have been on the disk."""
        return max(self.notes.flushed, PhysicalOffset(self.checkpoint.flushed_offset))

    def verify(self, offset: PhysicalOffset) -> Verify:
        """Return the depth of the check of the record at `offset`."""
        return Verify.WHOLE if is_inside(self.ranges, offset) else Verify.BODY

    def check_at(self, offset: PhysicalOffset) -> VerifyRange:
        """Return the depth of the check of the log from `offset` on, and its end."""
        return VerifyRange(self.verify(offset), next_border(self.ranges, offset))

    def lower(self, end: PhysicalOffset) -> None:
        """Lower the noted end of the log on the disk to `end`, durably, before a cut.

        Raises:
            OSError: The log may not be cut.
        """
        self.quarantine.keep_between(PhysicalOffset(0), end)
        if end >= self.flushed:
            return
        self.save_checkpoint(
            replace(
                self.checkpoint,
                flushed_offset=min(self.checkpoint.flushed_offset, end),
                dispatched_offset=min(self.checkpoint.dispatched_offset, end),
            )
        )
        self.ranges = kept(self.ranges, PhysicalOffset(0), end)
        notes = replace(
            self.notes,
            flushed=min(self.notes.flushed, end),
            checksummed=self.ranges,
            quarantined=self.quarantine.ranges,
        )
        # Both generations: the older one would vouch for the cut bytes.
        self._save(notes)
        self._save(notes)

    def lower_queues(self, start: PhysicalOffset) -> None:
        """Lower the noted end of the units on the disk to record `start`, durably.

        The units behind it are wiped and written again; the next checkpoint syncs them.

        Raises:
            OSError: No unit may be wiped.
        """
        self.save_checkpoint(
            replace(self.checkpoint, queues_stored_at_ms=0, dispatched_offset=start)
        )

    def settle(
        self,
        log: CommitLog,
        queues: Iterable[ConsumeQueue],
        dispatched: PhysicalOffset,
        *,
        is_checksummed: bool | None,
    ) -> None:
        """Save the notes of an opened log, all of which is on the disk.

        Args:
            log: The log; its first file may still be to come.
            queues: All queues, on the disk or not.
            dispatched: Log offset up to which `queues` contain units.
            is_checksummed: True if records written from now on have their checksum; None = each
                call of `go_on` decides.

        Raises:
            OSError: Nothing is noted.
        """
        notes = self._notes_of_log(log, queues, dispatched)
        if is_checksummed is not None:
            self.ranges = (opened if is_checksummed else closed)(self.ranges, log.end)
        self._save(replace(notes, checksummed=self.ranges, cut_to=None))

    def _notes_of_log(
        self, log: CommitLog, queues: Iterable[ConsumeQueue], dispatched: PhysicalOffset
    ) -> LogNotes:
        start, end = log.start, log.end
        self.quarantine.keep_between(start, end)
        self.ranges = kept(self.ranges, start, end)
        self.clock = within(self.clock, start, end)
        return replace(
            self.notes,
            flushed=end,
            log_start=start,
            log_file_bytes=log.files.file_bytes,
            quarantined=self.quarantine.ranges,
            queues=_notes_of(queues),
            queues_at=dispatched,
            clock=self.clock,
        )

    @property
    def is_range_open(self) -> bool:
        """True while records that are written must have their checksum."""
        return bool(self.ranges) and self.ranges[-1].end is None

    def go_on(self, end: PhysicalOffset, *, is_checksummed: bool) -> None:
        """Begin or end a range of checksums for the records that a replica copies behind `end`.

        The notes contain a new range soon, but the end of a range at once: a record without a
        checksum inside a range would count as damaged.

        Raises:
            OSError: The end of the range is not noted.
        """
        if is_checksummed:
            self.ranges = opened(self.ranges, end)
        elif self.is_range_open:
            self.ranges = closed(self.ranges, end)
            self._save(replace(self.notes, checksummed=self.ranges))

    def record_queues(
        self, queues: Iterable[ConsumeQueue], *, dispatched: PhysicalOffset, now_ms: int
    ) -> None:
        """Record the ends of all queues if that is due, for notes once their units are on the disk.

        Args:
            queues: All queues.
            dispatched: Log offset up to which they contain units.
            now_ms: Time by the monotonic clock.
        """
        is_due = (
            now_ms - self._recorded_at_ms >= _QUEUES_INTERVAL_MS
            or dispatched - self.notes.queues_at >= _QUEUES_BYTES
        )
        if self._seen is None and is_due:
            self._recorded_at_ms = now_ms
            self._seen = _Seen(dispatched, _notes_of(queues))

    def notes_due(self, flushed: PhysicalOffset, start: PhysicalOffset) -> LogNotes | None:
        """Return changed notes to save after a sync of the queues' files; None = no change.

        `notes_done` must follow before the next call.

        Args:
            flushed: Log offset up to which the log is on the disk.
            start: Start of the log.
        """
        notes = replace(
            self.notes,
            checksummed=self.ranges,
            quarantined=self.quarantine.ranges,
            clock=self.clock,
        )
        if self._seen is not None and self._seen.dispatched <= flushed:
            notes = replace(notes, queues=self._seen.queues, queues_at=self._seen.dispatched)
            self._seen = None
        if start > notes.log_start:
            # Queues' files are removed after the log's: the next record has their starts.
            queues = tuple(note._replace(first=note.end) for note in notes.queues)
            notes = replace(notes, log_start=start, queues=queues)
        return notes if notes != self.notes else None

    def notes_done(self, notes: LogNotes, *, is_good: bool) -> None:
        """Record that `notes` were saved, or that they are due again."""
        if is_good:
            self.notes = notes

    def end(
        self,
        log: CommitLog,
        queues: Iterable[ConsumeQueue],
        dispatched: PhysicalOffset,
        *,
        index: Sequence[str],
    ) -> None:
        """Save the notes of a clean stop: all is on the disk, and only `abort` is left to remove.

        Raises:
            OSError: Nothing is noted: the stop is no clean one.
        """
        notes = self._notes_of_log(log, queues, dispatched)
        self._save(
            replace(
                notes,
                is_open=False,
                log_file_bytes=log.files.file_bytes if log.files.files else 0,
                checksummed=closed(self.ranges, log.end),
                index=tuple(index),
            )
        )

    def clock_stepped(self, by_ms: int, end: PhysicalOffset) -> None:
        """Record a step of the clock at the log's `end`; the next checkpoint saves it."""
        self.clock = stepped(self.clock, by_ms, end)

    def clock_left(self, at_ms: int) -> None:
        """Record the time of a clock without doubt, or 0; a clean stop saves it."""
        self.clock = replace(self.clock, left_at_ms=at_ms)

    def clock_believed(self) -> None:
        """Record that the clock is no longer in doubt; the next checkpoint saves it."""
        self.clock = replace(self.clock, doubt=None)

    def note_doubt(self, doubt: ClockDoubt) -> None:
        """Save a doubt about the clock, until `clock_believed`.

        Raises:
            OSError: The doubt is not noted yet.
        """
        self.clock = doubted(self.clock, doubt)
        self.note_clock()

    def timer_follows(self, move: TimerMove) -> None:
        """Record a step of the clock that timed messages follow; the next checkpoint saves it."""
        self.clock = replace(self.clock, timer_moves=(*self.clock.timer_moves, move))

    def timer_followed(self, first: int) -> None:
        """Record that no timed message before `first` waits; the next checkpoint saves it."""
        left = tuple(move for move in self.clock.timer_moves if move.end > first)
        self.clock = replace(self.clock, timer_moves=left)

    def timer_cut(self, end: QueueOffset) -> None:
        """Record that the timed messages from `end` on were cut; the next checkpoint saves it."""
        moves = tuple(move._replace(end=min(move.end, end)) for move in self.clock.timer_moves)
        self.clock = replace(self.clock, timer_moves=moves)

    def note_clock(self) -> None:
        """Save the notes of the clock. No checkpoint may be under way.

        Raises:
            OSError: Nothing is noted yet.
        """
        self._save(replace(self.notes, clock=self.clock))

    def note_tables(self, names: Sequence[str]) -> None:
        """Save the names of the table files, without blanks, unless they are noted.

        Raises:
            OSError: Nothing is noted.
        """
        if names != self.notes.tables:
            self._save(replace(self.notes, tables=names))

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint, durably.

        Raises:
            OSError: The content of the checkpoint is unknown.
        """
        path = checkpoint_path(self._root)
        write_checkpoint(self._files, path, encode_checkpoint(checkpoint))
        self.checkpoint = checkpoint

    def _save(self, notes: LogNotes) -> None:
        save_notes(self._files, self._root, notes, in_both=not self._is_saved)
        self.notes, self._is_saved = notes, True


def _notes_of(queues: Iterable[ConsumeQueue]) -> Sequence[QueueNote]:
    return tuple(
        sorted(
            QueueNote(q.topic, q.queue_id, QueueOffset(q.files.files[0].base // UNIT_BYTES), q.end)
            for q in queues
            if q.files.files
        )
    )


def _load_checkpoint(files: FileSystem, root: Path) -> Checkpoint:
    data = read_state(partial(read_whole, files), checkpoint_path(root))
    return Checkpoint() if data is None else decode_checkpoint(data)
