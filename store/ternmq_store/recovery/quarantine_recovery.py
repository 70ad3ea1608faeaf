"""Recovery of the quarantine: damaged ranges grow to whole records, and good ones are lifted."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.scanner import follow_lengths
from ternmq_store.log.checksum_ranges import VerifyRange
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.log.quarantine import DamagedRange, Quarantine
from ternmq_store.opened_files import RecoveryAction, RecoveryFinding

_RECORDS: Final = 4096


def add_torn(log: CommitLog, quarantine: Quarantine, damage: Iterable[DamagedRange]) -> None:
    """Quarantine the records, too, whose ends lie in missing bytes."""
    for damaged in damage:
        file = log.files.at(damaged.start)
        limit, at, before, is_stopped = damaged.start - file.base, 0, -1, False
        while before < at:
            before = at
            _, at, is_stopped = follow_lengths(file.view, at, limit, _RECORDS)
        if at < limit and not is_stopped:
            start = PhysicalOffset(file.base + at)
            quarantine.add(start, damaged.start, damaged.reason)


def lift_mended(
    log: CommitLog, quarantine: Quarantine, check_at: Callable[[PhysicalOffset], VerifyRange]
) -> Sequence[RecoveryFinding]:
    """Forget what of the damaged ranges holds nothing but good records, file by file.

    Bytes that are damaged still cost a look at the first record of each.

    Args:
        log: All of it.
        quarantine: Its damaged ranges.
        check_at: How records are to be checked.

    Returns:
        A finding for each piece that was forgotten.
    """
    mended: list[RecoveryFinding] = []
    for damaged in quarantine.ranges:
        for file in log.files.files:
            start = PhysicalOffset(max(damaged.start, file.base))
            end = PhysicalOffset(min(damaged.end, file.end))
            if start < end and _is_good(log, start, end, check_at):
                quarantine.remove(start, end)
                reason = "the damaged stretch is good again"
                mended.append(
                    RecoveryFinding(
                        RecoveryAction.REPAIRED, file.file.path, start, end - start, reason
                    )
                )
    return mended


def _is_good(
    log: CommitLog,
    start: PhysicalOffset,
    end: PhysicalOffset,
    check_at: Callable[[PhysicalOffset], VerifyRange],
) -> bool:
    """Return whether from `start` to `end`, in one file, one good record follows the other."""
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
