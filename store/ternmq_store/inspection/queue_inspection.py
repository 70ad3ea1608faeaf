"""Reading the consume queues of a store that may be damaged or in use: nothing is written.

Source: RocketMQ `ConsumeQueue`, `ConsumeQueueExt`.
"""

import struct
from collections.abc import Collection, Generator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from ternmq_model.offsets import UNIT_BYTES, PhysicalOffset, QueueOffset
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import consume_queue_folder, file_base, queue_ext_folder
from ternmq_store.inspection.log_inspection import LogFile, file_bytes
from ternmq_store.queues.consume_queue_ext import EXT_UNIT_BYTES_MAX, ExtUnit
from ternmq_store.queues.consume_queues import count_in_row, unit_file_bytes
from ternmq_store.queues.units import Units, decode_units

_PIECE_UNITS: Final = 819
_EXT_HEAD: Final = struct.Struct(">hqqh")
_FIRST_ADDRESS: Final = -(1 << 63)


class QueueFiles(NamedTuple):
    """One consume queue, as it lies in its folder."""

    topic: str
    queue_id: int
    folder: Path
    files: Sequence[LogFile]

    @property
    def start(self) -> QueueOffset:
        """The queue offset of the first unit that has a place."""
        return QueueOffset(self.files[0].base // UNIT_BYTES if self.files else 0)


class FoundUnits(NamedTuple):
    """Units that follow each other, from one file."""

    file: LogFile
    first: QueueOffset
    units: Units


def find_queues(files: FileSystem, root: Path) -> Sequence[QueueFiles]:
    """Return the consume queues below `root`, by topic and the name of their folder."""
    folder = consume_queue_folder(root)
    found: list[QueueFiles] = []
    for topic in files.folders(folder):
        for name in files.folders(folder / topic):
            with suppress(ValueError):
                own = folder / topic / name
                found.append(QueueFiles(topic, int(name), own, _files(files, own)))
    return found


def misfits(queues: Sequence[QueueFiles]) -> Sequence[tuple[Path, str]]:
    """Return the files that do not fit those of the other queues, each with the reason."""
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
    """Return the places of what is written and can be no unit."""
    is_bad = (units["size"] < 0) | ((units["size"] > 0) & (units["offset"] < 0))
    return set(is_bad.nonzero()[0].tolist())


def _files(files: FileSystem, folder: Path) -> Sequence[LogFile]:
    bases = [(folder / name, file_base(name)) for name in files.files(folder)]
    return [
        LogFile(path, base, file_bytes(files, path)) for path, base in bases if base is not None
    ]


def walk_units(files: FileSystem, queue: QueueFiles) -> Generator[FoundUnits]:
    """Give the places of a queue's units, written or not, file after file.

    A file's unwritten places are zeros; nothing is given of a file behind its last unit.

    Raises:
        OSError: A file cannot be read.
    """
    for log_file in queue.files:
        first = log_file.base // UNIT_BYTES
        place, places = 0, log_file.file_bytes // UNIT_BYTES
        with closing(files.open(log_file.path, read_only=True)) as file:
            while place < places:
                count = min(_PIECE_UNITS, places - place)
                data = file.read(place * UNIT_BYTES, count * UNIT_BYTES)
                units = decode_units(data)
                if not len(units):
                    break
                written = np.flatnonzero(units["size"])
                if len(written):
                    used = units[: int(written[-1]) + 1]
                    yield FoundUnits(log_file, QueueOffset(first + place), used)
                place += len(units)


class QueueCursor:
    """Goes once through a queue's units, forwards. Holds one piece of them at a time."""

    def __init__(self, files: FileSystem, queue: QueueFiles) -> None:
        self.queue = queue
        self._pieces = walk_units(files, queue)
        self._piece: FoundUnits | None = next(self._pieces, None)

    def take_to(self, offset: QueueOffset) -> Generator[FoundUnits]:
        """Give every place before `offset` that was not given yet."""
        while self._piece is not None and self._piece.first < offset:
            file, first, units = self._piece
            count = min(len(units), offset - first)
            yield FoundUnits(file, first, units[:count])
            self._skip(count)

    def take(self, offset: QueueOffset) -> tuple[LogFile, tuple[int, int, int]] | None:
        """Return file and fields of the next unit, if it is the one of `offset`."""
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
            self._piece = FoundUnits(file, QueueOffset(first + count), units[count:])
        else:
            self._piece = next(self._pieces, None)


class ExtReader:
    """Reads the ext units of one queue. Keeps nothing but where its files are."""

    def __init__(self, files: FileSystem, root: Path, topic: str, queue_id: int) -> None:
        self._file_system = files
        self._files = _files(files, queue_ext_folder(root, topic, queue_id))

    def unit(self, address: int) -> ExtUnit | None:
        """Return what lies at `address`, a queue unit's tag code; None if that is no unit."""
        place = address - _FIRST_ADDRESS
        found = next((f for f in self._files if f.base <= place < f.base + f.file_bytes), None)
        if found is None:
            return None
        with closing(self._file_system.open(found.path, read_only=True)) as file:
            data = file.read(place - found.base, EXT_UNIT_BYTES_MAX)
        if len(data) < _EXT_HEAD.size:
            return None
        size, tag_code, stored_at_ms, bit_map_bytes = _EXT_HEAD.unpack_from(data)
        if bit_map_bytes < 0 or size != _EXT_HEAD.size + bit_map_bytes or size > len(data):
            return None
        return ExtUnit(tag_code, stored_at_ms, data[_EXT_HEAD.size : size])


def last_unit_end(files: FileSystem, queue: QueueFiles) -> PhysicalOffset:
    """Return where the newest record ends that a queue tells of; 0 when it tells of none.

    Units are taken to follow each other, as they do in a sound queue: a few are looked at.
    """
    unit = _last_unit(files, queue)
    return PhysicalOffset(0 if unit is None else unit[0] + unit[1])


def last_unit_start(files: FileSystem, queue: QueueFiles) -> int:
    """Return where the newest record begins that a queue tells of; -1 when it tells of none."""
    unit = _last_unit(files, queue)
    return -1 if unit is None else unit[0]


def _last_unit(files: FileSystem, queue: QueueFiles) -> tuple[int, int] | None:
    for log_file in reversed(queue.files):
        with closing(files.open(log_file.path, read_only=True)) as file:
            low, high = 0, log_file.file_bytes // UNIT_BYTES
            while low < high:
                middle = (low + high) // 2
                unit = decode_units(file.read(middle * UNIT_BYTES, UNIT_BYTES))
                if len(unit) and int(unit["size"][0]) > 0:
                    low = middle + 1
                else:
                    high = middle
            if low:
                unit = decode_units(file.read((low - 1) * UNIT_BYTES, UNIT_BYTES))
                return int(unit["offset"][0]), int(unit["size"][0])
    return None
