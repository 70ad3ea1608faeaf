"""Units of one queue by plain reads, also while a broker appends units."""

from bisect import bisect_left
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from ternmq_model.offsets import UNIT_BYTES, PhysicalOffset, QueueOffset
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.layout import base_of, file_name
from ternmq_store.disk.mapped_file_queue import FoundFile
from ternmq_store.queues.units import (
    PADDING_SIZE,
    UNIT,
    Unit,
    Units,
    good_units,
    read_units,
    unit_of,
)

_PIECE_UNITS: Final = 4_096
_EMPTY: Final = np.zeros(0, dtype=UNIT)


class FileUnits(NamedTuple):
    """Units that follow each other in one file."""

    file: FoundFile
    first: QueueOffset
    """Queue offset of the first unit."""

    units: Units


def walk_units(files: FileSystem, row: Sequence[FoundFile]) -> Generator[FileUnits]:
    """Yield the units of a queue, file after file, each file up to its last written unit.

    Unwritten units are zeros.

    Args:
        files: The file system.
        row: Files of the queue, by base; they need not follow each other.

    Raises:
        OSError: A file cannot be read.
    """
    for found in row:
        place, places = 0, found.file_bytes // UNIT_BYTES
        with closing(files.open(found.path, read_only=True)) as file:
            while len(units := read_units(file, place, min(_PIECE_UNITS, places - place))):
                written = np.flatnonzero(units["size"])
                if len(written):
                    first = QueueOffset(found.base // UNIT_BYTES + place)
                    yield FileUnits(found, first, units[: int(written[-1]) + 1])
                place += len(units)


def count_written(file: File, places: int) -> int:
    """Return how many of the first `places` units of a file are written.

    A binary search counts them: the units of a sound queue have no hole.
    """

    def is_unwritten(place: int) -> bool:
        units = read_units(file, place, 1)
        return not len(units) or int(units["size"][0]) <= 0

    return bisect_left(range(places), True, key=is_unwritten)


class UnitFiles:
    """Reader of the units of one queue. It holds one file open until `close`.

    Args:
        files: The file system.
        begin: Queue offset of the first readable unit.

    Attributes:
        min_offset: Queue offset of the first readable unit.
        end: Queue offset behind the last readable unit.
        folder: Folder of the queue.
        file_bytes: Length of each of its files.
    """

    def __init__(
        self, files: FileSystem, folder: Path, file_bytes: int, begin: int, end: int
    ) -> None:
        self._files = files
        self.folder = folder
        self.file_bytes = file_bytes
        self._file: File | None = None
        self._base = -1
        self.min_offset = QueueOffset(begin)
        self.end = QueueOffset(end)

    def units(self, offset: QueueOffset, count: int) -> Units:
        """Return up to `count` units from `offset` on, of one file; none when the file is gone.

        Raises:
            OSError: The disk failed.
        """
        at = offset * UNIT_BYTES
        base = base_of(at, self.file_bytes)
        count = min(count, self.end - offset, (base + self.file_bytes - at) // UNIT_BYTES)
        if count <= 0:
            return _EMPTY
        if base != self._base:
            self.close()
            with suppress(FileNotFoundError):
                self._file = self._files.open(self.folder / file_name(base), read_only=True)
                self._base = base
        if self._file is None:
            return _EMPTY
        return read_units(self._file, (at - base) // UNIT_BYTES, count)

    def unit(self, offset: QueueOffset) -> Unit:
        """Return the unit of message `offset`; an unwritten one when its file is gone."""
        units = self.units(offset, 1)
        return unit_of(units) if len(units) else Unit(PhysicalOffset(0), 0, 0)

    def written_unit(self, offset: QueueOffset) -> Unit | None:
        """Return the unit of message `offset`; None when it is not written, or out of bounds."""
        units = good_units(self.units(offset, 1)) if offset >= self.min_offset else _EMPTY
        return unit_of(units) if len(units) else None

    def count_before(self, limit: PhysicalOffset) -> QueueOffset:
        """Return the queue offset behind the last unit of a record before log offset `limit`.

        A binary search finds it: such units have no hole in a file.
        """

        def is_behind(offset: int) -> bool:
            return not len(good_units(self.units(QueueOffset(offset), 1), limit))

        end = int(self.end)
        while end > self.min_offset:
            base = base_of(end * UNIT_BYTES - 1, self.file_bytes)
            numbers = range(max(base // UNIT_BYTES, self.min_offset), end)
            if count := bisect_left(numbers, True, key=is_behind):
                return QueueOffset(numbers.start + count)
            end = numbers.start
        return self.min_offset

    def written_from(self, first: QueueOffset) -> Units:
        """Return the units from `first` on, of each file up to the first unwritten one."""
        parts, at = [_EMPTY], max(first, self.min_offset)
        while at < self.end:
            units = self.units(at, _PIECE_UNITS)
            parts.append(good_units(units))
            next_file = base_of(at * UNIT_BYTES, self.file_bytes) + self.file_bytes
            is_written = len(parts[-1]) == len(units) > 0
            at = QueueOffset(at + len(units) if is_written else next_file // UNIT_BYTES)
        return np.concatenate(parts)

    def newest_before(self, end: QueueOffset) -> int:
        """Return the log offset in the unit before `end`; -1 if it is of no message."""
        unit = self.unit(QueueOffset(end - 1)) if end > self.min_offset else None
        return -1 if unit is None or unit.size in (0, PADDING_SIZE) else unit.offset

    def written_end(self) -> QueueOffset:
        """Return the queue offset behind the last written unit.

        A binary search finds the end of a sound queue. Units behind a hole, as a crash or a lost
        sector may leave one, are searched for by a read of the rest.
        """
        numbers = range(self.min_offset, self.end)
        low = self.min_offset + bisect_left(
            numbers, True, key=lambda number: self.unit(QueueOffset(number)).size == 0
        )
        end = low
        while low < self.end:
            units = self.units(QueueOffset(low), _PIECE_UNITS)
            if not len(units):
                break
            written = np.flatnonzero(units["size"])
            if len(written):
                end = low + int(written[-1]) + 1
            low += len(units)
        return QueueOffset(end)

    def close(self) -> None:
        """Close the file."""
        file, self._file, self._base = self._file, None, -1
        if file is not None:
            file.close()
