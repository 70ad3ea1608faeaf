"""Space of a disk."""

import os
from pathlib import Path
from typing import NamedTuple


class DiskSpace(NamedTuple):
    """Space of a disk for ordinary users."""

    used_share: float
    """Used part, 0 to 1."""

    free_bytes: int

    def until(self, used_share: float) -> int:
        """Return the bytes that fill the disk up to a used part of less than 1."""
        if self.used_share >= used_share:
            return 0
        return int(self.free_bytes * (used_share - self.used_share) / (1 - self.used_share))


def disk_space(folder: Path) -> DiskSpace:
    """Return the space of the disk with `folder`.

    Raises:
        OSError: The disk cannot be asked.
    """
    stats = os.statvfs(folder)
    used = stats.f_blocks - stats.f_bfree
    used_share = used / max(used + stats.f_bavail, 1)
    return DiskSpace(used_share, stats.f_bavail * stats.f_frsize)
