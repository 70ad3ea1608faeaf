"""The checkpoint: store times up to which log, consume queues and index are on the disk. Pure.

4,096 bytes, five big-endian integers of 8 bytes, then zeros (docs/formats/checkpoint.md).

Source: RocketMQ `StoreCheckpoint`.
"""

import struct
from dataclasses import dataclass
from typing import Final

CHECKPOINT_BYTES: Final = 4096
_FIELDS: Final = struct.Struct(">5q")
_MARGIN_MS: Final = 3_000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Times in Unix milliseconds, offsets in bytes; 0 = not known."""

    log_stored_at_ms: int = 0
    """Store time of the newest record known to be on disk."""

    queues_stored_at_ms: int = 0
    """Store time of the newest record whose consume queue unit is known to be on disk."""

    index_stored_at_ms: int = 0
    """Store time of the newest record whose index entries are known to be on disk."""

    flushed_offset: int = 0
    """Log offset up to which the log is on disk.

    RocketMQ has another value in this field, `masterFlushedOffset`.
    """

    dispatched_offset: int = 0
    """Log offset, where a record begins, up to which log, queues and index are on disk.

    RocketMQ has another value in this field, `confirmPhyOffset`.
    """

    @property
    def log_safe_at_ms(self) -> int:
        """Store time before which every record is on disk."""
        return max(0, self.log_stored_at_ms - _MARGIN_MS)

    @property
    def safe_at_ms(self) -> int:
        """Store time before which every record and its unit are on disk.

        3 s are subtracted because records of one millisecond may lie on both sides.
        """
        return max(0, min(self.log_stored_at_ms, self.queues_stored_at_ms) - _MARGIN_MS)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the file's bytes."""
    fields = _FIELDS.pack(
        checkpoint.log_stored_at_ms,
        checkpoint.queues_stored_at_ms,
        checkpoint.index_stored_at_ms,
        checkpoint.flushed_offset,
        checkpoint.dispatched_offset,
    )
    return fields.ljust(CHECKPOINT_BYTES, b"\0")


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Return the checkpoint in `data`; an empty one for a short or negative content."""
    if len(data) < _FIELDS.size:
        return Checkpoint()
    checkpoint = Checkpoint(*_FIELDS.unpack_from(data))
    return checkpoint if min(_FIELDS.unpack_from(data)) >= 0 else Checkpoint()
