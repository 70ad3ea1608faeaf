"""An ordered run of mapped files of one length, addressed as one long row of bytes."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.layout import base_of, file_base, file_name
from ternmq_store.disk.mapped_file import MappedFile

_FOLDERS_ABOVE: Final = 3
"""A queue's folder lies in that of its topic, that in the one of all topics, and that in the root.
"""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as it lies on disk."""

    base: int
    path: Path
    file_bytes: int


class UnsyncedNames(NamedTuple):
    """Files and folders that may not be on the disk."""

    files: Sequence[Path] = ()
    folders: Sequence[Path] = ()
    """Innermost first for each file; to be synced after the files."""


def find_files(files: FileSystem, folder: Path) -> Sequence[FoundFile]:
    """Return the files of a log or queue, by base. Other files are left alone."""
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
    """The files of the commit log, or of one consume queue.

    Owned by that log or queue. Files follow each other without a gap.
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
        """The newest file; there must be one."""
        return self.files[-1]

    def at(self, offset: int) -> MappedFile:
        """Return the file that holds byte `offset`, which must lie in one."""
        return self.files[(offset - self.files[0].base) // self.file_bytes]

    def has(self, offset: int) -> bool:
        """Return whether byte `offset` lies in a file."""
        return bool(self.files) and self.files[0].base <= offset < self.files[-1].end

    def open_file(self, base: int) -> MappedFile:
        """Map the file at `base`, which exists, as the newest one."""
        return self._add(self._file_system.open(self.folder / file_name(base)), base)

    def create_file(self, base: int, *, real_bytes: int) -> MappedFile:
        """Make a file of full length that is real up to `real_bytes`, as the newest one.

        The file and its name are on disk once `file` and the folder are synced.

        Raises:
            OSError: It cannot be made; there is no new file.
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
        """Make a file like `create_file`, durably.

        Raises:
            OSError: It cannot be made; there is no new file.
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
        """Make a file like `create_file`, and its folder, without a wait for the disk.

        Both are on the disk once the names of `take_new` are synced; after a crash before that
        the file may be gone, or without its length. The caller parks it.

        Raises:
            OSError: It cannot be made; there is no new file.
        """
        self._file_system.make_folder(self.folder, is_durable=False)
        created = self.create_file(base, real_bytes=0)
        self._new_files.append(created.file.path)
        # Whether those above are new nobody knows: a process that was killed may have made them.
        above = () if len(self.files) > 1 else self.folder.parents[:_FOLDERS_ABOVE]
        self._new_folders.update(dict.fromkeys((self.folder, *above)))
        return created

    def take_new(self) -> UnsyncedNames:
        """Return the names of `create_late_file` since the last call; the caller syncs them."""
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

        No sync of them may be under way.
        """
        while self._parked < len(self.files) and self.files[self._parked].end <= end:
            self.files[self._parked].file.park()
            self._parked += 1

    def drop_from(self, offset: int) -> int:
        """Remove, newest first, every file that begins at `offset` or later.

        No sync of them may be under way. Their names are gone for good once the folder is synced.

        Returns:
            How many were removed.
        """
        kept = len(self.files)
        while self.files and self.files[-1].base >= offset:
            mapped = self.files.pop()
            mapped.close()
            self._file_system.remove(self.folder / file_name(mapped.base))
        self._parked = min(self._parked, len(self.files))
        return kept - len(self.files)

    def drop_before(self, offset: int) -> Sequence[MappedFile]:
        """Release the files that end at `offset` or before, up to the first that a reader holds.

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
        """Return the files that hold any byte of `start` to `end`, for a sync."""
        first = base_of(start, self.file_bytes)
        return tuple(mapped.file for mapped in self.files if first <= mapped.base < end)

    def close(self) -> None:
        """Unmap and close all files."""
        while self.files:
            self.files.pop().close()
