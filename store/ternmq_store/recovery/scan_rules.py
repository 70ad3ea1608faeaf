"""Rules of the log scan at opening: its start, and the end of a damaged range. Pure.

The checks of a record are in `ternmq_model.record.integrity` and `scanner`.

Source: RocketMQ `CommitLog.recoverNormally`, `recoverAbnormally`, `ConsumeQueue.recover`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ternmq_model.offsets import PhysicalOffset

ALWAYS_MS: Final = (1 << 63) - 1
NEVER_MS: Final = -1


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """Start of a log file: its first record's store time, 0 if there is no good one."""

    base: PhysicalOffset
    stored_at_ms: int


def scan_start(files: Sequence[FirstRecord], safe_at_ms: int) -> PhysicalOffset:
    """Return from where the log is checked after a crash, when only timestamps tell.

    Args:
        files: Of the log, oldest first; at least one.
        safe_at_ms: Every record stored before is on disk, with its consume queue unit.

    Source: RocketMQ `CommitLog.recoverAbnormally`, `isMappedFileMatchedRecover`.
    """
    for file in reversed(files):
        if 0 < file.stored_at_ms <= safe_at_ms:
            return file.base
    return files[0].base


@dataclass(frozen=True, slots=True)
class ScanRules:
    """Facts about the log that is scanned."""

    flushed: PhysicalOffset
    """Offset up to which the log was on the disk. Not beyond its last file's end."""

    is_ours: bool
    """True when no other process has written to the log since. Bytes behind `flushed` do not count
    as stored then, and no stale record is there, since a cut writes zeros."""

    left_at: PhysicalOffset | None
    """End of the log when this store was stopped cleanly."""

    safe_at_ms: int
    """If others wrote to it: records stored at that time or before were on the disk."""

    known_end: PhysicalOffset | None = None
    """If nothing is noted of it: up to where its consume queues tell of records; 0 when there are
    none. None when notes or store times tell more."""


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
    """Return where the range ends that begins with a bad record; None when the log ends there.

    RocketMQ cuts by moving its positions: behind its end older records may lie whole. No consume
    queue tells of them, and their store time lies before that of the last good record.

    Args:
        rules: Facts about the log.
        at: Where the bad record begins.
        following: The next good record, if any follows.
        last_stored_at_ms: Store time of the last good record before `at`.
        is_checksummed: `at` lies in a range in which only this store wrote.
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
