"""What recovery decides: which bytes are good, where to begin to look, which units may stay. Pure.

A loss of power may lose any of the disk's sectors that were not synced. Behind the end of the log
lie only zeros (a file is zeros when it is made, and a cut zeroes what it leaves), so a lost sector
is a row of zeros. RocketMQ's checksum covers the body; the sizes must add up, a topic has no
zeros, and properties are text: so a record with a lost sector is told by looking for zeros.

Source: RocketMQ `CommitLog.recoverNormally`, `recoverAbnormally`, `ConsumeQueue.recover`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record import BLANK_BYTES, Record, decode_record

SECTOR_BYTES: Final = 512
_ZERO_SECTOR: Final = bytes(SECTOR_BYTES)


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


def check_record(
    buffer: memoryview, position: int, *, at: PhysicalOffset, next_file: bool
) -> Record | None:
    """Check the bytes at `buffer[position:]`, which may have been torn by a loss of power.

    Args:
        buffer: One file of the log.
        position: Where to look in it.
        at: The physical offset of that place.
        next_file: Whether another file follows.

    Returns:
        The record; None for a good blank record, after which the next file goes on.

    Raises:
        CorruptRecord: The log ends here.
    """
    record = decode_record(buffer, position, at=at)
    left = len(buffer) - position
    if record is None:
        if int.from_bytes(buffer[position : position + 4], "big") != left:
            raise CorruptRecord(at, "a blank record does not end with its file")
        if not next_file:
            raise CorruptRecord(at, "no file follows the blank record")
        return None
    if record.header.total_bytes + BLANK_BYTES > left:
        raise CorruptRecord(at, "the record leaves no room for a blank one")
    if b"\0" in record.topic:
        raise CorruptRecord(at, "part of the topic is lost")
    end = at + record.header.total_bytes
    if has_lost_sector(record.properties, end - len(record.properties)):
        raise CorruptRecord(at, "part of the properties is lost")
    return record


def has_lost_sector(text: bytes, start: int) -> bool:
    """Tell whether `text`, which lies at byte `start`, has a sector or its last byte zeroed."""
    if b"\0" not in text:
        return False
    if text[-1] == 0:
        return True
    first = -start % SECTOR_BYTES
    if not any(text[:first]) and first:
        return True
    pieces = range(first, len(text), SECTOR_BYTES)
    return any(_ZERO_SECTOR.startswith(text[piece : piece + SECTOR_BYTES]) for piece in pieces)


def good_units(
    offsets: NDArray[np.int64], sizes: NDArray[np.int64], below: PhysicalOffset
) -> QueueOffset:
    """Return how many units from the first one on are written and tell of records before `below`.

    Source: RocketMQ `ConsumeQueue.recover`, `truncateDirtyLogicFiles`.
    """
    bad = (sizes <= 0) | (offsets < 0) | (offsets >= below)
    return QueueOffset(int(bad.argmax()) if bad.any() else len(bad))
