"""How much memory this process may use, and with that which messages are still in it."""

import os
from pathlib import Path
from typing import Final

_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
HOT_PERCENT: Final = 40
"""Part of the memory in which the newest messages are taken to be.

Source: RocketMQ `accessMessageInMemoryMaxRatio`.
"""


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


def is_hot(behind_bytes: int, memory: int) -> bool:
    """Tell whether a record so far behind the log's end is likely to be in memory."""
    return behind_bytes <= memory * HOT_PERCENT // 100
