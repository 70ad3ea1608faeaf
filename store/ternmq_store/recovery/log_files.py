"""The plan for the files of a log at its opening, and for files that do not fit.

The plan is complete before a change, so a refused store stays as it was. A store is refused only if
neither notes nor files show which files are the log's, or how long they are.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.disk.file_content import set_length
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import commit_log_folder, file_name
from ternmq_store.disk.mapped_file_queue import FoundFile, find_files
from ternmq_store.log.log_notes import LastUse
from ternmq_store.log.quarantine import DamagedRange
from ternmq_store.log.store_session import StoreSession
from ternmq_store.opened_files import RecoveryAction, RecoveryFinding, RecoveryFindings
from ternmq_store.recovery.foreign_files import set_aside_file, set_aside_surplus
from ternmq_store.recovery.recorded_offsets import FileRecordedOffsets, LogFit, RecordedOffsets
from ternmq_store.recovery.recovery_decisions import (
    RecoveryDecision,
    RecoveryOption,
    UndecidedState,
    UndecidedStore,
    repair_command,
)

_NAMED_MAX: Final = 8  # files that an error names

_ODD_BYTES_MAX: Final = 4096
"""Limit of the distance between a length and the setting of which it is a damaged form."""

GAP_FILES_MAX: Final = 10_000
"""Limit of a gap, in files: behind a longer gap, files without a unit belong to another log."""

_UNNOTED_FILES_MAX: Final = 2
"""Count of files that a crash may leave unnoted: files behind so short a gap need no unit."""


class KnownLog(NamedTuple):
    """Notes of a log, for a plan."""

    file_bytes: int = 0
    """Length of the log's files; 0 = unknown."""

    start: int = 0
    flushed: int = 0
    """Offset up to which the log was on the disk."""

    is_ours: bool = False
    """True if no other program has used the log since."""

    was_closed: bool = False
    """True if the log ended at `flushed`."""


class ForeignFile(NamedTuple):
    """A file in the log's folder that is foreign to the log."""

    file: FoundFile
    reason: str


@dataclass(frozen=True, slots=True)
class LogFilePlan:
    """The plan for the files of a log."""

    file_bytes: int
    row: Sequence[FoundFile]
    """Files of the log without a gap, with their present lengths; one of 0 bytes may be missing."""

    removed: Sequence[FoundFile] = ()
    """Empty files at the end, which are removed."""

    strays: Sequence[ForeignFile] = ()

    misnamed: Sequence[FoundFile] = ()
    """Files of `row` with another name."""

    @property
    def is_in_order(self) -> bool:
        """True if every file is the log's and has its name and length."""
        return not (self.misnamed or self.strays or self.long or self.short)

    @property
    def short(self) -> Sequence[FoundFile]:
        """Files that lack their end or all bytes."""
        return [file for file in self.row if file.file_bytes < self.file_bytes]

    @property
    def long(self) -> Sequence[FoundFile]:
        """Files with bytes behind their end."""
        return [file for file in self.row if file.file_bytes > self.file_bytes]

    def lacks(self, offset: int) -> bool:
        """Return whether no file has byte `offset` of the log."""
        has_gap = any(
            file.file_bytes <= offset - file.base < self.file_bytes for file in self.short
        )
        return has_gap or not self.row or offset >= self.row[-1].base + self.file_bytes

    def damage(self, flushed: int) -> Iterator[DamagedRange]:
        """Yield the missing ranges of a log that was on the disk up to `flushed`."""
        for file in self.short:
            start, end = file.base + file.file_bytes, file.base + self.file_bytes
            if file is self.row[-1]:
                end = min(end, flushed)
            if end > start:
                reason = "the end of the file was missing" if file.file_bytes else "no file"
                yield DamagedRange(PhysicalOffset(start), PhysicalOffset(end), reason)


def find_plan(
    files: FileSystem,
    root: Path,
    session: StoreSession,
    default_bytes: int,
    *,
    unread: type[OSError] = FileNotFoundError,
) -> LogFilePlan:
    """Return the plan for the log's files below `root`, before a change.

    The arguments are those of `plan_log` and `FileRecordedOffsets`.

    Raises:
        UndecidedStore: Neither notes nor files show the files of the log, or their length.
        OSError: A file cannot be read.
    """
    found = find_files(files, commit_log_folder(root))
    recorded = FileRecordedOffsets(files, root, unread)
    return plan_log(found, _known_log(session), default_bytes=default_bytes, recorded=recorded)


