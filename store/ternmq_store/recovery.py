"""What recovery decides: where to begin to look, and which units may stay. Pure.

Source: RocketMQ `CommitLog.recoverNormally`, `recoverAbnormally`, `ConsumeQueue.recover`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ternmq_model.offsets import PhysicalOffset, QueueOffset


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening a store found and did."""

    was_clean: bool
    """The store had been closed as it should."""

    log_files: int
    scanned_from: PhysicalOffset
    """The log was checked from here on."""

    end: PhysicalOffset
    """The log ends here."""

    cut_bytes: int
    """Bytes behind the end that were not zeros and are now."""

    cut_reason: str
    """What was wrong with the first bytes cut; empty when nothing was."""

    records_scanned: int
    queues: int
    queues_rebuilt: bool
    """A consume queue was missing, cut or wrong: all were compared with the whole log."""


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """How a file of the log begins: its first record's store time, 0 if there is no good one."""

    base: PhysicalOffset
    stored_at_ms: int


def scan_start(files: Sequence[FirstRecord], safe_at_ms: int) -> PhysicalOffset:
    """Return from where the log is checked after a crash.

    Args:
        files: Of the log, oldest first; at least one.
        safe_at_ms: Every record stored before is on disk, with its consume queue unit.

    Source: RocketMQ `CommitLog.recoverAbnormally`, `isMappedFileMatchedRecover`.
    """
    for file in reversed(files):
        if 0 < file.stored_at_ms <= safe_at_ms:
            return file.base
    return files[0].base


def good_units(
    offsets: NDArray[np.int64], sizes: NDArray[np.int64], below: PhysicalOffset
) -> QueueOffset:
    """Return how many units from the first one on are written and tell of records before `below`.

    Source: RocketMQ `ConsumeQueue.recover`, `truncateDirtyLogicFiles`.
    """
    bad = (sizes <= 0) | (offsets < 0) | (offsets >= below)
    return QueueOffset(int(bad.argmax()) if bad.any() else len(bad))
