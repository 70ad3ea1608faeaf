"""File system that stores the first error of a write or sync."""

import errno
import logging
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

from ternmq_store.disk.directory_lock import NO_SUCH_NAME
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.resource_exhaustion import is_exhausted, is_full

logger = logging.getLogger(__name__)

_COMING: Final = object()
"""Mark of a name that a file is about to get."""


class FileLost(OSError):
    """Loss of a file of the data directory that another process removed, moved or replaced.

    `FileNotFoundError` instead means a file that retention or the deletion of a topic removed.
    """


class FailStopFileSystem:
    """`FileSystem` that stores the first error of a write or sync below a data directory.

    The error is stored before the failed call returns, in any thread. So an acknowledgement that
    first checks `failure` never follows a failed call. Not stored are errors of reads, a full disk,
    too many open files, and a missing file or folder that this object removed. A missing file that
    it did not remove is a failure.

    Attributes:
        failure: First error; None = every write and sync has succeeded.
    """

    def __init__(self, files: FileSystem, root: Path) -> None:
        """Create a file system that watches writes below `root`."""
        self._files = files
        self._root = root
        # Calls without changes need no watch.
        self.exists, self.files, self.folders = files.exists, files.files, files.folders
        self.nodes_in, self.space, self.rest = files.nodes_in, files.space, files.rest
        self.lock, self.is_locked = files.lock, files.is_locked
        self.failure: OSError | None = None
        self._names: dict[Path, object | None] = {}
        # State of each name: an object for a file that was opened or named here, None for one that
        # was removed or renamed here. Any thread may read it: the object is set after the change,
        # None before it.

    @classmethod
    def over(cls, files: FileSystem, root: Path) -> "FailStopFileSystem":
        """Return `files` if it is a `FailStopFileSystem`, else a new one over it."""
        return files if isinstance(files, cls) else cls(files, root)

    @classmethod
    def under(cls, files: FileSystem) -> FileSystem:
        """Return the file system below `files`, or `files` itself."""
        return files._files if isinstance(files, cls) else files

    def fail(self, error: OSError) -> None:
        """Record `error` as the failure, unless there is an earlier one."""
        if self.failure is None:
            self.failure = error
            root = self._root
            logger.error("store failed, read-only from now on folder=%s err=%s", root, error)

    def lose(self, path: Path) -> FileLost:
        """Record and return the loss of the file at `path` to another process."""
        error = FileLost(
            errno.ENOENT,
            "another program removed or replaced it while it was in use: copy what is still open"
            " before this process ends, put it back, and start again (docs/operations.md)",
            str(path),
        )
        self.fail(error)
        return error

    def is_lost(self, path: Path) -> bool:
        """Return whether another process removed a file that was opened or named here.

        Raises:
            OSError: The system cannot read the path.
        """
        known = self._known(path)
        if known is None:
            return False
        try:
            is_there = self._files.exists(path)
        except OSError as error:
            if error.errno not in NO_SUCH_NAME:
                raise
            is_there = False
        return not is_there and self._known(path) is known

    def _known(self, path: Path) -> object | None:
        known = self._names.get(path)
        return None if known is _COMING else known

    @contextmanager
    def writing(self, path: Path, *, may_miss: bool = False) -> Generator[None]:
        """Record the error of a block that writes to or syncs `path`, and raise it.

        Args:
            path: File or folder that is written.
            may_miss: True = a missing file is no failure.
        """
        try:
            yield
        except OSError as error:
            self.note(error, path, may_miss=may_miss)
            raise

    def note(self, error: OSError, path: Path, *, may_miss: bool = False) -> None:
        """Record the error of a write to or sync of `path`. See `writing`."""
        is_passing = (
            is_full(error)
            or is_exhausted(error)
            or (isinstance(error, FileNotFoundError) and (may_miss or self._is_removed(path)))
        )
        if not is_passing and self._is_inside(path):
            self.fail(error)

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file with watched writes. See `FileSystem.open`.

        Raises:
            FileLost: Another process removed the file.
        """
        if create:
            self._names[path] = _COMING
            with self.writing(path):
                file = self._files.open(path, create=True)
            self._names[path] = object()
            return FailStopFile(self, file)
        known = self._known(path)
        try:
            with self.writing(path, may_miss=True) if not read_only else nullcontext():
                file = self._files.open(path, read_only=read_only)
        except FileNotFoundError as error:
            if known is not None and self._known(path) is known and self._is_inside(path):
                raise self.lose(path) from error
            raise
        self._names.setdefault(path, object())
        return file if read_only else FailStopFile(self, file)

    def _is_removed(self, path: Path) -> bool:
        return any(self._names.get(each, _COMING) is None for each in (path, *path.parents))

    def _is_inside(self, path: Path) -> bool:
        return path.is_relative_to(self._root)

    def make_folder(self, folder: Path, *, is_durable: bool = True) -> None:
        """Create a folder and its missing parents."""
        for each in (folder, *folder.parents):
            self._names.pop(each, None)
        with self.writing(folder):
            self._files.make_folder(folder, is_durable=is_durable)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file atomically."""
        self._names[old], self._names[new] = None, _COMING
        with self.writing(new):
            self._files.rename(old, new)
        self._names[new] = object()

    def remove(self, path: Path) -> None:
        """Remove a file or an empty folder. An error is not stored, since it loses no data."""
        self._names[path] = None
        self._files.remove(path)

    def sync_folder(self, folder: Path) -> None:
        """Sync `folder`, so that its names survive a power loss."""
        with self.writing(folder):
            self._files.sync_folder(folder)


class FailStopFile:
    """Open file of a `FailStopFileSystem`."""

    def __init__(self, watched: FailStopFileSystem, file: File) -> None:
        self._watched = watched
        self._file = file
        self.path, self.node = file.path, file.node
        # Calls without writes need no watch.
        self.size, self.read, self.hole_after = file.size, file.read, file.hole_after
        self.map, self.will_need = file.map, file.will_need
        self.is_in_place, self.park, self.close = file.is_in_place, file.park, file.close

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Write all of `data` at `position`."""
        try:  # a context manager costs half as much as the write of a record
            self._file.write(position, data)
        except OSError as error:
            self._watched.note(error, self.path)
            raise

    def resize(self, length: int) -> None:
        """Cut the file, or extend it by a hole."""
        with self._watched.writing(self.path):
            self._file.resize(length)

    def allocate(self, position: int, length: int) -> None:
        """Allocate the space of a range."""
        with self._watched.writing(self.path):
            self._file.allocate(position, length)

    def sync(self) -> None:
        """Sync the file, so that its content survives a power loss."""
        try:
            self._file.sync()
        except OSError as error:
            self._watched.note(error, self.path)
            raise