def _known_log(session: StoreSession) -> KnownLog:
    notes, use = session.notes, session.last_use
    return KnownLog(
        notes.log_file_bytes,
        notes.log_start,
        session.flushed,
        is_ours=session.has_notes and use in {LastUse.CLEAN, LastUse.CRASHED},
        was_closed=use is LastUse.CLEAN,
    )


def plan_log(
    found: Sequence[FoundFile], known: KnownLog, *, default_bytes: int, recorded: RecordedOffsets
) -> LogFilePlan:
    """Return the plan for the files of a log.

    Args:
        found: Files by base.
        known: Notes of the log.
        default_bytes: Length of the files of a log without a file.
        recorded: Offsets that the records of the files claim.

    Raises:
        UndecidedStore: Neither notes nor files show the files of the log, or their length.
    """
    foreign = [file for file in found if _is_foreign(file, recorded)]
    kept = [file for file in found if file not in foreign]
    end = len(kept)
    while end and kept[end - 1].file_bytes == 0:
        # Only the name of a new file reached the disk, or another program emptied the file.
        end -= 1
    kept, removed = kept[:end], kept[end:]
    if not kept and not foreign:
        return LogFilePlan(default_bytes, kept, removed)
    file_bytes = _file_bytes(kept, known, default_bytes, recorded)
    unfit = [file for file in kept if file.base % file_bytes]
    strays = [ForeignFile(file, f"no file of {file_bytes} bytes begins there") for file in unfit]
    kept = [file for file in kept if file.base % file_bytes == 0]
    back, others = _divide_foreign(foreign, [*kept, *removed], known, file_bytes, recorded)
    kept, strays = sorted([*kept, *back], key=_base), [*strays, *others]
    if strays and (not kept or (not known.is_ours and len(strays) >= len(kept))):
        raise _two_logs([kept, [stray.file for stray in strays]])
    runs = list(_runs(kept, file_bytes))
    row = list(runs[0])
    for run in runs[1:]:
        gap = range(row[-1].base + file_bytes, run[0].base, file_bytes)
        if known.is_ours and gap.start <= known.start:
            strays += [ForeignFile(file, "the log began behind it") for file in row]
            row = list(run)
        elif _is_lost(gap, known, file_bytes) or _goes_on(gap, row, run, known, recorded):
            folder = row[0].path.parent
            row += [FoundFile(base, folder / file_name(base), 0) for base in gap]
            row += run
        elif known.is_ours:
            strays += [ForeignFile(file, "the log ended before it") for file in run]
        else:
            raise _has_gap(row, run, gap)
    _check_surplus(row, file_bytes, recorded)
    return LogFilePlan(
        file_bytes,
        [replace(file, path=right_path(file)) for file in row],
        removed,
        sorted(strays, key=lambda stray: stray.file.base),
        [file for file in row if file.path != right_path(file)],
    )


def _is_foreign(file: FoundFile, recorded: RecordedOffsets) -> bool:
    """Return whether the first record of a file claims another file, and none claims this one."""
    return recorded.first(file) not in {None, file.base} and recorded.own(file) is None


def _base(file: FoundFile) -> int:
    return file.base


def right_path(file: FoundFile) -> Path:
    """Return the path of a file by its base."""
    return file.path.with_name(file_name(file.base))


def _divide_foreign(
    foreign: Sequence[FoundFile],
    others: Sequence[FoundFile],
    known: KnownLog,
    file_bytes: int,
    recorded: RecordedOffsets,
) -> tuple[Sequence[FoundFile], Sequence[ForeignFile]]:
    """Divide files whose records claim other files.

    Returns:
        Files that are missing at the claimed base, with that base; and the other files.

    Raises:
        UndecidedStore: The names of several files are mixed up.
    """
    places = {file.base: file for file in others}
    mixed_up = {file.base for file in foreign}
    first, last = min(places, default=known.start), max(places, default=known.start - file_bytes)
    start, end = first - file_bytes, last + file_bytes + 1
    if known.is_ours:
        start = max(start, known.start)
        end = known.flushed if known.was_closed else max(end, known.flushed)
    back: list[FoundFile] = []
    strays: list[ForeignFile] = []
    for file in foreign:
        claimed = recorded.first(file) or PhysicalOffset(0)
        there = places.get(claimed)
        if claimed in mixed_up or (there is not None and recorded.own(there) is None):
            raise _swapped(file, file.path.with_name(file_name(claimed)))
        if there is not None:
            strays.append(ForeignFile(file, f"its records are those of {there.path.name}"))
        elif claimed % file_bytes == 0 and start <= claimed < end:
            places[claimed] = FoundFile(claimed, file.path, file.file_bytes)
            back.append(places[claimed])
        else:
            strays.append(ForeignFile(file, "its records belong elsewhere"))
    return back, strays


