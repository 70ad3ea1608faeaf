"""Rules of retention: expired log files, and the limits of a full disk. Pure.

Time, the hour on the wall and the disk's use are arguments. `cleaner.py` carries it out.

Source: RocketMQ `CleanCommitLogService`, `MappedFileQueue.deleteExpiredFileByTime`.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_store.config import StoreConfig

_HOUR_MS: Final = 3_600_000


class DiskLevel(enum.IntEnum):
    """Level of the disk's use; each level does what those below it do."""

    NORMAL = 0

    CLEAN = 1
    """Expired files go now, whatever the hour."""

    FORCE = 2
    """The oldest file goes although it has not expired, if it is old enough for that."""

    FULL = 3
    """Appends are refused, and the oldest file goes, whatever its age."""


def disk_level(used_share: float, config: StoreConfig) -> DiskLevel:
    """Return the level of a disk of which `used_share`, 0 to 1, is in use.

    Source: RocketMQ `CleanCommitLogService.isSpaceToDelete`.
    """
    used_percent = used_share * 100
    if used_percent >= config.disk_full_percent:
        return DiskLevel.FULL
    if used_percent >= config.disk_force_percent:
        return DiskLevel.FORCE
    return DiskLevel.CLEAN if used_percent >= config.disk_clean_percent else DiskLevel.NORMAL


class DeletionReason(enum.Enum):
    """The cause of a pass."""

    HOUR = "hour"
    REQUEST = "request"
    DISK = "disk"
    DISK_FORCED = "disk, before its time"
    DISK_FULL = "disk full, whatever its age"


def reason_to_delete(
    *, hour: int, level: DiskLevel, is_requested: bool, config: StoreConfig
) -> DeletionReason | None:
    """Return the reason for which files may be deleted now; None = there is none.

    Args:
        hour: Hour of the local time of the broker, 0 to 23.
        level: Level of the disk's use.
        is_requested: True if an operator asks for deletion.
        config: Hours, and whether a full disk may cost files that have not expired.
    """
    if config.clean_forcibly and level is DiskLevel.FULL:
        return DeletionReason.DISK_FULL
    if config.clean_forcibly and level is DiskLevel.FORCE:
        return DeletionReason.DISK_FORCED
    if level >= DiskLevel.CLEAN:
        return DeletionReason.DISK
    if is_requested:
        return DeletionReason.REQUEST
    return DeletionReason.HOUR if hour in config.delete_hours else None


def retention_ms(config: StoreConfig, of_topics: Mapping[str, int]) -> int:
    """Return the retention of a file of the log, ms: that of the topic with the longest.

    Args:
        config: Settings with the retention of other topics.
        of_topics: Retention of topics with their own, ms.
    """
    return max(config.file_reserved_hours * _HOUR_MS, *of_topics.values(), 0)


def forced_retention_ms(config: StoreConfig) -> int:
    """Return the retention of a file of the log on a disk at `disk_force_percent`, ms."""
    return config.forced_reserved_hours * _HOUR_MS


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file of the log that is full, on the disk and dispatched."""

    base: int
    end: int

    newest_at_ms: int | None
    """Store time of a record that is no older than any in it; None when that is not known."""

    is_held: bool
    """True while a reader holds the file."""

    def has_aged(self, kept_ms: int, now_ms: int | None) -> bool:
        """Return whether every record is `kept_ms` old; False while its age or the time is unknown.

        Args:
            kept_ms: Retention of a file after its newest record.
            now_ms: Wall clock; None = it is in doubt.
        """
        newest_at_ms = self.newest_at_ms
        return newest_at_ms is not None and now_ms is not None and now_ms - newest_at_ms >= kept_ms


def files_to_delete(
    files: Sequence[OldFile],
    reason: DeletionReason,
    *,
    now_ms: int | None,
    kept_ms: int,
    forced_kept_ms: int,
    files_max: int,
) -> int:
    """Return how many files go, from the oldest on.

    The first file that a reader holds, or that has to stay, ends the row: the log has no gaps.

    Args:
        files: Oldest first, without the newest one, which never goes.
        reason: Reason of the deletion.
        now_ms: Wall clock; None = it is in doubt, so that nothing has expired.
        kept_ms: Retention of a file after its newest record.
        forced_kept_ms: Retention for `DISK_FORCED`.
        files_max: Most files that go.
    """
    count = 0
    for file in files[:files_max]:
        may_go = (
            reason is DeletionReason.DISK_FULL
            or file.has_aged(kept_ms, now_ms)
            or (reason is DeletionReason.DISK_FORCED and file.has_aged(forced_kept_ms, now_ms))
        )
        if file.is_held or not may_go:
            break
        count += 1
    return count
