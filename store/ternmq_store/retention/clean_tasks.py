"""Tasks of a retention pass, for blocking threads. A task stores its result.

No task raises: the attribute `error` has the error.
"""

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import HEADER_BYTES_MAX, find_header
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.mapped_file import MappedFile

logger = logging.getLogger(__name__)

_UNMAPPED_BYTES: Final = 64 << 20
"""Bytes of a map that are released at a time, since the interpreter waits meanwhile. The release of
1 GiB in memory takes 4.6 ms at once, and at most 0.7 ms in pieces (measured). Freeing its blocks
takes 35 ms, during which other threads run."""


class CleanTask(Protocol):
    """Part of a pass."""

    def run(self) -> None:
        """Run the task, in a thread that may block."""
        ...


class PauseTask:
    """Pause of a pass, in which other tasks get their turn."""

    def run(self) -> None:
        """Return at once."""


@dataclass(slots=True)
class DiskUse:
    """Measurement of the use of the disks of some folders. The fullest disk counts."""

    files: FileSystem
    folders: Sequence[Path]
    full_share: float
    """Used part at which appends are refused."""

    used_share: float = 0.0
    free_bytes: int = 0
    """Bytes until appends are refused."""

    error: OSError | None = None

    def run(self) -> None:
        """Measure the disk of each folder."""
        try:
            spaces = [self.files.space(folder) for folder in self.folders]
        except OSError as error:
            self.error = error
        else:
            self.used_share = max(space.used_share for space in spaces)
            self.free_bytes = min(space.until(self.full_share) for space in spaces)


class RecordPosition(NamedTuple):
    """Begin of a record in a file and in the log."""

    path: Path
    position: int
    at: PhysicalOffset


@dataclass(slots=True)
class StoreTimeReading:
    """Read of the store times of records.

    Attributes:
        times: Store time at each position, Unix ms; None = no readable record.
    """

    files: FileSystem
    places: Sequence[RecordPosition]
    times: list[int | None] = field(default_factory=list[int | None])

    def run(self) -> None:
        """Read the header of each record without the map, since it may come from the disk."""
        self.times = [self._read(place) for place in self.places]

    def _read(self, place: RecordPosition) -> int | None:
        try:
            with contextlib.closing(self.files.open(place.path)) as file:
                head = file.read(place.position, HEADER_BYTES_MAX)
        except OSError:
            return None
        header = find_header(head)
        if header is None or header.physical_offset != place.at:
            return None
        return header.stored_at_ms


@dataclass(eq=False, slots=True)
class UnlinkedFile:
    """File without readers, for the thread that removes it."""

    path: Path
    mapped: MappedFile | None
    """Map of the file; None = unmapped already."""

    def discard(self, files: FileSystem) -> None:
        """Unmap and remove the file on this thread. The caller syncs the folder.

        Raises:
            OSError: The file cannot be removed.
        """
        if self.mapped is not None:
            self.mapped.close()
            self.mapped = None
        with contextlib.suppress(FileNotFoundError):
            files.remove(self.path)


@dataclass(slots=True)
class FileRemoval:
    """Removal of files in their order, each durably before the next.

    Attributes:
        removed: Number of removed files.
        is_abandoned: True = no further file is removed. Another thread may set it.
    """

    files: FileSystem
    leaving: Sequence[UnlinkedFile]
    pause_s: float
    """Pause after each file, s."""
    removed: int = 0
    is_abandoned: bool = False
    error: OSError | None = None

    def run(self) -> None:
        """Remove all files, up to the first error."""
        for each in self.leaving:
            if self.is_abandoned:
                return
            try:
                self._remove(each)
            except OSError as error:
                self.error = error
                return
            self.removed += 1
            self.files.rest(self.pause_s)

    def _remove(self, each: UnlinkedFile) -> None:
        mapped, each.mapped = each.mapped, None
        if mapped is not None:
            self._unmap(mapped)
        # The system frees the blocks here, while other threads run, since the map is gone.
        with contextlib.suppress(FileNotFoundError):
            self.files.remove(each.path)
        with contextlib.suppress(FileNotFoundError):  # a deleted topic takes its folder along
            self.files.sync_folder(each.path.parent)

    def _unmap(self, mapped: MappedFile) -> None:
        for position in range(0, mapped.file_bytes, _UNMAPPED_BYTES):
            mapped.forget(position, min(_UNMAPPED_BYTES, mapped.file_bytes - position))
            self.files.rest(0)
        try:
            mapped.close()
        except BufferError as error:
            # The memory stays until the end of the process. The file can be removed all the same.
            logger.error("file still read while it was deleted file=%s err=%s", mapped.base, error)
