"""Integrity of a record at a place of the log, as far as its bytes show it. Pure.

A loss of power may lose any of the disk's sectors that were not synced. Behind the end of the log
lie only zeros (a file is zeros when it is made, and a cut zeroes what it leaves), so a lost sector
is a row of zeros. RocketMQ's checksum covers the body; the sizes must add up, a topic has no
zeros, and properties are text: so a record with a lost sector is told by looking for zeros.

Source: RocketMQ `CommitLog.checkMessageAndReturnSize`.
"""

from typing import Final

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.checksum import verify_checksum
from ternmq_model.record.format import (
    BLANK_BYTES,
    OVERHEAD_BYTES,
    Record,
    decode_record,
    is_blank,
)

SECTOR_BYTES: Final = 512
_ZERO_SECTOR: Final = bytes(SECTOR_BYTES)


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
        if not is_blank(buffer, position, left):
            raise CorruptRecord(at, "a blank record does not end with its file")
        if not next_file:
            raise CorruptRecord(at, "no file follows the blank record")
        return None
    header = record.header
    # A checksum of the whole tells more: a log that was lost begins anew, its numbers do not.
    if header.queue_offset > header.physical_offset // OVERHEAD_BYTES and not verify_checksum(
        buffer[position : position + header.total_bytes], record.properties
    ):
        raise CorruptRecord(at, "more records of its queue than fit before it")
    if fault := find_fault(record, left):
        raise CorruptRecord(at, fault)
    return record


def find_fault(record: Record, left: int) -> str:
    """Return the fault of a record whose sizes add up and whose body is right; empty = none.

    Args:
        record: The record, at the place that it claims.
        left: Bytes of the file from the record's start on.
    """
    header = record.header
    if header.total_bytes + BLANK_BYTES > left:
        return "the record leaves no room for a blank one"
    if b"\0" in record.topic:
        return "part of the topic is lost"
    end = header.physical_offset + header.total_bytes
    if has_lost_sector(record.properties, end - len(record.properties)):
        return "part of the properties is lost"
    return ""


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
