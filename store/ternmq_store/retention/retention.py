"""Rules of retention: expired log files, and the limits of a full disk. Pure.

Time, local hour and the disk's use are arguments. `cleaner.py` applies the rules.

Source: RocketMQ `CleanCommitLogService`, `MappedFileQueue.deleteExpiredFileByTime`.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ternmq_store.config import StoreConfig

_HOUR_MS: Final = 3_600_000


class DiskLevel(enum.IntEnum):
    """Level of the disk's use. Each level includes the effects of the lower ones."""

    NORMAL = 0

    CLEAN = 1
    """Expired files are deleted at any hour."""

    FORCE = 2
    """The oldest file is deleted before it expires, if it has the forced retention."""

    FULL = 3
    """Appends are refused, and the oldest file is deleted at any age."""


def disk_level(used_share: float, config: StoreConfig) -> DiskLevel:
    """Return the level of a disk whose used part is `used_share`, 0 to 1.

    Source: RocketMQ `CleanCommitLogService.isSpaceToDelete`.
    """
    used_percent = used_share * 100
    if used_percent >= config.disk_full_percent:
        return DiskLevel.FULL
    if used_percent >= config.disk_force_percent:
        return DiskLevel.FORCE
    return DiskLevel.CLEAN if used_percent >= config.disk_clean_percent else DiskLevel.NORMAL


class DeletionReason(enum.Enum):
    """Cause of a pass."""

    HOUR = "hour"
    REQUEST = "request"
    DISK = "disk"
    DISK_FORCED = "disk use, before expiry"
    DISK_FULL = "disk full, regardless of age"


def reason_to_delete(
    *, hour: int, level: DiskLevel, is_requested: bool, config: StoreConfig
) -> DeletionReason | None:
    """Return the reason to delete files now; None = no reason.

    Args:
        hour: Hour of the local time of the broker, 0 to 23.
        level: Level of the disk's use.
        is_requested: True = an operator has requested the deletion.
        config: Settings with the hours, and with the permission to delete unexpired files on a full
            disk.
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
    """Full, synced and dispatched file of the log."""

    base: int
    end: int

    newest_at_ms: int | None
    """Upper bound of the store times in the file, Unix ms; None = unknown."""

    is_held: bool
    """True while a reader holds the file."""

    def has_aged(self, kept_ms: int, now_ms: int | None) -> bool:
        """Return whether every record is `kept_ms` old; False if its age or the time is unknown.

        Args:
            kept_ms: Retention of a file after its newest record, ms.
            now_ms: Wall clock, Unix ms; None = in doubt.
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
    """Return the number of files to delete, from the oldest on.

    The first file that a reader holds, or that must stay, ends the count: the log has no gaps.

    Args:
        files: Files, oldest first, without the newest one, which is never deleted.
        reason: Reason of the deletion.
        now_ms: Wall clock, Unix ms; None = in doubt, so that no file has expired.
        kept_ms: Retention of a file after its newest record, ms.
        forced_kept_ms: Retention for `DISK_FORCED`, ms.
        files_max: Most files to delete.
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