def _runs(kept: Sequence[FoundFile], file_bytes: int) -> Iterator[Sequence[FoundFile]]:
    """Yield sequences of files without a gap."""
    first = 0
    for number in range(1, len(kept) + 1):
        if number == len(kept) or kept[number].base != kept[number - 1].base + file_bytes:
            yield kept[first:number]
            first = number


def _is_lost(gap: range, known: KnownLog, file_bytes: int) -> bool:
    """Return whether the files of a gap are lost: by the notes, the log went on behind them."""
    # The last flush before a crash may not be noted, with or without records.
    unnoted = 0 if known.was_closed else 2 * file_bytes
    return known.is_ours and gap.start < known.flushed and gap.stop < known.flushed + unnoted


def _goes_on(
    gap: range,
    row: Sequence[FoundFile],
    run: Sequence[FoundFile],
    known: KnownLog,
    recorded: RecordedOffsets,
) -> bool:
    """Return whether a log that was not closed continues behind a gap.

    Raises:
        UndecidedStore: The files behind a long gap have good records without a unit.
    """
    fit = recorded.fit(run) if known.is_ours and not known.was_closed else LogFit.NO_RECORD
    if fit is LogFit.UNCONFIRMED and _UNNOTED_FILES_MAX < len(gap) <= GAP_FILES_MAX:
        raise _has_gap(row, run, gap)
    is_near = len(gap) <= _UNNOTED_FILES_MAX
    return fit is LogFit.CONFIRMED or (fit is LogFit.UNCONFIRMED and is_near)


