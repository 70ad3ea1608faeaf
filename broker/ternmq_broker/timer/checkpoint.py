"""How far timed messages are delivered: `config/timercheck`, as RocketMQ lays it out. Pure.

    read time 8 | log position 8 | first queue offset 8 | next queue offset 8
    state version 8 | version's time 8 | version's counter 8 | look behind 8 | zeros to 4096

Integers are big-endian. RocketMQ has zeros behind its counter. Source: RocketMQ `TimerCheckpoint`.
"""

import struct
from typing import Final, NamedTuple, Self

from ternmq_model.offsets import PhysicalOffset

_FIELDS: Final = struct.Struct(">8q")
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
    look_behind: int = 0
    """1 more than the place in the log before which there is no delivery that the rest does not
    tell of; 0 = not known."""

    def encode(self) -> bytes:
        """Return the file."""
        return _FIELDS.pack(*self).ljust(_FILE_BYTES, b"\0")

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
    def look_from(self) -> PhysicalOffset | None:
        """Where to look from, if nobody but us has delivered since."""
        is_known = self.look_behind and not self.timer_log_position
        return PhysicalOffset(self.look_behind - 1) if is_known else None

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
