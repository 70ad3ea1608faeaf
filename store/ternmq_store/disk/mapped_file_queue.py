"""Sequence of mapped files of one length, addressed as one range of bytes."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.layout import base_of, file_base, file_name
from ternmq_store.disk.mapped_file import MappedFile

_FOLDERS_ABOVE: Final = 3
"""Folders between a queue's files and the root: queue, topic, all topics."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """File on the disk."""

    base: int
    path: Path
    file_bytes: int


class UnsyncedNames(NamedTuple):
    """New files and folders without a sync."""

    files: Sequence[Path] = ()
    folders: Sequence[Path] = ()
    """Folders, innermost first for each file. Sync them after the files."""


def find_files(files: FileSystem, folder: Path) -> Sequence[FoundFile]:
    """Return the files of a log or queue, by base. Other files are ignored."""
    found: list[FoundFile] = []
    for name in files.files(folder):
        base = file_base(name)
        if base is not None:
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile, by who uses it
                file = files.open(folder / name, read_only=True)
                found.append(FoundFile(base, folder / name, file.size()))
                file.close()
    return found


class MappedFileQueue:
    """Files of the commit log or of one consume queue.

    Owned by that log or queue. The files are contiguous.
    """

    def __init__(self, files: FileSystem, folder: Path, file_bytes: int) -> None:
        self._file_system = files
        self.folder = folder
        self.file_bytes = file_bytes
        self.files: list[MappedFile] = []
        self._parked = 0
        self._new_files: list[Path] = []
        self._new_folders: dict[Path, None] = {}

    @property
    def last(self) -> MappedFile:
        """Newest file. There must be one."""
        return self.files[-1]

    def at(self, offset: int) -> MappedFile:
        """Return the file with byte `offset`, which must exist."""
        return self.files[(offset - self.files[0].base) // self.file_bytes]

    def has(self, offset: int) -> bool:
        """Return whether byte `offset` lies in a file."""
        return bool(self.files) and self.files[0].base <= offset < self.files[-1].end

    def open_file(self, base: int) -> MappedFile:
        """Map the existing file at `base` as the newest one."""
        return self._add(self._file_system.open(self.folder / file_name(base)), base)

    def create_file(self, base: int, *, real_bytes: int) -> MappedFile:
        """Create a file of full length, allocated up to `real_bytes`, as the newest one.

        The file and its name are on disk after a sync of `file` and of the folder.

        Raises:
            OSError: The file cannot be created. There is no new file.
        """
        path = self.folder / file_name(base)
        file = self._file_system.open(path, create=True)
        try:
            file.resize(self.file_bytes)
            if real_bytes:
                file.allocate(0, real_bytes)
        except OSError:
            file.close()
            self._file_system.remove(path)
            raise
        try:
            created = self._add(file, base)
        except OSError:
            self._file_system.remove(path)
            raise
        created.real_bytes = real_bytes
        return created

    def create_durable_file(self, base: int, *, real_bytes: int) -> MappedFile:
        """Create a file like `create_file`, durably.

        Raises:
            OSError: The file cannot be created. There is no new file.
        """
        created = self.create_file(base, real_bytes=real_bytes)
        try:
            created.file.sync()
            self._file_system.sync_folder(self.folder)
        except OSError:
            self.drop_from(base)
            raise
        return created

    def create_late_file(self, base: int) -> MappedFile:
        """Create a file like `create_file`, and its folder, without a wait for the disk.

        Both are on the disk after a sync of the names of `take_new`. After an earlier crash the
        file may be missing or have no length. The caller parks the file.

        Raises:
            OSError: The file cannot be created. There is no new file.
        """
        self._file_system.make_folder(self.folder, is_durable=False)
        created = self.create_file(base, real_bytes=0)
        self._new_files.append(created.file.path)
        # The folders above may be new too: a killed process may have created them.
        above = () if len(self.files) > 1 else self.folder.parents[:_FOLDERS_ABOVE]
        self._new_folders.update(dict.fromkeys((self.folder, *above)))
        return created

    def take_new(self) -> UnsyncedNames:
        """Return the names of `create_late_file` since the last call. The caller syncs them."""
        new = UnsyncedNames(tuple(self._new_files), tuple(self._new_folders))
        self._new_files.clear()
        self._new_folders.clear()
        return new

    def _add(self, file: File, base: int) -> MappedFile:
        assert not self.files or base == self.files[-1].end, "files follow each other"
        try:
            mapped = MappedFile(file, base)
        except OSError:
            file.close()
            raise
        self.files.append(mapped)
        return mapped

    def park_before(self, end: int) -> None:
        """Close the descriptors of the files that end at `end` or before.

        No sync of these files may be running.
        """
        while self._parked < len(self.files) and self.files[self._parked].end <= end:
            self.files[self._parked].file.park()
            self._parked += 1

    def drop_from(self, offset: int) -> int:
        """Remove, newest first, every file that begins at `offset` or later.

        No sync of these files may be running. The removal is durable after a sync of the folder.

        Returns:
            Number of removed files.
        """
        kept = len(self.files)
        while self.files and self.files[-1].base >= offset:
            mapped = self.files.pop()
            mapped.close()
            self._file_system.remove(self.folder / file_name(mapped.base))
        self._parked = min(self._parked, len(self.files))
        return kept - len(self.files)

    def drop_before(self, offset: int) -> Sequence[MappedFile]:
        """Release the files that end at `offset` or before, up to the first held one.

        The newest file stays. Released files are still mapped and on the disk: the caller removes
        them, oldest first.
        """
        count = 0
        while count < len(self.files) - 1:
            mapped = self.files[count]
            if mapped.end > offset or mapped.holds:
                break
            count += 1
        dropped, self.files[:] = self.files[:count], self.files[count:]
        self._parked = max(self._parked - count, 0)
        return dropped

    def files_between(self, start: int, end: int) -> Sequence[File]:
        """Return the files with bytes of `start` to `end`, for a sync."""
        first = base_of(start, self.file_bytes)
        return tuple(mapped.file for mapped in self.files if first <= mapped.base < end)

    def close(self) -> None:
        """Unmap and close all files."""
        while self.files:
            self.files.pop().close()
