"""The store's claim on its directory while it is open, and what it notes of the log.

Writes are ordered so that a crash can be told apart from use by another program: offsets of
another store are taken out of the checkpoint before the notes name a session, and the notes name
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
"""Interval between notes of the queues' ends. After a crash the log is read from there on, so that
every unit is vouched for, by the notes or by the log."""

_QUEUES_BYTES: Final = 64 << 20
"""Bytes of the log after which the ends of the queues are noted before their interval is over."""


class _Seen(NamedTuple):
    """Ends of the queues at a time."""

    dispatched: PhysicalOffset
    queues: Sequence[QueueNote]


class StoreSession:
    """Session of one store: its notes, checkpoint and abort file.

    Owned by `MessageStore`, on the store's thread.

    Attributes:
        last_use: End of the last use.
        has_notes: This store has opened the log before, and it is noted.
        notes: Content of the side file.
        checkpoint: Content of the checkpoint; offsets that do not count are 0.
        index_notes: Notes of the index at the last clean stop; none after a crash.
        index_durable: Log offset up to which the index was on the disk at the last opening.
        quarantine: Damaged ranges of the log.
        ranges: Ranges of the log in which records must have their checksum.
        clock: Notes of moves of the broker's clock.
    """

    def __init__(self, files: FileSystem, root: Path, tell: Callable[[str], None]) -> None:
        """Read what is there; nothing is changed.

        Args:
            files: The file system.
            root: The store's directory.
            tell: Gets the reason why notes that are there do not count.
        """
        self._files = files
        self._root = root
        self.notes = load_notes(files, root, tell)
        self.has_notes = bool(self.notes.session)
        self.last_use = last_use(self.notes, load_abort(files, root))
        self.checkpoint = _load_checkpoint(files, root)
        is_clean = self.last_use is LastUse.CLEAN
        self.index_notes = self.notes.index if is_clean else ()
        self.index_durable = min(self.notes.flushed, self.notes.queues_at)
        self.quarantine = Quarantine(self.notes.quarantined)
        self.ranges: Ranges = self.notes.checksummed
        self.clock = self.notes.clock
        self._looked_at_ms = -_QUEUES_INTERVAL_MS
        self._seen: _Seen | None = None
        self._is_saved = False
        """True once notes were written since the opening: their main file may become the older."""

    def claim(self, *, pid: int, token: str) -> None:
        """Mark the directory as in use.

        Args:
            pid: This process.
            token: Names the session, unless the one that was interrupted goes on.

        Raises:
            OSError: It is not marked.
        """
        if self.last_use is not LastUse.CRASHED:
            self.checkpoint = replace(self.checkpoint, flushed_offset=0, dispatched_offset=0)
            if self._files.exists(checkpoint_path(self._root)):
                self.save_checkpoint(self.checkpoint)
            self.ranges = closed(self.ranges, self.notes.flushed)
            notes = replace(
                self.notes, session=token, is_open=True, checksummed=self.ranges, index=()
            )
            # Of a log that is new to this store there is nothing to note before it is settled: an
            # opening that is interrupted must not leave notes that know nothing.
            if self.has_notes:
                self._save(notes)
            self.notes = notes
        save_abort(self._files, self._root, AbortFile(pid, self.notes.session))

    def note_quarantine(self) -> None:
        """Note durably what of the log is damaged, before that can no longer be told from it.

        Raises:
            OSError: It is not noted.
        """
        if self.has_notes:
            self._save(replace(self.notes, quarantined=self.quarantine.ranges))

    @property
    def flushed(self) -> PhysicalOffset:
        """Log offset up to which the log is known to have been on the disk."""
        return max(self.notes.flushed, PhysicalOffset(self.checkpoint.flushed_offset))

    def verify(self, offset: PhysicalOffset) -> Verify:
        """Return how much of the record at `offset` is to be checked."""
        return Verify.WHOLE if is_inside(self.ranges, offset) else Verify.BODY

    def check_at(self, offset: PhysicalOffset) -> VerifyRange:
        """Return how the log is to be checked from `offset` on, and up to where."""
        return VerifyRange(self.verify(offset), next_border(self.ranges, offset))

    def lower(self, end: PhysicalOffset) -> None:
        """Make durable that nothing behind `end` counts as on the disk; the cut follows.

        Raises:
            OSError: Nothing may be cut.
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
        # Both generations: the older one would vouch for what is cut.
        self._save(notes)
        self._save(notes)

    def lower_queues(self, start: PhysicalOffset) -> None:
        """Make durable that units of records from `start` on may not be on the disk.

        They are wiped and written anew, and nothing syncs them before the next checkpoint.

        Raises:
            OSError: None may be wiped.
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
        """Note the kind of the records that a replica is to copy behind the log's `end`.

        A range begins here at once and in the notes soon; that it ends is noted before anything
        lies there that has no checksum: it would be taken for damaged.

        Args:
            end: End of the log.
            is_checksummed: True if every record that follows has its checksum.

        Raises:
            OSError: It is not noted that the range ends.
        """
        if is_checksummed:
            self.ranges = opened(self.ranges, end)
        elif self.is_range_open:
            self.ranges = closed(self.ranges, end)
            self._save(replace(self.notes, checksummed=self.ranges))

    def look(
        self, queues: Iterable[ConsumeQueue], *, dispatched: PhysicalOffset, now_ms: int
    ) -> None:
        """Record the ends of the queues when it is due, for notes once their units are on the disk.

        Args:
            queues: All there are.
            dispatched: Up to which offset of the log.
            now_ms: Time by the monotonic clock.
        """
        is_due = (
            now_ms - self._looked_at_ms >= _QUEUES_INTERVAL_MS
            or dispatched - self.notes.queues_at >= _QUEUES_BYTES
        )
        if self._seen is None and is_due:
            self._looked_at_ms = now_ms
            self._seen = _Seen(dispatched, _notes_of(queues))

    def notes_due(self, flushed: PhysicalOffset, start: PhysicalOffset) -> LogNotes | None:
        """Return what to write into the side file, if there is something new.

        The queues' files are synced before. `notes_done` must follow before the next.

        Args:
            flushed: The log is on the disk up to here.
            start: The log begins here.
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
            # Queues' files go after the log's: the next look tells where each begins.
            queues = tuple(note._replace(first=note.end) for note in notes.queues)
            notes = replace(notes, log_start=start, queues=queues)
        return notes if notes != self.notes else None

    def notes_done(self, notes: LogNotes, *, is_good: bool) -> None:
        """Record that `notes` were written, or else that they are due again."""
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
        """Record that the clock has moved by `by_ms` at the log's `end`; a checkpoint notes it."""
        self.clock = stepped(self.clock, by_ms, end)

    def clock_left(self, at_ms: int) -> None:
        """Record a believed clock at a stop, 0 = none; a clean stop notes it."""
        self.clock = replace(self.clock, left_at_ms=at_ms)

    def clock_believed(self) -> None:
        """Record that the clock is no longer in doubt; a checkpoint notes it."""
        self.clock = replace(self.clock, doubt=None)

    def note_doubt(self, doubt: ClockDoubt) -> None:
        """Note durably that the clock is in doubt, until it is believed.

        Raises:
            OSError: It is not noted yet.
        """
        self.clock = doubted(self.clock, doubt)
        self.note_clock()

    def timer_follows(self, move: TimerMove) -> None:
        """Record a step of the clock for timed messages to follow; a checkpoint notes it."""
        self.clock = replace(self.clock, timer_moves=(*self.clock.timer_moves, move))

    def timer_followed(self, first: int) -> None:
        """Record that no timed message before `first` waits; a checkpoint notes it."""
        left = tuple(move for move in self.clock.timer_moves if move.end > first)
        self.clock = replace(self.clock, timer_moves=left)

    def timer_cut(self, end: QueueOffset) -> None:
        """Record that the timed messages from `end` on were cut; a checkpoint notes it."""
        moves = tuple(move._replace(end=min(move.end, end)) for move in self.clock.timer_moves)
        self.clock = replace(self.clock, timer_moves=moves)

    def note_clock(self) -> None:
        """Note durably what is known of the clock: while no checkpoint is under way.

        Raises:
            OSError: It is not noted yet.
        """
        self._save(replace(self.notes, clock=self.clock))

    def note_tables(self, names: Sequence[str]) -> None:
        """Note which tables there are from now on, durably; nothing when that is noted.

        Args:
            names: Names of their files, without blanks.

        Raises:
            OSError: It is not noted.
        """
        if names != self.notes.tables:
            self._save(replace(self.notes, tables=names))

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint, durably.

        Raises:
            OSError: Nobody knows what it says now.
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
