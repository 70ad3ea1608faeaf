"""Limit of the memory of this process."""

import os
from pathlib import Path
from typing import Final

_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory_bytes() -> int:
    """Return the machine's memory, or the container's limit where that is lower."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        try:
            text = path.read_text("ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            available = min(available, int(text))
    return available
