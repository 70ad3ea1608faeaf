"""Taking over the files of a log: which there must be, and what becomes of those that do not fit.

Everything is looked at before anything is changed: a store that is refused stays as it was. It is
refused only where nothing tells which files are the log's, or how long they are.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import commit_log_folder, file_name
from ternmq_store.disk.mapped_file_queue import FoundFile, find_files
from ternmq_store.log.log_notes import LastUse
from ternmq_store.log.quarantine import Stretch
from ternmq_store.log.resync import HEAD_BYTES, claimed_offset, next_record
from ternmq_store.recovery.choices import (
    Choice,
    Undecided,
    UndecidedStore,
    Way,
    repair_command,
)
from ternmq_store.recovery.recovery import Finding, What
from ternmq_store.recovery.session import Session
from ternmq_store.recovery.set_aside import set_aside_file, set_aside_surplus


class KnownLog(NamedTuple):
    """What was noted of a log."""

    file_bytes: int = 0
    """Length of its files; 0 = not noted."""

    start: int = 0
    flushed: int = 0
    """It was on the disk up to here."""

    is_ours: bool = False
    """Nobody else used it since."""

    was_closed: bool = False
    """It ended at `flushed`."""


class Stray(NamedTuple):
    """A file that is none of the log."""

    file: FoundFile
    reason: str


@dataclass(frozen=True, slots=True)
class LogPlan:
    """What is to be done with the files of a log."""

    file_bytes: int
    row: Sequence[FoundFile]
    """The log's files without a gap, as they lie there: one of another length gets its own, and one
    of 0 bytes may be missing."""

    removed: Sequence[FoundFile] = ()
    """Empty ones at the end."""

    strays: Sequence[Stray] = ()

    @property
    def short(self) -> Sequence[FoundFile]:
        """Files that lack their end, or all."""
        return [file for file in self.row if file.file_bytes < self.file_bytes]

    @property
    def long(self) -> Sequence[FoundFile]:
        """Files with something behind their end."""
        return [file for file in self.row if file.file_bytes > self.file_bytes]

    def lacks(self, offset: int) -> bool:
        """Tell whether no file has byte `offset`, which may have been there."""
        has_gap = any(
            file.file_bytes <= offset - file.base < self.file_bytes for file in self.short
        )
        return has_gap or not self.row or offset >= self.row[-1].base + self.file_bytes

    def damage(self, flushed: int) -> Iterator[Stretch]:
        """Yield what was on the disk and is missing now, for a log that was there to `flushed`."""
        for file in self.short:
            start, end = file.base + file.file_bytes, file.base + self.file_bytes
            if file is self.row[-1]:
                end = min(end, flushed)
            if end > start:
                reason = "the end of the file was missing" if file.file_bytes else "no file"
                yield Stretch(PhysicalOffset(start), PhysicalOffset(end), reason)


def find_plan(files: FileSystem, root: Path, session: Session, default_bytes: int) -> LogPlan:
    """Return what is to be done with the log's files below `root`; nothing is changed.

    Args:
        files: The file system.
        root: The store's directory.
        session: Its notes.
        default_bytes: The length for a log without files.

    Raises:
        UndecidedStore: As `plan_log`, or files bear each other's names.
        OSError: A file cannot be read.
    """
    found, known = find_files(files, commit_log_folder(root)), _known_log(session)
    foreign = _find_foreign(files, found)
    plan = plan_log(
        *(found, known),
        default_bytes=default_bytes,
        foreign=foreign,
        has_own=partial(_has_own, files),
    )
    _check_surplus(files, plan, known)
    return plan


def _known_log(session: Session) -> KnownLog:
    """Return what the notes of a store say of its log."""
    notes, use = session.notes, session.last_use
    return KnownLog(
        notes.log_file_bytes,
        notes.log_start,
        session.flushed,
        is_ours=session.has_notes and use in {LastUse.CLEAN, LastUse.CRASHED},
        was_closed=use is LastUse.CLEAN,
    )


def plan_log(
    found: Sequence[FoundFile],
    known: KnownLog,
    *,
    default_bytes: int,
    foreign: Collection[Path] = (),
    has_own: Callable[[FoundFile], bool],
) -> LogPlan:
    """Return what to do with the files of a log.

    Args:
        found: The files, by base.
        known: What was noted of the log.
        default_bytes: The length for a log without files.
        foreign: Files with records that belong elsewhere, and none that lies where it says.
        has_own: Tells whether some record in a file says that it lies there.

    Raises:
        UndecidedStore: Nothing tells which files are the log's, or how long they are.
    """
    strays = [Stray(file, "its records belong elsewhere") for file in found if file.path in foreign]
    kept = [file for file in found if file.path not in foreign]
    end = len(kept)
    while end and kept[end - 1].file_bytes == 0:
        # The name of a new file reached the disk and nothing else did, or somebody emptied it.
        end -= 1
    kept, removed = kept[:end], kept[end:]
    if not kept and not strays:
        return LogPlan(default_bytes, kept, removed)
    file_bytes = _file_bytes(kept, known) if kept else default_bytes
    unfit = [file for file in kept if file.base % file_bytes]
    strays += [Stray(file, f"no file of {file_bytes} bytes begins there") for file in unfit]
    kept = [file for file in kept if file.base % file_bytes == 0]
    if len(strays) >= len(kept):
        raise _two_logs([kept, [stray.file for stray in strays]])
    runs = list(_runs(kept, file_bytes))
    row = list(runs[0])
    for run in runs[1:]:
        gap = range(row[-1].base + file_bytes, run[0].base, file_bytes)
        if known.is_ours and gap.start <= known.start:
            strays += [Stray(file, "the log began behind it") for file in row]
            row = list(run)
        elif _is_lost(gap, known, file_bytes) or (
            known.is_ours and not known.was_closed and any(map(has_own, run))
        ):
            folder = row[0].path.parent
            row += [FoundFile(base, folder / file_name(base), 0) for base in gap]
            row += run
        elif known.is_ours:
            strays += [Stray(file, "the log ended before it") for file in run]
        else:
            raise _has_gap(row, run, gap)
    return LogPlan(file_bytes, row, removed, sorted(strays, key=lambda stray: stray.file.base))


def _runs(kept: Sequence[FoundFile], file_bytes: int) -> Iterator[Sequence[FoundFile]]:
    """Yield the files that follow each other without a gap."""
    first = 0
    for number in range(1, len(kept) + 1):
        if number == len(kept) or kept[number].base != kept[number - 1].base + file_bytes:
            yield kept[first:number]
            first = number


def _is_lost(gap: range, known: KnownLog, file_bytes: int) -> bool:
    """Tell whether the files of a gap were there: the log was noted to go on behind them."""
    # What was flushed last may not be noted after a crash, with or without records in it.
    unnoted = 0 if known.was_closed else 2 * file_bytes
    return known.is_ours and gap.start < known.flushed and gap.stop < known.flushed + unnoted


def _file_bytes(kept: Sequence[FoundFile], known: KnownLog) -> int:
    lengths = Counter(file.file_bytes for file in kept if file.file_bytes)
    steps = Counter(after.base - before.base for before, after in pairwise(kept))
    noted, longest = known.file_bytes, max(lengths)
    if noted and (known.is_ours or noted >= longest):
        is_one = len(kept) == 1 and kept[0].base % noted == 0
        if is_one or noted in lengths:
            return noted
    # That a file begins where the one before ends tells as much as its length.
    votes = {
        length: sum(file.base % length == 0 for file in kept if file.file_bytes == length)
        + steps[length]
        for length in lengths
    }
    most = max(votes.values())
    best = sorted(length for length in lengths if votes[length] == most)
    if len(best) > 1:
        raise _two_lengths(kept, best)
    return best[0]


def _two_lengths(kept: Sequence[FoundFile], lengths: Sequence[int]) -> UndecidedStore:
    """Return the refusal of a log whose files may have either of two lengths."""
    told = ", ".join(f"{file.path.name} has {file.file_bytes} bytes" for file in kept[:8])
    ways = [
        Way(f"Where they have {length} bytes", _command(kept[0], f"--file-bytes {length}"))
        for length in lengths
    ]
    text = f"how long files of the log are is not clear: {told}"
    return UndecidedStore(Choice(Undecided.FILE_LENGTH, text, ways))


def _two_logs(groups: Sequence[Sequence[FoundFile]]) -> UndecidedStore:
    kept = [group for group in groups if group]
    text = f"{kept[0][0].path.parent} has files of two logs"
    return UndecidedStore(Choice(Undecided.TWO_LOGS, text, [*map(_away, kept)]))


def _has_gap(row: Sequence[FoundFile], run: Sequence[FoundFile], gap: range) -> UndecidedStore:
    text = f"{run[0].path} does not follow: {file_name(gap.start)} is missing"
    ways = [
        Way("Put it back if you have it"),
        Way("Where it is lost", _command(row[0], "--fill-gaps")),
        *(_away(group) for group in (row, run)),
    ]
    return UndecidedStore(Choice(Undecided.MISSING_FILE, text, ways))


def _away(group: Sequence[FoundFile]) -> Way:
    """Return the way on which files are none of the log."""
    names = [file.path.name for file in group]
    which = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    when = f"Where {which} {'is' if len(names) == 1 else 'are'} of another log"
    return Way(when, _command(group[0], *(f"--set-aside {name}" for name in names)))


def _command(file: FoundFile, *options: str) -> str:
    return repair_command(file.path.parent.parent, *options)


def _find_foreign(files: FileSystem, found: Sequence[FoundFile]) -> Collection[Path]:
    """Return the files whose first record belongs elsewhere, and that have none of their own.

    Raises:
        UndecidedStore: Files bear each other's names; names one and whose content it has.
    """
    by_base = {file.base: file for file in found}
    foreign: list[Path] = []
    for one in found:
        file = files.open(one.path, read_only=True)
        try:
            claimed = claimed_offset(file.read(0, HEAD_BYTES))
        finally:
            file.close()
        if claimed is None or claimed == one.base or _has_own(files, one):
            continue
        if claimed in by_base:
            other = by_base[claimed].path
            text = f"{one.path} holds what belongs into {other}"
            ways = [
                Way("Give each its name if they were mixed up"),
                Way("Where it is not worth it", _command(one, f"--set-aside {one.path.name}")),
            ]
            raise UndecidedStore(Choice(Undecided.SWAPPED_FILES, text, ways))
        foreign.append(one.path)
    return foreign


def _has_own(files: FileSystem, one: FoundFile) -> bool:
    """Tell whether some record in a file says that it lies there."""
    if not one.file_bytes:
        return False
    file = files.open(one.path, read_only=True)
    try:
        region = file.map()
    finally:
        file.close()
    try:
        at: int | None = -1
        while at is not None:
            at = next_record(region.view, at + 1, base=PhysicalOffset(one.base))
            if at is not None and claimed_offset(bytes(region.view[at : at + HEAD_BYTES])):
                return True
        return False
    finally:
        region.close()


def _check_surplus(files: FileSystem, plan: LogPlan, known: KnownLog) -> None:
    """Refuse a log with a file in which records of the log go on behind its end.

    Raises:
        UndecidedStore: Its files may have either of two lengths, and nothing noted tells which.
    """
    if known.is_ours and known.file_bytes == plan.file_bytes:
        return
    for found in plan.long:
        file = files.open(found.path, read_only=True)
        try:
            claimed = claimed_offset(file.read(plan.file_bytes, HEAD_BYTES))
        finally:
            file.close()
        if claimed == found.base + plan.file_bytes:
            raise _two_lengths([found], [plan.file_bytes, found.file_bytes])


def carry_out(
    files: FileSystem, root: Path, plan: LogPlan, flushed: int, tell: Callable[[Finding], None]
) -> None:
    """Set aside, remove and lengthen what the plan says.

    Args:
        files: The file system.
        root: The store's directory.
        plan: What to do.
        flushed: The log was on the disk up to here.
        tell: Gets a finding for each file.

    Raises:
        OSError: It could not be done.
    """
    for stray, reason in plan.strays:
        moved = set_aside_file(files, root, stray.path)
        tell(_aside(root, stray.path, stray.base, stray.file_bytes, reason, moved))
    for long in plan.long:
        at, length = long.base + plan.file_bytes, long.file_bytes - plan.file_bytes
        to = set_aside_surplus(files, root, long.path, plan.file_bytes)
        reason = f"the file had {long.file_bytes} bytes, not {plan.file_bytes}"
        if to is None:
            what = f"{reason}; only zeros were cut"
            tell(Finding(What.REPAIRED, long.path, at, length, what))
        else:
            tell(_aside(root, long.path, at, length, reason, to))
    for found in reversed(plan.removed):
        files.remove(found.path)
        tell(Finding(What.REMOVED, found.path, found.base, 0, "the file was empty"))
    for short in plan.short:
        _lengthen(files, short.path, plan.file_bytes)
    by_start = {short.base + short.file_bytes: short.path for short in plan.short}
    for start, end, reason in ((s.start, s.end, s.reason) for s in plan.damage(flushed)):
        tell(Finding(What.QUARANTINED, by_start[start], start, end - start, reason))
    last = plan.row[-1] if plan.row else None
    if last is not None and last.file_bytes < plan.file_bytes:
        at, missing = last.base + last.file_bytes, plan.file_bytes - last.file_bytes
        reason = "the end of the file was missing"
        tell(Finding(What.REPAIRED, last.path, at, missing, reason))


def _aside(root: Path, path: Path, at: int, length: int, reason: str, to: Path) -> Finding:
    told = f"{reason}; kept as {to}, which `ternmq store repair {root} --leftovers` removes"
    return Finding(What.SET_ASIDE, path, at, length, told)


def _lengthen(files: FileSystem, path: Path, length: int) -> None:
    is_new = not files.exists(path)
    file = files.open(path, create=True)
    try:
        file.resize(length)
        file.sync()
    finally:
        file.close()
    if is_new:
        files.sync_folder(path.parent)
