"""Search of a queue for its first message since a time, or its last up to it.

Store times rise along a queue, so the message is found by halving: some twenty records are read.

Source: RocketMQ `ConsumeQueue.getOffsetInQueueByTime`, `BoundaryType`.
"""

import enum
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ternmq_model.offsets import UNIT_BYTES, QueueOffset
from ternmq_model.record.format import HEADER_BYTES_MAX, find_header
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.layout import base_of, file_name
from ternmq_store.queues.units import PADDING_SIZE, decode_units, unit_of
from ternmq_store.read.log_source import LogSource


class BoundaryType(enum.Enum):
    """Side of a time that is asked for."""

    LOWER = "lower"
    """The first message stored then or later; when all are older, what comes behind the last."""

    UPPER = "upper"
    """The last message stored then or earlier; when all are younger, the first."""


def find_offset(
    low: int,
    high: int,
    at_ms: int,
    boundary: BoundaryType,
    time_of: Callable[[int], int | None],
    is_open: Callable[[int], bool] = lambda _: False,
) -> int:
    """Return the message of `low` to `high`, without `high`, that `boundary` means; `low` if none.

    Args:
        low: The first message.
        high: Behind the last.
        at_ms: A time.
        boundary: From which side.
        time_of: Returns a message's store time, None for a place without a message.
        is_open: Tells whether a place without a time may have what is looked for all the same: it
            is not passed over then.
    """
    first, end = low, high
    while low < high:
        middle = (low + high) // 2
        place, time = middle, time_of(middle)
        while time is None and place + 1 < high:
            place += 1
            time = time_of(place)
        is_before = time is not None and (
            time < at_ms if boundary is BoundaryType.LOWER else time <= at_ms
        )
        if time is None:
            high = middle
        elif is_before:
            low = place + 1
        else:
            high = middle
    if boundary is BoundaryType.LOWER:
        while low < end and time_of(low) is None and not is_open(low):
            low += 1
        return low
    low -= 1
    while low > first and time_of(low) is None:
        low -= 1
    return max(low, first)


@dataclass(frozen=True, slots=True)
class TimeSearch:
    """Search of a queue by store time; `run` may be called in any thread."""

    files: FileSystem
    folder: Path
    """Folder of the queue."""

    file_bytes: int
    first: QueueOffset
    end: QueueOffset
    source: LogSource
    at_ms: int
    boundary: BoundaryType
    is_end: bool = False
    """True if the result ends a range: messages without a known time belong before it."""

    def run(self) -> QueueOffset:
        """Return the message that is meant; what retention removes meanwhile counts as older.

        Raises:
            OSError: The disk failed.
        """
        with ExitStack() as stack:
            times = _Times(self.files, self.folder, self.file_bytes, self.source, stack)
            place = (self.first, self.end, self.at_ms, self.boundary)
            if self.is_end:
                return QueueOffset(find_offset(*place, times.of))
            return QueueOffset(find_offset(*place, times.of, times.is_damaged))


class StoreTimeQuery(NamedTuple):
    """Messages of one queue whose store times are looked up."""

    folder: Path
    """Folder of the queue."""

    file_bytes: int
    offsets: Sequence[QueueOffset]


@dataclass(frozen=True, slots=True)
class StoreTimeLookup:
    """The store times of single messages; `run` may be called in any thread."""

    files: FileSystem
    source: LogSource
    places: Sequence[StoreTimeQuery | None]
    """None for a queue that there is not."""

    def run(self) -> list[list[int]]:
        """Return for each place the store time of each message; 0 where there is none, or no more.

        Raises:
            OSError: The disk failed.
        """
        return [[] if place is None else self._times(place) for place in self.places]

    def _times(self, place: StoreTimeQuery) -> list[int]:
        with ExitStack() as stack:
            times = _Times(self.files, place.folder, place.file_bytes, self.source, stack)
            return [times.of(offset) or 0 for offset in place.offsets]


class _Times:
    """Reader of store times in the files of one queue and of the log, each opened once."""

    def __init__(
        self, files: FileSystem, folder: Path, file_bytes: int, source: LogSource, stack: ExitStack
    ) -> None:
        self._files = files
        self._folder = folder
        self._queue_id = int(folder.name)
        self._file_bytes = file_bytes
        self._source = source
        self._stack = stack
        self._opened: dict[tuple[Path, int], File | None] = {}

    def of(self, offset: int) -> int | None:
        """Return a message's store time; 0 when it is gone, None for a place without a message.

        A unit that is damaged tells of no message: nobody is led by the time of another record.
        """
        place = self._place(offset)
        if place is None or place >= self._source.end:
            return None
        if place < self._source.start:
            before = self._place(offset - 1)
            return 0 if before is None or before < self._source.start else None
        head = self._read(self._source.folder, self._source.file_bytes, place, HEADER_BYTES_MAX)
        if not head:
            return 0
        header = find_header(head)
        is_right = header is not None and (
            (header.queue_id, header.queue_offset, header.physical_offset)
            == (self._queue_id, offset, place)
        )
        return header.stored_at_ms if header is not None and is_right else None

    def is_damaged(self, offset: int) -> bool:
        """Return whether a unit is no place without a message, although no record fits it."""
        return self._place(offset) is not None and self.of(offset) is None

    def _place(self, offset: int) -> int | None:
        """Return where a unit says that its record begins; -1 when there is no unit any more."""
        unit = self._read(self._folder, self._file_bytes, offset * UNIT_BYTES, UNIT_BYTES)
        if len(unit) < UNIT_BYTES:
            return -1
        found = unit_of(decode_units(unit))
        if found.size == PADDING_SIZE:
            return None
        # A damaged unit: no record lies before the log's beginning, nor ever did.
        return found.offset if found.offset >= 0 else self._source.end

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
