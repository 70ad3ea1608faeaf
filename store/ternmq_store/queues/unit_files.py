"""The units of one queue by plain reads, while its broker may add to them."""

from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from ternmq_model.offsets import UNIT_BYTES, PhysicalOffset, QueueOffset
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.layout import base_of, file_name
from ternmq_store.queues.units import PADDING_SIZE, UNIT, Unit, Units, unit_of

_PIECE_UNITS: Final = 4_096
_EMPTY: Final = np.zeros(0, dtype=UNIT)


class UnitFiles:
    """Reads units of one queue. Keeps one file open; `close` it.

    Args:
        files: The file system.
        folder: Of the queue.
        file_bytes: Of each of its files.
        begin: The first unit that may be read.
        end: Behind the last one.
    """

    def __init__(
        self, files: FileSystem, folder: Path, file_bytes: int, begin: int, end: int
    ) -> None:
        self._files = files
        self._folder = folder
        self._file_bytes = file_bytes
        self._file: File | None = None
        self._base = -1
        self.min_offset = QueueOffset(begin)
        self.end = QueueOffset(end)

    def units(self, offset: QueueOffset, count: int) -> Units:
        """Return up to `count` units from `offset` on, of one file; none when that is gone.

        Raises:
            OSError: The disk failed.
        """
        at = offset * UNIT_BYTES
        base = base_of(at, self._file_bytes)
        count = min(count, self.end - offset, (base + self._file_bytes - at) // UNIT_BYTES)
        if count <= 0:
            return _EMPTY
        if base != self._base:
            self.close()
            with suppress(FileNotFoundError):
                self._file = self._files.open(self._folder / file_name(base), read_only=True)
                self._base = base
        if self._file is None:
            return _EMPTY
        data = self._file.read(at - base, count * UNIT_BYTES)
        return np.frombuffer(data, dtype=UNIT, count=len(data) // UNIT_BYTES)

    def unit(self, offset: QueueOffset) -> Unit:
        """Return the unit of message `offset`; an unwritten one when its file is gone."""
        units = self.units(offset, 1)
        return unit_of(units) if len(units) else Unit(PhysicalOffset(0), 0, 0)

    def newest_before(self, end: QueueOffset) -> int:
        """Return where the message before `end` lies in the log; -1 if its unit does not tell."""
        unit = self.unit(QueueOffset(end - 1)) if end > self.min_offset else None
        return -1 if unit is None or unit.size in (0, PADDING_SIZE) else unit.offset

    def written_end(self) -> QueueOffset:
        """Return where the written units end.

        No sound queue has an unwritten one before it, so the end is found by halving; what may
        lie behind a hole, which a crash or a lost sector left, is looked for all the same.
        """
        low, high = int(self.min_offset), int(self.end)
        while low < high:
            middle = (low + high) // 2
            if self.unit(QueueOffset(middle)).size:
                low = middle + 1
            else:
                high = middle
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
