"""Which message of a queue is the first since a time, or the last up to it.

Store times rise along a queue, so the message is found by halving: some twenty records are read.

Source: RocketMQ `ConsumeQueue.getOffsetInQueueByTime`, `BoundaryType`.
"""

import enum
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ternmq_model.offsets import UNIT_BYTES, QueueOffset
from ternmq_model.record import MAGIC_V1, MAGIC_V2
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.layout import base_of, file_name
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.units import PADDING_SIZE
from ternmq_store.reading.source import Source

_OFFSET_BYTES: Final = 8
_HEAD_BYTES: Final = 76
"""Of a record, up to and with its store time if the born host is IPv6."""

_MAGIC: Final = slice(4, 8)
_SYS_FLAG: Final = slice(36, 40)
_STORED_AT: Final = 56
_BORN_HOST_V6: Final = 0x10
_V6_MORE: Final = 12


class Boundary(enum.Enum):
    """Which side of a time is asked for."""

    LOWER = "lower"
    """The first message stored then or later; when all are older, what comes behind the last."""

    UPPER = "upper"
    """The last message stored then or earlier; when all are younger, the first."""


def find_offset(
    low: int, high: int, at_ms: int, boundary: Boundary, time_of: Callable[[int], int | None]
) -> int:
    """Return the message of `low` to `high`, without `high`, that `boundary` means; `low` if none.

    Args:
        low: The first message.
        high: Behind the last.
        at_ms: A time.
        boundary: From which side.
        time_of: Returns a message's store time, None for a place without a message.
    """
    first, end = low, high
    while low < high:
        middle = (low + high) // 2
        place, time = middle, time_of(middle)
        while time is None and place + 1 < high:
            place += 1
            time = time_of(place)
        is_before = time is not None and (
            time < at_ms if boundary is Boundary.LOWER else time <= at_ms
        )
        if time is None:
            high = middle
        elif is_before:
            low = place + 1
        else:
            high = middle
    if boundary is Boundary.LOWER:
        while low < end and time_of(low) is None:
            low += 1
        return low
    low -= 1
    while low > first and time_of(low) is None:
        low -= 1
    return max(low, first)


@dataclass(frozen=True, slots=True)
class TimeSearch:
    """One look in a queue; `run` may be called in any thread."""

    files: FileSystem
    folder: Path
    """Of the queue."""

    file_bytes: int
    first: QueueOffset
    end: QueueOffset
    source: Source
    at_ms: int
    boundary: Boundary

    def run(self) -> QueueOffset:
        """Return the message that is meant; what retention removes meanwhile counts as older.

        Raises:
            OSError: The disk failed.
        """
        with ExitStack() as stack:
            times = _Times(self.files, self.folder, self.file_bytes, self.source, stack)
            found = find_offset(self.first, self.end, self.at_ms, self.boundary, times.of)
            return QueueOffset(found)


class TimedPlace(NamedTuple):
    """Messages of one queue whose store times are wanted."""

    folder: Path
    """Of the queue."""

    file_bytes: int
    offsets: Sequence[QueueOffset]


@dataclass(frozen=True, slots=True)
class TimesAt:
    """The store times of single messages; `run` may be called in any thread."""

    files: FileSystem
    source: Source
    places: Sequence[TimedPlace | None]
    """None for a queue that there is not."""

    def run(self) -> list[list[int]]:
        """Return for each place the store time of each message; 0 where there is none, or no more.

        Raises:
            OSError: The disk failed.
        """
        return [[] if place is None else self._times(place) for place in self.places]

    def _times(self, place: TimedPlace) -> list[int]:
        with ExitStack() as stack:
            times = _Times(self.files, place.folder, place.file_bytes, self.source, stack)
            return [times.of(offset) or 0 for offset in place.offsets]


class _Times:
    """Reads store times in the files of one queue and of the log, each opened once."""

    def __init__(
        self, files: FileSystem, folder: Path, file_bytes: int, source: Source, stack: ExitStack
    ) -> None:
        self._files = files
        self._folder = folder
        self._file_bytes = file_bytes
        self._source = source
        self._stack = stack
        self._opened: dict[tuple[Path, int], File | None] = {}

    def of(self, offset: int) -> int | None:
        """Return a message's store time; 0 when it is gone, None for a place without a message."""
        unit = self._read(self._folder, self._file_bytes, offset * UNIT_BYTES, UNIT_BYTES)
        if len(unit) < UNIT_BYTES:
            return 0
        size = int.from_bytes(unit[_OFFSET_BYTES : _OFFSET_BYTES + 4], "big")
        if size == PADDING_SIZE:
            return None
        at = int.from_bytes(unit[:_OFFSET_BYTES], "big")
        if at < self._source.start:
            return 0
        head = self._read(self._source.folder, self._source.file_bytes, at, _HEAD_BYTES)
        return _stored_at_ms(head) if head else 0

    def _read(self, folder: Path, file_bytes: int, at: int, length: int) -> bytes:
        base = base_of(at, file_bytes)
        if (folder, base) not in self._opened:
            try:
                file = self._files.open(folder / file_name(base), read_only=True)
                self._stack.callback(file.close)
                self._opened[folder, base] = file
            except FileNotFoundError:
                self._opened[folder, base] = None
        found = self._opened[folder, base]
        return b"" if found is None else found.read(at - base, length)


def _stored_at_ms(head: bytes) -> int | None:
    """Return a record's store time; None when no record begins there."""
    if int.from_bytes(head[_MAGIC], "big", signed=True) not in {MAGIC_V1, MAGIC_V2}:
        return None
    is_v6 = int.from_bytes(head[_SYS_FLAG], "big") & _BORN_HOST_V6
    at = _STORED_AT + (_V6_MORE if is_v6 else 0)
    return int.from_bytes(head[at : at + 8], "big", signed=True)


def plan_time_search(
    files: FileSystem, queue: ConsumeQueue, source: Source, at_ms: int, boundary: Boundary
) -> TimeSearch:
    """Return the look in a queue as it is now. For the store's thread.

    Args:
        files: The disk.
        queue: A queue.
        source: The log.
        at_ms: A time.
        boundary: From which side.
    """
    folder, file_bytes = queue.files.folder, queue.files.file_bytes
    return TimeSearch(
        files, folder, file_bytes, queue.min_offset, queue.end, source, at_ms, boundary
    )
