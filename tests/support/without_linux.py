"""What macOS does not have, taken away: an import or a call that needs it fails at once."""

import os
import select
from types import ModuleType
from typing import Final

LINUX_ONLY: Final[dict[ModuleType, tuple[str, ...]]] = {
    os: (
        *("copy_file_range", "eventfd", "fdatasync", "memfd_create", "posix_fadvise"),
        *("posix_fallocate", "sched_getaffinity", "sched_setaffinity", "splice"),
        *("O_DIRECT", "O_TMPFILE"),
    ),
    select: ("epoll",),
}


def forget_linux() -> None:
    """Remove the names for the rest of this process."""
    for module, names in LINUX_ONLY.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
