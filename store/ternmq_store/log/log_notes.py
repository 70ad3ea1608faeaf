"""Notes of a store about its log: the side file `ternmq.store` and the token in `abort`.

RocketMQ ignores the side file and writes an `abort` without a token. So a use by RocketMQ shows,
and the notes of an open session are void after it (docs/formats/store-notes.md).
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from ternmq_model.crc32 import crc32
from ternmq_model.errors import IllegalName, StateDamaged
from ternmq_model.file_generations import read_state
from ternmq_model.names import check_topic
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import abort_path, notes_path
from ternmq_store.disk.state_file import read_generations, read_whole, replace_file
from ternmq_store.log.checksum_ranges import ChecksumRange
from ternmq_store.log.clock_moves import (
    BELIEVED,
    ClockDoubt,
    ClockMove,
    ClockNotes,
    TimerMove,
    are_in_order,
)
from ternmq_store.log.quarantine import DamagedRange

FORMAT_VERSION: Final = 1
_START: Final = PhysicalOffset(0)
_OPEN: Final = "open"
_CLOSED: Final = "closed"
_NO_END: Final = "-"
_UNKNOWN: Final = "-"
_ABORT_BYTES_MAX: Final = 4096


class QueueNote(NamedTuple):
    """End of one consume queue."""

    topic: str
    queue_id: int
    first: QueueOffset
    """Queue offset of the first unit of its first file."""
    end: QueueOffset
    """Queue offset behind its last message."""


@dataclass(frozen=True, slots=True)
class LogNotes:
    """Content of the side file."""

    session: str = ""
    """Name of an unbroken use of the log by this store: the token in `abort`."""

    is_open: bool = False
    """True until a clean stop ends the session."""

    flushed: PhysicalOffset = _START
    """Log offset up to which the log was on the disk: its end after a clean stop."""

    log_start: PhysicalOffset = _START
    """Start of the log."""

    log_file_bytes: int = 0
    """Length of the log's files; 0 after a clean stop without a file."""

    checksummed: Sequence[ChecksumRange] = ()
    quarantined: Sequence[DamagedRange] = ()
    queues_at: PhysicalOffset = _START
    """Log offset up to which `queues` contained units when they were noted."""

    queues: Sequence[QueueNote] = ()
    index: Sequence[str] = ()
    """Lines about the index files at a clean stop; else none."""

    cut_to: PhysicalOffset | None = None
    """New end of the log: the next opening truncates it there."""

    tables: Sequence[str] = ()
    """Names of the existing table files in `config/`. An older version drops the line."""

    clock: ClockNotes = BELIEVED
    """Notes of the broker's clock. An older version drops the line."""


class AbortFile(NamedTuple):
    """Content of the file `abort`."""

    pid: int | None
    token: str
    """Token of the session; empty when RocketMQ wrote the file."""


class LastUse(enum.Enum):
    """End of the directory's last use, which decides whether the notes apply."""

    CLEAN = "clean"
    """Clean stop of this store or of RocketMQ."""

    CRASHED = "crashed"
    """Crash of this store, without another use since."""

    FOREIGN_CLEAN = "foreign clean"
    """Crash of this store, then a use by another program with a clean stop."""

    FOREIGN_CRASHED = "foreign crashed"
    """Crash of another program."""

    @property
    def is_clean(self) -> bool:
        """True after a clean stop, which syncs all files."""
        return self in {LastUse.CLEAN, LastUse.FOREIGN_CLEAN}


def last_use(notes: LogNotes, abort: AbortFile | None) -> LastUse:
    """Return the end of the last use, by its notes, perhaps empty, and the file `abort`."""
    if abort is None:
        return LastUse.FOREIGN_CLEAN if notes.is_open else LastUse.CLEAN
    is_ours = notes.is_open and bool(notes.session) and abort.token == notes.session
    return LastUse.CRASHED if is_ours else LastUse.FOREIGN_CRASHED


def encode_notes(notes: LogNotes) -> bytes:
    """Return the bytes of the side file: a fact a line, and a checksum of all lines at the end."""
    lines = [
        f"version {FORMAT_VERSION}",
        f"session {_OPEN if notes.is_open else _CLOSED} {notes.session}",
        f"flushed {notes.flushed}",
        f"log {notes.log_start} {notes.log_file_bytes}",
        *(
            f"checksummed {r.start} {_NO_END if r.end is None else r.end}"
            for r in notes.checksummed
        ),
        *(f"quarantined {s.start} {s.end} {_one_line(s.reason)}" for s in notes.quarantined),
        f"queues {notes.queues_at}",
        *(f"queue {q.queue_id} {q.first} {q.end} {q.topic}" for q in notes.queues),
        *([] if notes.cut_to is None else [f"cut {notes.cut_to}"]),
        *([f"tables {' '.join(notes.tables)}"] if notes.tables else []),
        *(f"moved {move.end} {move.by_ms}" for move in notes.clock.moves),
        *([] if notes.clock.doubt is None else ["doubt {} {}".format(*notes.clock.doubt)]),
        *([f"clock {notes.clock.left_at_ms}"] if notes.clock.left_at_ms else []),
        *(
            f"timer {move.end} {_UNKNOWN if move.by_ms is None else move.by_ms}"
            for move in notes.clock.timer_moves
        ),
        *(f"index {_one_line(line)}" for line in notes.index),
    ]
    text = "".join(f"{line}\n" for line in lines).encode()
    return text + f"crc32 {crc32(text):08x}\n".encode()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def decode_notes(data: bytes) -> LogNotes:
    """Return the notes in the bytes of the side file.

    Raises:
        ValueError: The bytes are cut, altered, or of a later version.
    """
    text, separator, checksum = data.rpartition(b"crc32 ")
    if not separator or checksum.strip() != f"{crc32(text):08x}".encode():
        raise ValueError("the checksum differs")
    facts: dict[str, list[str]] = {}
    for line in text.decode().splitlines():
        name, _, value = line.partition(" ")
        facts.setdefault(name, []).append(value)
    if facts.get("version") != [str(FORMAT_VERSION)]:
        raise ValueError(f"version {facts.get('version')} is not known")
    state, _, session = facts["session"][0].partition(" ")
    log_start, _, log_file_bytes = facts["log"][0].partition(" ")
    return LogNotes(
        session,
        state == _OPEN,
        _offset(facts["flushed"][0]),
        _offset(log_start),
        _offset(log_file_bytes),
        tuple(_range(value) for value in facts.get("checksummed", ())),
        tuple(_damaged_range(value) for value in facts.get("quarantined", ())),
        _offset(facts["queues"][0]),
        tuple(_queue(value) for value in facts.get("queue", ())),
        tuple(facts.get("index", ())),
        _offset(facts["cut"][0]) if "cut" in facts else None,
        tuple(facts["tables"][0].split()) if "tables" in facts else (),
        _clock(facts),
    )


