"""Reads of the consume queues of a store that may be damaged or in use, without a write.

Source: RocketMQ `ConsumeQueue`, `ConsumeQueueExt`.
"""

from collections.abc import Collection, Generator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from ternmq_model.offsets import UNIT_BYTES, QueueOffset
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import consume_queue_folder, queue_ext_folder
from ternmq_store.disk.mapped_file_queue import FoundFile, find_files
from ternmq_store.queues.consume_queues import count_in_row, unit_file_bytes
from ternmq_store.queues.ext_units import EXT_UNIT_BYTES_MAX, FIRST_ADDRESS, ExtUnit, find_ext_unit
from ternmq_store.queues.unit_files import FileUnits, count_written, walk_units
from ternmq_store.queues.units import Unit, Units, read_units, unit_of


class QueueFiles(NamedTuple):
    """One consume queue by the files in its folder."""

    topic: str
    queue_id: int
    folder: Path
    files: Sequence[FoundFile]

    @property
    def start(self) -> QueueOffset:
        """Queue offset of the first unit of the first file."""
        return QueueOffset(self.files[0].base // UNIT_BYTES if self.files else 0)


def find_queues(files: FileSystem, root: Path) -> Sequence[QueueFiles]:
    """Return the consume queues below `root`, by topic and the name of their folder."""
    folder = consume_queue_folder(root)
    found: list[QueueFiles] = []
    for topic in files.folders(folder):
        for name in files.folders(folder / topic):
            with suppress(ValueError):
                own = folder / topic / name
                found.append(QueueFiles(topic, int(name), own, find_files(files, own)))
    return found


def misfits(queues: Sequence[QueueFiles]) -> Sequence[tuple[Path, str]]:
    """Return the files that do not fit the other files, with the reasons."""
    file_bytes = unit_file_bytes([file.file_bytes for queue in queues for file in queue.files])
    found: list[tuple[Path, str]] = []
    for queue in queues:
        fits = count_in_row([(file.base, file.file_bytes) for file in queue.files], file_bytes)
        for file in queue.files[fits:]:
            text = f"has {file.file_bytes} bytes, others have {file_bytes}"
            if file.file_bytes == file_bytes:
                text = "does not follow the file before it, or that one does not fit"
            found.append((file.path, text))
    return found


def bad_units(units: Units) -> Collection[int]:
    """Return the rows that are written and cannot be units."""
    is_bad = (units["size"] < 0) | ((units["size"] > 0) & (units["offset"] < 0))
    return set(is_bad.nonzero()[0].tolist())


class QueueCursor:
    """Cursor through a queue's units, forwards, with one piece of them in memory."""

    def __init__(self, files: FileSystem, queue: QueueFiles) -> None:
        self.queue = queue
        self._pieces = walk_units(files, queue.files)
        self._piece: FileUnits | None = next(self._pieces, None)

    def take_to(self, offset: QueueOffset) -> Generator[FileUnits]:
        """Yield the remaining units before `offset`."""
        while self._piece is not None and self._piece.first < offset:
            file, first, units = self._piece
            count = min(len(units), offset - first)
            yield FileUnits(file, first, units[:count])
            self._skip(count)

    def take(self, offset: QueueOffset) -> tuple[FoundFile, tuple[int, int, int]] | None:
        """Return file and fields of the next unit if its queue offset is `offset`, else None."""
        piece = self._piece
        if piece is None or piece.first != offset:
            return None
        unit: tuple[int, int, int] = piece.units[0].item()
        self._skip(1)
        return piece.file, unit

    def _skip(self, count: int) -> None:
        assert self._piece is not None
        file, first, units = self._piece
        if count < len(units):
            self._piece = FileUnits(file, QueueOffset(first + count), units[count:])
        else:
            self._piece = next(self._pieces, None)


class ExtReader:
    """Reader of the ext units of one queue."""

    def __init__(self, files: FileSystem, root: Path, topic: str, queue_id: int) -> None:
        self._file_system = files
        self._files = find_files(files, queue_ext_folder(root, topic, queue_id))

    def unit(self, address: int) -> ExtUnit | None:
        """Return the ext unit at `address`, the tag code of a queue unit; None = there is none."""
        place = address - FIRST_ADDRESS
        found = next((f for f in self._files if f.base <= place < f.base + f.file_bytes), None)
        if found is None:
            return None
        with closing(self._file_system.open(found.path, read_only=True)) as file:
            data = file.read(place - found.base, EXT_UNIT_BYTES_MAX)
        return find_ext_unit(data, 0)


def last_unit(files: FileSystem, queue: QueueFiles) -> Unit | None:
    """Return the newest unit of a queue; None = none is written.

    Only a few units are read, on the assumption that a queue has no gaps.
    """
    for found in reversed(queue.files):
        with closing(files.open(found.path, read_only=True)) as file:
            if count := count_written(file, found.file_bytes // UNIT_BYTES):
                return unit_of(read_units(file, count - 1, 1))
    return None
