"""Rules of the log scan at opening: its start, and the end of a damaged range. Pure.

The checks of a record are in `ternmq_model.record.integrity` and `scanner`.

Source: RocketMQ `CommitLog.recoverNormally`, `recoverAbnormally`, `ConsumeQueue.recover`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ternmq_model.offsets import PhysicalOffset

ALWAYS_MS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """Start of a log file, and the store time of its first record; 0 = the record is bad."""

    base: PhysicalOffset
    stored_at_ms: int


def scan_start(files: Sequence[FirstRecord], safe_at_ms: int) -> PhysicalOffset:
    """Return the start of the scan after a crash, by timestamps alone.

    Args:
        files: At least one file of the log, oldest first.
        safe_at_ms: Store time up to which records and their units are on the disk.

    Source: RocketMQ `CommitLog.recoverAbnormally`, `isMappedFileMatchedRecover`.
    """
    for file in reversed(files):
        if 0 < file.stored_at_ms <= safe_at_ms:
            return file.base
    return files[0].base


@dataclass(frozen=True, slots=True)
class ScanRules:
    """Facts about the scanned log."""

    flushed: PhysicalOffset
    """Log offset up to which the log was on the disk, at most the end of its last file."""

    is_ours: bool
    """True if only this store has written to the log. Bytes behind `flushed` do not count as stored
    then, and no stale record follows, since a cut writes zeros."""

    left_at: PhysicalOffset | None
    """End of the log at a clean stop of this store; None = there was none."""

    safe_at_ms: int
    """Store time up to which records of another program were on the disk."""

    known_end: PhysicalOffset | None = None
    """For a log without notes: the end of the last record with a unit, 0 = there is none. None =
    notes or store times are more exact."""


class NextGood(NamedTuple):
    """The good record behind a bad one."""

    offset: PhysicalOffset
    stored_at_ms: int


def end_of_damage(
    rules: ScanRules,
    at: PhysicalOffset,
    following: NextGood | None,
    *,
    last_stored_at_ms: int,
    is_checksummed: bool,
) -> PhysicalOffset | None:
    """Return the end of the damaged range that begins at `at`; None = the log ends at `at`.

    RocketMQ cuts a log by moving its positions, so older records may remain behind its end. They
    have no units, and their store times precede that of the last good record.

    Args:
        rules: Facts about the log.
        at: Log offset of the bad record.
        following: Next good record, if any.
        last_stored_at_ms: Store time of the last good record before `at`.
        is_checksummed: True if `at` lies in a range in which only this store wrote.
    """
    if rules.is_ours or (is_checksummed and at < rules.flushed):
        if at >= rules.flushed:
            return None
        return min(following.offset, rules.flushed) if following else rules.flushed
    if following is None:
        return rules.flushed if at < rules.flushed else None
    if rules.known_end is not None:
        is_known = following.offset < rules.known_end or not rules.known_end
        return following.offset if is_known else None
    is_stale = following.stored_at_ms < last_stored_at_ms
    return following.offset if not is_stale and following.stored_at_ms <= rules.safe_at_ms else None