def _offset(text: str) -> PhysicalOffset:
    offset = PhysicalOffset(int(text))
    if offset < 0:
        raise ValueError(f"{offset} is no offset")
    return offset


def _clock(facts: Mapping[str, Sequence[str]]) -> ClockNotes:
    moves = tuple(ClockMove(*_place_and_ms(text)) for text in facts.get("moved", ()))
    if not are_in_order(moves):
        raise ValueError("moves of the clock are not in order")
    doubts = [ClockDoubt(*_place_and_ms(text)) for text in facts.get("doubt", ())]
    left_at_ms = int(facts["clock"][0]) if "clock" in facts else 0
    timer_moves = tuple(_timer_move(text) for text in facts.get("timer", ()))
    return ClockNotes(moves, doubts[0] if doubts else None, left_at_ms, timer_moves)


def _timer_move(text: str) -> TimerMove:
    end, _, ms = text.partition(" ")
    return TimerMove(QueueOffset(_offset(end)), None if ms == _UNKNOWN else int(ms))


def _place_and_ms(text: str) -> tuple[PhysicalOffset, int]:
    offset, _, ms = text.partition(" ")
    return _offset(offset), int(ms)


def _range(text: str) -> ChecksumRange:
    start, _, end = text.partition(" ")
    return ChecksumRange(_offset(start), None if end == _NO_END else _offset(end))


def _damaged_range(text: str) -> DamagedRange:
    start, end, *reason = text.split(" ", 2)
    return DamagedRange(_offset(start), _offset(end), *reason or [""])


def _queue(text: str) -> QueueNote:
    numbers, topic = text.split(" ")[:-1], text.rpartition(" ")[2]
    queue_id, first, end = map(_offset, numbers)
    try:
        return QueueNote(check_topic(topic), queue_id, QueueOffset(first), QueueOffset(end))
    except IllegalName as error:
        raise ValueError(str(error)) from error


def load_notes(files: FileSystem, root: Path, on_damage: Callable[[str], None]) -> LogNotes:
    """Return the notes of the store at `root`; empty notes if all are missing or damaged.

    A store without notes is like one of RocketMQ: its timestamps decide, and no checksum is
    required. `on_damage` is called with the reason why damaged notes do not apply.

    Raises:
        StateUnreadable: Notes exist and cannot be read.
    """
    try:
        return read_generations(files, notes_path(root), decode_notes) or LogNotes()
    except StateDamaged as error:
        on_damage(str(error))
        return LogNotes()


def save_notes(files: FileSystem, root: Path, notes: LogNotes, *, in_both: bool = False) -> None:
    """Replace the side file, durably; with `in_both` its previous generation, too.

    Raises:
        OSError: The disk refused; the earlier notes remain.
    """
    replace_file(files, notes_path(root), encode_notes(notes), in_both=in_both)


def encode_abort(abort: AbortFile) -> bytes:
    """Return the bytes of `abort`: process on the first line, token on the second."""
    return f"{'' if abort.pid is None else abort.pid}\n{abort.token}\n".encode()


def decode_abort(data: bytes) -> AbortFile:
    """Return the content of `abort`, written by this store or by RocketMQ."""
    pid, _, rest = data.decode("ascii", "replace").partition("\n")
    token = rest.partition("\n")[0].strip()
    pid = pid.strip()
    return AbortFile(int(pid) if pid.isascii() and pid.isdigit() else None, token)


def load_abort(files: FileSystem, root: Path) -> AbortFile | None:
    """Return the content of `abort`; None when it is missing, as after a clean stop.

    Raises:
        StateUnreadable: The file exists and cannot be read.
    """
    try:
        data = read_state(partial(read_whole, files, bytes_max=_ABORT_BYTES_MAX), abort_path(root))
    except ValueError:
        return AbortFile(None, "")
    return None if data is None else decode_abort(data)


def save_abort(files: FileSystem, root: Path, abort: AbortFile) -> None:
    """Write `abort`, which only a clean stop removes, durably.

    Raises:
        OSError: The disk refused; the earlier file remains.
    """
    replace_file(files, abort_path(root), encode_abort(abort), keep_previous=False)
