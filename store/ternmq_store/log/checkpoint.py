"""The checkpoint: up to which store time the log and the consume queues are on disk. Pure.

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
    """The same for the index."""

    flushed_offset: int = 0
    """The log is on disk up to here. RocketMQ keeps something else there, `masterFlushedOffset`."""

    dispatched_offset: int = 0
    """The log is on disk up to here, and so is what the queues and the index say of it. A record
    begins there. RocketMQ keeps something else there, `confirmPhyOffset`."""

    @property
    def log_safe_at_ms(self) -> int:
        """Every record that is older is on disk."""
        return max(0, self.log_stored_at_ms - _MARGIN_MS)

    @property
    def safe_at_ms(self) -> int:
        """Every record that is older is on disk, and so is its unit.

        3 s are taken off because records of one millisecond may lie on both sides.
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
    """Return what `data` says; a file that is missing, cut or senseless says nothing."""
    if len(data) < _FIELDS.size:
        return Checkpoint()
    checkpoint = Checkpoint(*_FIELDS.unpack_from(data))
    return checkpoint if min(_FIELDS.unpack_from(data)) >= 0 else Checkpoint()
