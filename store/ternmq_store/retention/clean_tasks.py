"""The tasks of a retention pass, each for a blocking thread; what it found is in it afterwards.

None of them raises: what went wrong is in its `error`.
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
"""Bytes of a map that are given back at a time: the interpreter stands still meanwhile. For 1 GiB
in memory that is 4.6 ms at once, 0.7 ms at most in pieces (measured); its blocks then take 35 ms to
be freed, during which others run."""


class CleanTask(Protocol):
    """A part of a pass."""

    def run(self) -> None:
        """Run the task, in a thread that may block."""
        ...


class PauseTask:
    """A pause of a pass, in which other tasks have their turn."""

    def run(self) -> None:
        """Return at once."""


@dataclass(slots=True)
class DiskUse:
    """Measurement of the use of the disks of some folders, of which the fullest counts."""

    files: FileSystem
    folders: Sequence[Path]
    used_share: float = 0.0
    error: OSError | None = None

    def run(self) -> None:
        """Measure the disk of each folder."""
        try:
            self.used_share = max(self.files.used_share(folder) for folder in self.folders)
        except OSError as error:
            self.error = error


class RecordPosition(NamedTuple):
    """Start of a record: in a file, and in the log."""

    path: Path
    position: int
    at: PhysicalOffset


@dataclass(slots=True)
class StoreTimeReading:
    """A reading of the times at which records were stored.

    Attributes:
        times: One for each place; None where no record can be read.
    """

    files: FileSystem
    places: Sequence[RecordPosition]
    times: list[int | None] = field(default_factory=list[int | None])

    def run(self) -> None:
        """Read the head of each record, without the map: it may come from the disk."""
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
    """File that is out of reach of readers, for the thread that removes it."""

    path: Path
    mapped: MappedFile | None
    """Still to be unmapped."""

    def discard(self, files: FileSystem) -> None:
        """Unmap and remove it here and now; the caller syncs its folder.

        Raises:
            OSError: It could not be removed.
        """
        if self.mapped is not None:
            self.mapped.close()
            self.mapped = None
        with contextlib.suppress(FileNotFoundError):
            files.remove(self.path)


@dataclass(slots=True)
class FileRemoval:
    """Unmap and remove files, in their order, each durably before the next.

    Attributes:
        removed: Count of files that are gone for good.
        is_abandoned: Set from another thread: begin no further file.
    """

    files: FileSystem
    leaving: Sequence[UnlinkedFile]
    pause_s: float
    """Rest after each."""
    removed: int = 0
    is_abandoned: bool = False
    error: OSError | None = None

    def run(self) -> None:
        """Remove until the last one is gone or one cannot be."""
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
        # The blocks are freed here, without the interpreter, since the map is gone.
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
            # Its memory stays until the process ends; the file may go all the same.
            logger.error("file still read while it was deleted base=%s %s", mapped.base, error)