def _file_bytes(
    kept: Sequence[FoundFile], known: KnownLog, default_bytes: int, recorded: RecordedOffsets
) -> int:
    lengths = Counter(file.file_bytes for file in kept if file.file_bytes)
    noted = known.file_bytes
    if noted and known.is_ours:
        unfit = [file for file in kept if file.base % noted]
        if noted in lengths or not any(recorded.own(file) is not None for file in unfit):
            return noted
    if not lengths:
        return default_bytes
    steps, longest = _steps(kept), max(lengths)
    if len(kept) == 1:
        is_noted = noted >= longest and kept[0].base % noted == 0
        is_close = abs(longest - default_bytes) < min(_ODD_BYTES_MAX, default_bytes // 8)
        fits = is_close and kept[0].base % default_bytes == 0
        return noted if is_noted else default_bytes if fits else longest
    if noted in lengths and noted == longest:
        return noted
    # The distance of the bases of two files shows as much as their length.
    votes = {
        length: sum(file.base % length == 0 for file in kept if file.file_bytes == length)
        + steps[length]
        for length in {
            *lengths,
            *(step for step in steps if steps[step] > 1 and 2 * step > longest),
        }
    }
    most = max(votes.values())
    best = sorted(length for length in votes if votes[length] == most)
    if len(best) > 1:
        raise _two_lengths(kept, best)
    return best[0]


def _steps(kept: Sequence[FoundFile]) -> Counter[int]:
    """Return the counts of distances between bases of neighbours."""
    return Counter(after.base - before.base for before, after in pairwise(kept))


def _two_lengths(kept: Sequence[FoundFile], lengths: Sequence[int]) -> UndecidedStore:
    """Return the refusal of a log whose files may have either of two lengths."""
    text = ", ".join(f"{file.path.name} has {file.file_bytes} bytes" for file in kept[:_NAMED_MAX])
    ways = [
        RecoveryOption(
            f"Where they have {length} bytes", _command(kept[0], f"--file-bytes {length}")
        )
        for length in lengths
    ]
    text = f"the length of the log's files is unclear: {text}"
    return UndecidedStore(RecoveryDecision(UndecidedState.FILE_LENGTH, text, ways))


def _two_logs(groups: Sequence[Sequence[FoundFile]]) -> UndecidedStore:
    kept = [group for group in groups if group]
    files = sorted((file for group in kept for file in group), key=_base)
    ways = [
        RecoveryOption(f"Where all have {step} bytes", _command(files[0], f"--file-bytes {step}"))
        for step in sorted(_steps(files))
        if not any(file.base % step or file.file_bytes >= 2 * step for file in files)
    ]
    if len(kept) == 1:  # without them no file remains
        ways.append(RecoveryOption("Put the files of the log back if you have them"))
    text = f"{files[0].path.parent} has files of two logs"
    return UndecidedStore(
        RecoveryDecision(UndecidedState.TWO_LOGS, text, [*ways, *map(_away, kept)])
    )


def _swapped(file: FoundFile, right: Path) -> UndecidedStore:
    text = f"{file.path} contains the records of {right}"
    ways = [
        RecoveryOption("Give each its name if they were mixed up"),
        RecoveryOption("Where it is not worth it", _command(file, f"--set-aside {file.path.name}")),
    ]
    return UndecidedStore(RecoveryDecision(UndecidedState.SWAPPED_FILES, text, ways))


def _has_gap(row: Sequence[FoundFile], run: Sequence[FoundFile], gap: range) -> UndecidedStore:
    text = f"{run[0].path} does not follow: {file_name(gap.start)} is missing"
    ways = [
        RecoveryOption("Put it back if you have it"),
        RecoveryOption("Where it is lost", _command(row[0], "--fill-gaps")),
        *(_away(group) for group in (row, run)),
    ]
    return UndecidedStore(RecoveryDecision(UndecidedState.MISSING_FILE, text, ways))


def _away(group: Sequence[FoundFile]) -> RecoveryOption:
    """Return the option by which files belong to another log."""
    names = [file.path.name for file in group]
    which = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    when = f"Where {which} {'is' if len(names) == 1 else 'are'} of another log"
    return RecoveryOption(when, _command(group[0], *(f"--set-aside {name}" for name in names)))


def _command(file: FoundFile, *options: str) -> str:
    return repair_command(file.path.parent.parent, *options)


def _check_surplus(row: Sequence[FoundFile], file_bytes: int, recorded: RecordedOffsets) -> None:
    """Refuse a log with a file that is too long, and has records behind its end that no other has.

    Raises:
        UndecidedStore: The files may have either of two lengths.
    """
    by_base = {file.base: file for file in row}
    for long in (file for file in row if file.file_bytes > file_bytes):
        at = recorded.own(long, file_bytes)
        there = None if at is None else by_base.get(at - at % file_bytes)
        if at is not None and (there is None or recorded.own(there) is None):
            raise _two_lengths([long], [file_bytes, long.file_bytes])


def carry_out(
    files: FileSystem,
    root: Path,
    plan: LogFilePlan,
    flushed: int,
    findings: RecoveryFindings,
) -> None:
    """Rename, set aside, remove and lengthen files by the plan; add a finding for each.

    Raises:
        OSError: The plan is not carried out.
    """
    for file in plan.misnamed:
        path = right_path(file)
        files.rename(file.path, path)
        files.sync_folder(path.parent)
        findings.add(
            RecoveryAction.REPAIRED, path, file.base, 0, f"the file had the name {file.path.name}"
        )
    for stray, reason in plan.strays:
        moved = set_aside_file(files, root, stray.path)
        findings.add(*_aside(root, stray.path, stray.base, stray.file_bytes, reason, moved))
    for long in plan.long:
        at, length = long.base + plan.file_bytes, long.file_bytes - plan.file_bytes
        to = set_aside_surplus(files, root, long.path, plan.file_bytes)
        reason = f"the file had {long.file_bytes} bytes, not {plan.file_bytes}"
        if to is None:
            what = f"{reason}; only zeros were cut"
            findings.add(RecoveryAction.REPAIRED, long.path, at, length, what)
        else:
            findings.add(*_aside(root, long.path, at, length, reason, to))
    for found in reversed(plan.removed):
        files.remove(found.path)
        findings.add(RecoveryAction.REMOVED, found.path, found.base, 0, "the file was empty")
    for short in plan.short:
        set_length(files, short.path, plan.file_bytes)
    by_start = {short.base + short.file_bytes: short.path for short in plan.short}
    for lost in plan.damage(flushed):
        path, length = by_start[lost.start], lost.end - lost.start
        findings.add(RecoveryAction.QUARANTINED, path, lost.start, length, lost.reason)
    last = plan.row[-1] if plan.row else None
    if last is not None and last.file_bytes < plan.file_bytes:
        at, missing = last.base + last.file_bytes, plan.file_bytes - last.file_bytes
        reason = "the end of the file was missing"
        findings.add(RecoveryAction.REPAIRED, last.path, at, missing, reason)


def _aside(root: Path, path: Path, at: int, length: int, reason: str, to: Path) -> RecoveryFinding:
    text = f"{reason}; kept as {to}, which `ternmq store repair {root} --leftovers` removes"
    return RecoveryFinding(RecoveryAction.SET_ASIDE, path, at, length, text)
