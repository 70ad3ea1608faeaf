"""File system of the store: its protocols, and the one of the operating system.

No other module of the project imports `mmap`. Tests put a file system in memory, or one that
forgets bytes that were not synced, behind the protocols.
"""

import contextlib
import errno
import mmap
import os
import resource
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ternmq_store.disk.directory_lock import Node, RealLock, is_locked, node_at, node_of, nodes_in

_PIECE_BYTES: Final = 1 << 20
_SPARE_DESCRIPTORS: Final = 512
_READ_ONLY: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_READ_WRITE: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


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

    def forget(self, position: int, length: int) -> None:
        """Release the memory of a range; it is read again when it is touched."""
        ...

    def close(self) -> None:
        """Unmap the file. No array or slice of it may be left."""
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

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Write all of `data` at `position`."""
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

    def hole_after(self, position: int) -> int:
        """Return where, from `position` on, the file first has no blocks of its own.

        Blocks that were only reserved do not count. The file's length where it has them all, or
        where the system does not tell.
        """
        ...

    def map(self) -> Region:
        """Return the file, as long as it is now, in memory.

        Raises:
            OSError: EMFILE when too many are mapped; it names the limit.
        """
        ...

    def sync(self) -> None:
        """Return when what was written, through the map too, survives a loss of power."""
        ...

    def will_need(self, position: int, length: int) -> None:
        """Tell the disk that a range will be read soon, without a wait; it may have no effect."""
        ...

    @property
    def node(self) -> Node:
        """Identity of the file, whatever its name."""
        ...

    def is_in_place(self) -> bool:
        """Return whether the file's name still leads to it. Any thread may ask."""
        ...

    def park(self) -> None:
        """Close the descriptor; a map of the file stays.

        Each later call opens the file again for as long as it runs.
        """
        ...

    def close(self) -> None:
        """Close the file; a map of it stays."""
        ...


class Lock(Protocol):
    """A held lock of a directory."""

    def is_in_place(self) -> bool:
        """Return whether the name of the lock's file still leads to it. Any thread may ask."""
        ...

    def release(self) -> None:
        """Release the directory to other processes."""
        ...


class FileSystem(Protocol):
    """Files and folders by path."""

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file to read and write. With `create`, one that need not exist.

        With `read_only`, one that the process may not be allowed to write: what would change it
        raises OSError, and what is put into a map of it stays in memory.
        """
        ...

    def exists(self, path: Path) -> bool:
        """Return whether a file or folder is there.

        Raises:
            OSError: The system does not tell.
        """
        ...

    def files(self, folder: Path) -> list[str]:
        """Return the names of the plain files in `folder`, sorted; none if it is not there."""
        ...

    def folders(self, folder: Path) -> list[str]:
        """Return the names of the folders in `folder`, sorted; none if it is not there."""
        ...

    def nodes_in(self, folder: Path) -> Mapping[str, Node]:
        """Return which file each name in `folder` leads to; none if it is not there.

        Raises:
            OSError: The system does not tell.
        """
        ...

    def make_folder(self, folder: Path, *, is_durable: bool = True) -> None:
        """Make a folder and those above it; what is new survives a loss of power.

        Not `is_durable`, it does so once the folders above it are synced.
        """
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file, at once."""
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

    def is_locked(self, path: Path) -> bool:
        """Return whether a process holds the lock at `path`, without a try to take it."""
        ...

    def used_share(self, folder: Path) -> float:
        """Return how much of the disk that holds `folder` is in use: 0 to 1."""
        ...

    def rest(self, seconds: float) -> None:
        """Pause, so that others have the disk. Not for the store's own thread."""
        ...


