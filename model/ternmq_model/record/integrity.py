"""Integrity of a record at an offset of the log, as far as its bytes show it. Pure.

A power loss may lose any sectors without a sync. Behind the end of the log all bytes are zero (new
files are zeros, and a cut writes zeros), so a lost sector is zeros. RocketMQ's checksum covers the
body, the sizes must add up, and neither topics nor properties contain zeros. So a record with a
lost sector is found by its zeros.

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
    """Check the bytes at `buffer[position:]`, which a power loss may have torn.

    Args:
        buffer: File of the log.
        position: Position in the file.
        at: Physical offset of the position.
        next_file: True = another file follows.

    Returns:
        Record; None = a valid blank record, after which the next file follows.

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
    # The checksum of the whole record shows more: after a lost log, old bytes have other numbers.
    if header.queue_offset > header.physical_offset // OVERHEAD_BYTES and not verify_checksum(
        buffer[position : position + header.total_bytes], record.properties
    ):
        raise CorruptRecord(at, "its queue offset is too high for the bytes before the record")
    if fault := find_fault(record, left):
        raise CorruptRecord(at, fault)
    return record


def find_fault(record: Record, left: int) -> str:
    """Return the fault of a record with valid sizes and body; empty = none.

    Args:
        record: Record at the offset in its header.
        left: Bytes of the file from the record's begin on.
    """
    header = record.header
    if header.total_bytes + BLANK_BYTES > left:
        return "the record leaves no space for a blank record"
    if b"\0" in record.topic:
        return "part of the topic is lost"
    end = header.physical_offset + header.total_bytes
    if has_lost_sector(record.properties, end - len(record.properties)):
        return "part of the properties is lost"
    return ""


def has_lost_sector(text: bytes, start: int) -> bool:
    """Return whether `text` at byte `start` has a sector of zeros or a zero as its last byte."""
    if b"\0" not in text:
        return False
    if text[-1] == 0:
        return True
    first = -start % SECTOR_BYTES
    if not any(text[:first]) and first:
        return True
    pieces = range(first, len(text), SECTOR_BYTES)
    return any(_ZERO_SECTOR.startswith(text[piece : piece + SECTOR_BYTES]) for piece in pieces)
