"""How far timed messages are delivered: `config/timercheck`, as RocketMQ lays it out. Pure.

    read time 8 | log position 8 | first queue offset 8 | next queue offset 8
    state version 8 | version's time 8 | version's counter 8 | "crc:" 4 | CRC-32 4 | zeros to 4096

Integers are big-endian. The checksum, of the 56 bytes before it, is ours alone. RocketMQ ignores
it, and leaves the one that is there when it writes the numbers. Source: RocketMQ `TimerCheckpoint`.
"""

import struct
import zlib
from typing import Final, NamedTuple, Self

_FIELDS: Final = struct.Struct(">7q")
_CHECKSUM: Final = struct.Struct(">4sI")
_MARK: Final = b"crc:"
_FILE_BYTES: Final = 4096


class TimerCheckpoint(NamedTuple):
    """What is known to be delivered, on the disk.

    Of the messages before `next_offset` of the wheel timer's queue, those are delivered, or
    cancelled, that were due by `read_ms`; of those before `first_offset` all are.
    """

    read_ms: int = 0
    timer_log_position: int = 0
    """How far RocketMQ flushed its timer log; 0 here, where there is none."""

    first_offset: int = 0
    next_offset: int = 0
    state_version: int = 0
    changed_at_ms: int = 0
    changes: int = 0

    def encode(self) -> bytes:
        """Return the file."""
        data = _FIELDS.pack(*self)
        return (data + _CHECKSUM.pack(_MARK, zlib.crc32(data))).ljust(_FILE_BYTES, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return what a file holds.

        Raises:
            ValueError: It is too short, or a number in it cannot be.
        """
        if len(data) < _FIELDS.size:
            raise ValueError(f"{len(data)} bytes are too few for a timer checkpoint")
        fields = cls._make(_FIELDS.unpack_from(data))
        if min(fields) < 0:
            raise ValueError(f"negative number in a timer checkpoint: {fields}")
        return fields

    @property
    def begins_at(self) -> int:
        """The first message of the queue that may not be delivered.

        RocketMQ keeps those before `first_offset` that still wait in its timer log, which is not
        read here: then it is the queue's first.
        """
        return 0 if self.timer_log_position else self.first_offset

    @property
    def known_end(self) -> int:
        """Behind the last message of which `read_ms` says something."""
        return self.first_offset if self.timer_log_position else self.next_offset


def verify_timer_checksum(data: bytes) -> bool:
    """Tell whether a timer checkpoint has a checksum.

    Raises:
        ValueError: The checksum is of other numbers.
    """
    behind = data[_FIELDS.size :][: _CHECKSUM.size].ljust(_CHECKSUM.size, b"\0")
    mark, checksum = _CHECKSUM.unpack(behind)
    if mark != _MARK:
        return False
    if checksum != zlib.crc32(data[: _FIELDS.size]):
        raise ValueError("the checksum differs")
    return True


def strip_timer_checksum(data: bytes) -> bytes:
    """Return a timer checkpoint with the same numbers and no checksum."""
    return data[: _FIELDS.size].ljust(_FILE_BYTES, b"\0")