class MapBudget:
    """Count and limit of mapped files. Owned by a `RealFileSystem`; any thread may use it.

    Each map keeps a descriptor. Some are left for connections, for the tables and for syncs: a
    process without any can do nothing but fail.
    """

    def __init__(self) -> None:
        # A set, because adding and discarding are each done at once, whatever the thread.
        self._maps: set[int] = set()

    @property
    def count(self) -> int:
        """Count of mapped files."""
        return len(self._maps)

    def take(self, name: int) -> None:
        """Count one more map, called `name`.

        Raises:
            OSError: EMFILE; names the limit.
        """
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit != resource.RLIM_INFINITY:
            most = limit - min(_SPARE_DESCRIPTORS, limit // 4)
            if self.count >= most:
                raise OSError(
                    errno.EMFILE,
                    f"{self.count} files are mapped, and the limit of open files is {limit}: "
                    "raise it (ulimit -n)",
                )
        self._maps.add(name)

    def give_back(self, name: int) -> None:
        """Count that map no more."""
        self._maps.discard(name)


class MemoryMap:
    """A real file, mapped: shared, or so that no change reaches it."""

    def __init__(self, descriptor: int, budget: MapBudget, *, is_private: bool = False) -> None:
        access = mmap.ACCESS_COPY if is_private else mmap.ACCESS_WRITE
        budget.take(id(self))
        try:
            self._map = mmap.mmap(descriptor, 0, access=access)
        except BaseException:
            budget.give_back(id(self))
            raise
        self._budget = budget
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

    def forget(self, position: int, length: int) -> None:
        """Release the memory of a range."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, position, length)

    def close(self) -> None:
        """Unmap. A BufferError tells that somebody kept a slice: a bug."""
        if self._view is not None:
            self._view.release()
            self._view = self._bytes = None
            self._map.close()
            self._budget.give_back(id(self))


class RealFile:
    """A file of the operating system."""

    def __init__(
        self, path: Path, budget: MapBudget, *, create: bool, read_only: bool = False
    ) -> None:
        self._path = path
        self._budget = budget
        self._flags = _READ_ONLY if read_only else _READ_WRITE
        flags = self._flags | (os.O_CREAT if create else 0)
        self._descriptor: int | None = os.open(path, flags, 0o600)
        self.node = node_of(os.fstat(self._descriptor))

    @property
    def path(self) -> Path:
        """The file's name when it was opened."""
        return self._path

    @contextlib.contextmanager
    def _open(self) -> Generator[int]:
        """Yield the descriptor, or a new one for the block when the file is parked."""
        if self._descriptor is not None:
            yield self._descriptor
            return
        descriptor = os.open(self._path, self._flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def size(self) -> int:
        """Return its length in bytes."""
        with self._open() as descriptor:
            return os.fstat(descriptor).st_size

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes from `position`."""
        with self._open() as descriptor:
            return os.pread(descriptor, length, position)

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Write all of `data` at `position`."""
        with self._open() as descriptor:
            done = os.pwrite(descriptor, data, position)
            while done < len(data):
                done += os.pwrite(descriptor, data[done:], position + done)

    def resize(self, length: int) -> None:
        """Cut the file, or lengthen it by a hole."""
        with self._open() as descriptor:
            os.ftruncate(descriptor, length)

    def allocate(self, position: int, length: int) -> None:
        """Make the space of a range real, so that touching it cannot fail."""
        if hasattr(os, "posix_fallocate"):
            with self._open() as descriptor:
                os.posix_fallocate(descriptor, position, length)
            return
        # Without the call, the only way is to write: what is there already, or zeros.
        end = position + length
        while position < end:
            data = self.read(position, min(_PIECE_BYTES, end - position))
            data = data or bytes(min(_PIECE_BYTES, end - position))
            self.write(position, data)
            position += len(data)

    def hole_after(self, position: int) -> int:
        """Return where, from `position` on, the file first has no blocks of its own."""
        with self._open() as descriptor:
            length = os.fstat(descriptor).st_size
            if not hasattr(os, "SEEK_HOLE") or position >= length:
                return length
            return os.lseek(descriptor, position, os.SEEK_HOLE)

    def map(self) -> MemoryMap:
        """Return the file, as long as it is now, in memory."""
        with self._open() as descriptor:
            is_private = self._flags == _READ_ONLY
            return MemoryMap(descriptor, self._budget, is_private=is_private)

    def sync(self) -> None:
        """Return when what was written survives a loss of power."""
        # Not mmap.flush: that holds the interpreter for as long as the disk takes.
        with self._open() as descriptor:
            if hasattr(os, "fdatasync"):
                os.fdatasync(descriptor)
            else:
                os.fsync(descriptor)

    def will_need(self, position: int, length: int) -> None:
        """Tell the disk that a range will be read soon."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError), self._open() as descriptor:
                os.posix_fadvise(descriptor, position, length, os.POSIX_FADV_WILLNEED)

    def is_in_place(self) -> bool:
        """Return whether the file's name still leads to it."""
        return node_at(self._path) == self.node

    def park(self) -> None:
        """Close the descriptor; a map of the file stays."""
        self.close()

    def close(self) -> None:
        """Close the file; a map of it stays."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _no_rest(_seconds: float) -> None:
    return


class RealFileSystem:
    """The operating system's files.

    Args:
        rest: Sleeps, in the thread that fills files ahead; left out, that goes on without a pause.
    """

    def __init__(self, rest: Callable[[float], None] = _no_rest) -> None:
        self._rest = rest
        self._budget = MapBudget()

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> RealFile:
        """Open a file to read and write, or to read."""
        return RealFile(path, self._budget, create=create, read_only=read_only)

    def exists(self, path: Path) -> bool:
        """Return whether a file or folder is there."""
        try:
            path.lstat()
        except FileNotFoundError:
            return False
        return True

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

    def nodes_in(self, folder: Path) -> Mapping[str, Node]:
        """Return which file each name in `folder` leads to. A thousand take 0.6 ms."""
        return nodes_in(folder)

    def make_folder(self, folder: Path, *, is_durable: bool = True) -> None:
        """Make a folder and those above it; what is new survives a loss of power."""
        if folder.exists():
            return
        self.make_folder(folder.parent, is_durable=is_durable)
        folder.mkdir(mode=0o700, exist_ok=True)
        if not is_durable:
            return
        try:
            self.sync_folder(folder.parent)
        except OSError:
            folder.rmdir()  # or the next attempt would find it and take it for safe
            raise

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file, at once."""
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
        return RealLock(path, self._rest)

    def is_locked(self, path: Path) -> bool:
        """Return whether a process holds the lock at `path`, where the system can tell."""
        return is_locked(path)

    def used_share(self, folder: Path) -> float:
        """Return how much of the disk is in use, of what an ordinary user may have."""
        stats = os.statvfs(folder)
        used = stats.f_blocks - stats.f_bfree
        return used / max(used + stats.f_bavail, 1)

    def rest(self, seconds: float) -> None:
        """Pause, so that others have the disk."""
        self._rest(seconds)
