"""Checkpoint of timed messages: `config/timercheck`, as RocketMQ lays it out. Pure.

    read time 8 | log position 8 | first queue offset 8 | next queue offset 8
    state version 8 | version's time 8 | version's counter 8 | "crc:" 4 | CRC-32 4
    look behind 8 | zeros to 4096

Integers are big-endian. The fields behind the counter are an extension: the checksum covers the 56
bytes before it and the 8 behind it. RocketMQ ignores both, and leaves them when it writes the
numbers. Source: RocketMQ `TimerCheckpoint`.
"""

import struct
from typing import Final, NamedTuple, Self

from ternmq_model.crc32 import crc32
from ternmq_model.offsets import PhysicalOffset

_FIELDS: Final = struct.Struct(">7q")
_CHECKSUM: Final = struct.Struct(">4sI")
_LOOK: Final = struct.Struct(">q")
_LOOK_AT: Final = _FIELDS.size + _CHECKSUM.size
_MARK: Final = b"crc:"
_FILE_BYTES: Final = 4096


class TimerCheckpoint(NamedTuple):
    """Progress of the delivery of timed messages, on disk.

    All messages of the wheel timer's queue before `first_offset` are delivered or cancelled. So are
    the messages before `next_offset` that were due by `read_ms`.
    """

    read_ms: int = 0
    timer_log_position: int = 0
    """Flushed end of RocketMQ's timer log; 0 without one."""

    first_offset: int = 0
    next_offset: int = 0
    state_version: int = 0
    changed_at_ms: int = 0
    changes: int = 0
    look_behind: int = 0
    """One more than the log offset before which all deliveries are part of the progress; 0 = not
    known."""

    def encode(self) -> bytes:
        """Return the content of the file."""
        numbers, look = _FIELDS.pack(*self[:-1]), _LOOK.pack(self.look_behind)
        checksum = _CHECKSUM.pack(_MARK, crc32(numbers + look))
        return (numbers + checksum + look).ljust(_FILE_BYTES, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the checkpoint in the content of a file.

        Raises:
            ValueError: The content is too short, or a number is negative.
        """
        if len(data) < _FIELDS.size:
            raise ValueError(f"{len(data)} bytes are too few for a timer checkpoint")
        look = data[_LOOK_AT:][: _LOOK.size].ljust(_LOOK.size, b"\0")
        fields = cls._make((*_FIELDS.unpack_from(data), *_LOOK.unpack(look)))
        if min(fields) < 0:
            raise ValueError(f"negative number in a timer checkpoint: {fields}")
        return fields

    @property
    def search_from(self) -> PhysicalOffset | None:
        """Log offset from which deliveries are searched; None after deliveries by RocketMQ."""
        is_known = self.look_behind and not self.timer_log_position
        return PhysicalOffset(self.look_behind - 1) if is_known else None

    def adopted(self) -> Self:
        """Return the progress of RocketMQ without its timer log."""
        return self._replace(
            timer_log_position=0, first_offset=self.begins_at, next_offset=self.known_end
        )

    @property
    def begins_at(self) -> int:
        """Offset of the first message of the queue that may be undelivered.

        RocketMQ keeps those before `first_offset` that still wait in its timer log, which is not
        read here: then it is the queue's first.
        """
        return 0 if self.timer_log_position else self.first_offset

    @property
    def known_end(self) -> int:
        """Offset behind the last message that `read_ms` covers."""
        return self.first_offset if self.timer_log_position else self.next_offset


def verify_timer_checksum(data: bytes) -> bool:
    """Return whether a timer checkpoint has a checksum.

    Raises:
        ValueError: The checksum is of other numbers.
    """
    behind = data[_FIELDS.size :][: _CHECKSUM.size].ljust(_CHECKSUM.size, b"\0")
    mark, checksum = _CHECKSUM.unpack(behind)
    if mark != _MARK:
        return False
    look = data[_LOOK_AT:][: _LOOK.size].ljust(_LOOK.size, b"\0")
    if checksum != crc32(data[: _FIELDS.size] + look):
        raise ValueError("the checksum differs")
    return True


def strip_timer_checksum(data: bytes) -> bytes:
    """Return a timer checkpoint with the same numbers and no checksum."""
    return data[: _FIELDS.size].ljust(_FILE_BYTES, b"\0")
