"""The one door to the disk: what the store asks of a file system, and the real one.

Nothing else in the project imports `mmap`. Tests put a file system in memory, or one that forgets
what was not synced, behind the same protocols.
"""

import contextlib
import fcntl
import mmap
import os
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ternmq_model.errors import StoreLocked

_PIECE_BYTES: Final = 1 << 20


class Region(Protocol):
    """A whole file in memory. What is put into `bytes` is in the file, not yet on the disk."""

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """The file as an array."""
        ...

    @property
    def view(self) -> memoryview:
        """The file as a buffer: for slices that become `bytes`."""
        ...

    def close(self) -> None:
        """Let go of the file. No array or slice of it may be left."""
        ...


class File(Protocol):
    """An open file. `sync` may run in another thread than the rest."""

    @property
    def path(self) -> Path:
        """The file's name when it was opened."""
        ...

    def size(self) -> int:
        """Return its length in bytes."""
        ...

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes from `position`, without the map."""
        ...

    def write(self, position: int, data: bytes) -> None:
        """Put `data` at `position`, all of it."""
        ...

    def resize(self, length: int) -> None:
        """Cut the file, or lengthen it by a hole."""
        ...

    def allocate(self, position: int, length: int) -> None:
        """Make the space of a range real, so that touching it cannot fail.

        Raises:
            OSError: ENOSPC when the disk is full. Part of the range may be real.
        """
        ...

    def map(self) -> Region:
        """Return the file, as long as it is now, in memory."""
        ...

    def sync(self) -> None:
        """Return when what was written, through the map too, survives a loss of power."""
        ...

    def close(self) -> None:
        """Close the file; a map of it stays."""
        ...


class Lock(Protocol):
    """A held lock of a directory."""

    def release(self) -> None:
        """Let another process have the directory."""
        ...


class FileSystem(Protocol):
    """Files and folders by path."""

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open a file to read and write. With `create`, one that need not exist."""
        ...

    def exists(self, path: Path) -> bool:
        """Tell whether a file or folder is there."""
        ...

    def files(self, folder: Path) -> list[str]:
        """Return the names of the plain files in `folder`, sorted; none if it is not there."""
        ...

    def folders(self, folder: Path) -> list[str]:
        """Return the names of the folders in `folder`, sorted; none if it is not there."""
        ...

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it; what is new survives a loss of power."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name, at once."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder that is empty."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Return when the names in `folder` survive a loss of power."""
        ...

    def lock(self, path: Path) -> Lock:
        """Hold the file at `path` against every other process.

        Raises:
            StoreLocked: Somebody holds it; names the folder and the holder.
        """
        ...


class MemoryMap:
    """A real file, mapped shared."""

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, 0)
        self._view: memoryview | None = memoryview(self._map)
        self._bytes: NDArray[np.uint8] | None = np.frombuffer(self._map, dtype=np.uint8)

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """The file as an array."""
        assert self._bytes is not None, "the map is closed"
        return self._bytes

    @property
    def view(self) -> memoryview:
        """The file as a buffer."""
        assert self._view is not None, "the map is closed"
        return self._view

    def close(self) -> None:
        """Unmap. A BufferError tells that somebody kept a slice: a bug."""
        if self._view is not None:
            self._view.release()
            self._view = self._bytes = None
            self._map.close()


class RealFile:
    """A file of the operating system."""

    def __init__(self, path: Path, *, create: bool) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        self._path = path
        self._descriptor = os.open(path, flags, 0o600)

    @property
    def path(self) -> Path:
        """The file's name when it was opened."""
        return self._path

    def size(self) -> int:
        """Return its length in bytes."""
        return os.fstat(self._descriptor).st_size

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes from `position`."""
        return os.pread(self._descriptor, length, position)

    def write(self, position: int, data: bytes) -> None:
        """Put `data` at `position`, all of it."""
        done = os.pwrite(self._descriptor, data, position)
        while done < len(data):
            done += os.pwrite(self._descriptor, data[done:], position + done)

    def resize(self, length: int) -> None:
        """Cut the file, or lengthen it by a hole."""
        os.ftruncate(self._descriptor, length)

    def allocate(self, position: int, length: int) -> None:
        """Make the space of a range real, so that touching it cannot fail."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, position, length)
            return
        # Without the call, the only way is to write: what is there already, or zeros.
        end = position + length
        while position < end:
            data = self.read(position, min(_PIECE_BYTES, end - position))
            data = data or bytes(min(_PIECE_BYTES, end - position))
            self.write(position, data)
            position += len(data)

    def map(self) -> MemoryMap:
        """Return the file, as long as it is now, in memory."""
        return MemoryMap(self._descriptor)

    def sync(self) -> None:
        """Return when what was written survives a loss of power."""
        # Not mmap.flush: that holds the interpreter for as long as the disk takes.
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._descriptor)
        else:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; a map of it stays."""
        os.close(self._descriptor)


class RealLock:
    """A `flock`, which ends with the process and counts inside one process too."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise StoreLocked(
                f"{path.parent} is in use by {f'process {holder}' if holder else 'another process'}"
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let another process have the directory."""
        os.close(self._descriptor)


class RealFileSystem:
    """The operating system's files."""

    def open(self, path: Path, *, create: bool = False) -> RealFile:
        """Open a file to read and write."""
        return RealFile(path, create=create)

    def exists(self, path: Path) -> bool:
        """Tell whether a file or folder is there."""
        return path.exists()

    def files(self, folder: Path) -> list[str]:
        """Return the names of the plain files in `folder`, sorted."""
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
        return []

    def folders(self, folder: Path) -> list[str]:
        """Return the names of the folders in `folder`, sorted."""
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        return []

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it; what is new survives a loss of power."""
        if folder.exists():
            return
        self.make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        self.sync_folder(folder.parent)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name, at once."""
        old.rename(new)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder that is empty."""
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()

    def sync_folder(self, folder: Path) -> None:
        """Return when the names in `folder` survive a loss of power."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> RealLock:
        """Hold the file at `path` against every other process."""
        return RealLock(path)
