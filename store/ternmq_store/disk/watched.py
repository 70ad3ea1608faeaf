"""A file system that remembers the first write or sync that failed."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ternmq_store.disk.filesystem import File, FileSystem, Lock, Region
from ternmq_store.disk.shortage import is_full, is_shortage

logger = logging.getLogger(__name__)


class WatchedFileSystem:
    """A `FileSystem` that keeps the first error of a write or sync below a data directory.

    The error is kept before its call returns, in whatever thread that runs: an acknowledgement that
    looks at `failure` first is never later than a failed call. A full disk, too many open files,
    a file or folder that was removed here meanwhile and errors of reads are not kept.

    Attributes:
        failure: The first error; None = every write and sync has succeeded.
    """

    def __init__(self, files: FileSystem, root: Path) -> None:
        """Watch what is written below `root` through this object."""
        self._files = files
        self._root = root
        self.failure: OSError | None = None
        self._removed: set[Path] = set()

    @classmethod
    def over(cls, files: FileSystem, root: Path) -> "WatchedFileSystem":
        """Return `files` if it is watched already, else a watched file system over it."""
        return files if isinstance(files, cls) else cls(files, root)

    @classmethod
    def under(cls, files: FileSystem) -> FileSystem:
        """Return the file system that `files` watches; `files` itself if it watches none."""
        return files._files if isinstance(files, cls) else files

    def fail(self, error: OSError) -> None:
        """Keep `error` unless there is one before it."""
        if self.failure is None:
            self.failure = error
            root = self._root
            logger.error("store failed, read-only from now on root=%s error=%s", root, error)

    @contextmanager
    def writing(self, path: Path, *, may_miss: bool = False) -> Generator[None]:
        """Keep the error of a block that writes to or syncs `path`; it is raised on.

        Args:
            path: What is written.
            may_miss: That it is not there is no failure.
        """
        try:
            yield
        except OSError as error:
            is_passing = (
                is_full(error)
                or is_shortage(error)
                or (isinstance(error, FileNotFoundError) and (may_miss or self._is_removed(path)))
            )
            if not is_passing and path.is_relative_to(self._root):
                self.fail(error)
            raise

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file, as `FileSystem.open`; writes to it are watched."""
        if read_only:
            return self._files.open(path, read_only=True)
        self._removed.discard(path)
        with self.writing(path, may_miss=not create):
            return WatchedFile(self, self._files.open(path, create=create))

    def _is_removed(self, path: Path) -> bool:
        return not self._removed.isdisjoint((path, *path.parents))

    def exists(self, path: Path) -> bool:
        """Tell whether a file or folder is there."""
        return self._files.exists(path)

    def files(self, folder: Path) -> list[str]:
        """Return the names of the plain files in `folder`, sorted."""
        return self._files.files(folder)

    def folders(self, folder: Path) -> list[str]:
        """Return the names of the folders in `folder`, sorted."""
        return self._files.folders(folder)

    def make_folder(self, folder: Path, *, is_durable: bool = True) -> None:
        """Make a folder and those above it."""
        self._removed.difference_update((folder, *folder.parents))
        with self.writing(folder):
            self._files.make_folder(folder, is_durable=is_durable)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name, at once."""
        self._removed.discard(new)
        with self.writing(new):
            self._files.rename(old, new)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder that is empty. An error is not kept: nothing was written."""
        self._removed.add(path)
        self._files.remove(path)

    def sync_folder(self, folder: Path) -> None:
        """Return when the names in `folder` survive a loss of power."""
        with self.writing(folder):
            self._files.sync_folder(folder)

    def lock(self, path: Path) -> Lock:
        """Hold the file at `path` against every other process."""
        return self._files.lock(path)

    def is_locked(self, path: Path) -> bool:
        """Tell whether somebody holds the lock at `path`."""
        return self._files.is_locked(path)

    def used_share(self, folder: Path) -> float:
        """Return how much of the disk that holds `folder` is in use: 0 to 1."""
        return self._files.used_share(folder)

    def rest(self, seconds: float) -> None:
        """Leave the disk to others for a while."""
        self._files.rest(seconds)


class WatchedFile:
    """An open file of a `WatchedFileSystem`."""

    def __init__(self, watched: WatchedFileSystem, file: File) -> None:
        self._watched = watched
        self._file = file

    @property
    def path(self) -> Path:
        """The file's name when it was opened."""
        return self._file.path

    def size(self) -> int:
        """Return its length in bytes."""
        return self._file.size()

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes from `position`."""
        return self._file.read(position, length)

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Put `data` at `position`, all of it."""
        with self._watched.writing(self.path):
            self._file.write(position, data)

    def resize(self, length: int) -> None:
        """Cut the file, or lengthen it by a hole."""
        with self._watched.writing(self.path):
            self._file.resize(length)

    def allocate(self, position: int, length: int) -> None:
        """Make the space of a range real."""
        with self._watched.writing(self.path):
            self._file.allocate(position, length)

    def hole_after(self, position: int) -> int:
        """Return where, from `position` on, the file first has no blocks of its own."""
        return self._file.hole_after(position)

    def map(self) -> Region:
        """Return the file, as long as it is now, in memory."""
        return self._file.map()

    def sync(self) -> None:
        """Return when what was written survives a loss of power."""
        with self._watched.writing(self.path):
            self._file.sync()

    def will_need(self, position: int, length: int) -> None:
        """Say that a range will be read soon."""
        self._file.will_need(position, length)

    def is_in_place(self) -> bool:
        """Tell whether the file's name still leads to it."""
        return self._file.is_in_place()

    def park(self) -> None:
        """Give the descriptor back; a map of it stays."""
        self._file.park()

    def close(self) -> None:
        """Close the file; a map of it stays."""
        self._file.close()
