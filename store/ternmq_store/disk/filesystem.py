"""File system of the store: its protocols, and the implementation for the operating system.

No other module of the project imports `mmap`. Tests implement the protocols in memory, or by a file
system that loses unsynced bytes.
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
from ternmq_store.disk.disk_space import DiskSpace, disk_space

_PIECE_BYTES: Final = 1 << 20
_SPARE_DESCRIPTORS: Final = 512
_READ_ONLY: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_READ_WRITE: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class Region(Protocol):
    """Mapped file. Changes of `bytes` are in the file, and on the disk after a sync."""

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """File as an array."""
        ...

    @property
    def view(self) -> memoryview:
        """File as a buffer, for slices that become `bytes`."""
        ...

    def forget(self, position: int, length: int) -> None:
        """Release the memory of a range. The next access reads it again."""
        ...

    def close(self) -> None:
        """Unmap the file. No array or slice of it may exist."""
        ...


class File(Protocol):
    """Open file. `sync` may run in another thread than the other methods."""

    @property
    def path(self) -> Path:
        """Path of the file at its opening."""
        ...

    def size(self) -> int:
        """Return the length of the file, bytes."""
        ...

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes from `position`, without the map."""
        ...

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Write all of `data` at `position`."""
        ...

    def resize(self, length: int) -> None:
        """Cut the file, or extend it by a hole."""
        ...

    def allocate(self, position: int, length: int) -> None:
        """Allocate the space of a range, so that a write to the map cannot fail.

        Raises:
            OSError: ENOSPC: the disk is full. A part of the range may be allocated.
        """
        ...

    def hole_after(self, position: int) -> int:
        """Return the begin of the first hole from `position` on.

        Reserved blocks count as a hole. The result is the file's length without a hole, or if the
        system cannot find holes.
        """
        ...

    def map(self) -> Region:
        """Map the file with its present length.

        Raises:
            OSError: EMFILE: too many files are mapped. The error names the limit.
        """
        ...

    def sync(self) -> None:
        """Sync the file and its map, so that the content survives a power loss."""
        ...

    def will_need(self, position: int, length: int) -> None:
        """Advise the system of a read of a range soon. The call does not wait."""
        ...

    @property
    def node(self) -> Node:
        """Identity of the file, independent of its name."""
        ...

    def is_in_place(self) -> bool:
        """Return whether the file still has its name. Any thread may call it."""
        ...

    def park(self) -> None:
        """Close the descriptor. A map of the file stays.

        Each later call opens the file for its own duration.
        """
        ...

    def close(self) -> None:
        """Close the file. A map of it stays."""
        ...


class Lock(Protocol):
    """Held lock of a directory."""

    def is_in_place(self) -> bool:
        """Return whether the lock's file still has its name. Any thread may call it."""
        ...

    def release(self) -> None:
        """Release the directory to other processes."""
        ...


class FileSystem(Protocol):
    """Files and folders by path."""

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file for reading and writing. `create` = a missing file is created.

        With `read_only` the process needs no permission to write: changes raise OSError, and
        changes of a map stay in memory.
        """
        ...

    def exists(self, path: Path) -> bool:
        """Return whether a file or folder exists.

        Raises:
            OSError: The system cannot read the path.
        """
        ...

    def files(self, folder: Path) -> list[str]:
        """Return the names of the plain files in `folder`, sorted; empty without the folder."""
        ...

    def folders(self, folder: Path) -> list[str]:
        """Return the names of the folders in `folder`, sorted; empty without the folder."""
        ...

    def nodes_in(self, folder: Path) -> Mapping[str, Node]:
        """Return the identity of each file in `folder` by name; empty without the folder.

        Raises:
            OSError: The system cannot read the folder.
        """
        ...

    def make_folder(self, folder: Path, *, is_durable: bool = True) -> None:
        """Create a folder and its missing parents, which survive a power loss.

        Without `is_durable` they survive it after a sync of the folders above them.
        """
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file atomically."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file or an empty folder."""
        ...

    def sync_folder(self, folder: Path) -> None:
        """Sync `folder`, so that its names survive a power loss."""
        ...

    def lock(self, path: Path) -> Lock:
        """Lock the directory of the file at `path` against other processes.

        Raises:
            StoreLocked: Another owner has the lock. The error names the folder and the owner.
        """
        ...

    def is_locked(self, path: Path) -> bool:
        """Return whether a process holds the lock at `path`. The call does not lock it."""
        ...

    def space(self, folder: Path) -> DiskSpace:
        """Return the space of the disk with `folder`."""
        ...

    def rest(self, seconds: float) -> None:
        """Pause, so that other tasks can use the disk. Not for the store's own thread."""
        ...


class MapBudget:
    """Number and limit of mapped files. Owned by a `RealFileSystem`; any thread may use it.

    Each map has a descriptor. The limit leaves descriptors for connections, tables and syncs.
    """

    def __init__(self) -> None:
        # A set, because adding and discarding are each done at once, in any thread.
        self._maps: set[int] = set()

    @property
    def count(self) -> int:
        """Number of mapped files."""
        return len(self._maps)

    def take(self, name: int) -> None:
        """Count one more map, with the number `name`.

        Raises:
            OSError: EMFILE: the limit is reached. The error names it.
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
        """Stop counting the map `name`."""
        self._maps.discard(name)


class MemoryMap:
    """Mapped file of the operating system: shared, or private without changes of the file."""

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
        """File as an array."""
        assert self._bytes is not None, "the map is closed"
        return self._bytes

    @property
    def view(self) -> memoryview:
        """File as a buffer."""
        assert self._view is not None, "the map is closed"
        return self._view

    def forget(self, position: int, length: int) -> None:
        """Release the memory of a range."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, position, length)

    def close(self) -> None:
        """Unmap the file. A BufferError means that a slice still exists, which is a bug."""
        if self._view is not None:
            self._view.release()
            self._view = self._bytes = None
            self._map.close()
            self._budget.give_back(id(self))


class RealFile:
    """File of the operating system."""

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
        """Path of the file at its opening."""
        return self._path

    def _open(self) -> contextlib.AbstractContextManager[int]:
        """Return the descriptor; for a parked file, a new one for the block."""
        # A generator in place of `nullcontext` costs as much as a short write.
        open_one = self._descriptor
        return self._reopened() if open_one is None else contextlib.nullcontext(open_one)

    @contextlib.contextmanager
    def _reopened(self) -> Generator[int]:
        descriptor = os.open(self._path, self._flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def size(self) -> int:
        """Return the length of the file, bytes."""
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
        """Cut the file, or extend it by a hole."""
        with self._open() as descriptor:
            os.ftruncate(descriptor, length)

    def allocate(self, position: int, length: int) -> None:
        """Allocate the space of a range, so that a write to the map cannot fail."""
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
        """Return the begin of the first hole from `position` on."""
        with self._open() as descriptor:
            length = os.fstat(descriptor).st_size
            if not hasattr(os, "SEEK_HOLE") or position >= length:
                return length
            return os.lseek(descriptor, position, os.SEEK_HOLE)

    def map(self) -> MemoryMap:
        """Map the file with its present length."""
        with self._open() as descriptor:
            is_private = self._flags == _READ_ONLY
            return MemoryMap(descriptor, self._budget, is_private=is_private)

    def sync(self) -> None:
        """Sync the file, so that its content survives a power loss."""
        # Not mmap.flush: that holds the interpreter for as long as the disk takes.
        with self._open() as descriptor:
            if hasattr(os, "fdatasync"):
                os.fdatasync(descriptor)
            else:
                os.fsync(descriptor)

    def will_need(self, position: int, length: int) -> None:
        """Advise the system of a read of a range soon."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError), self._open() as descriptor:
                os.posix_fadvise(descriptor, position, length, os.POSIX_FADV_WILLNEED)

    def is_in_place(self) -> bool:
        """Return whether the file still has its name."""
        return node_at(self._path) == self.node

    def park(self) -> None:
        """Close the descriptor. A map of the file stays."""
        self.close()

    def close(self) -> None:
        """Close the file. A map of it stays."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _no_rest(_seconds: float) -> None:
    return


class RealFileSystem:
    """File system of the operating system.

    Args:
        rest: Function that sleeps, for the thread that fills files ahead; None = without pauses.
    """

    def __init__(self, rest: Callable[[float], None] = _no_rest) -> None:
        self._rest = rest
        self._budget = MapBudget()

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> RealFile:
        """Open a file for reading and writing, or for reading."""
        return RealFile(path, self._budget, create=create, read_only=read_only)

    def exists(self, path: Path) -> bool:
        """Return whether a file or folder exists."""
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
        """Return the identity of each file in `folder` by name. A thousand files take 0.6 ms."""
        return nodes_in(folder)

    def make_folder(self, folder: Path, *, is_durable: bool = True) -> None:
        """Create a folder and its missing parents, which survive a power loss."""
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
        """Rename a file atomically."""
        old.rename(new)

    def remove(self, path: Path) -> None:
        """Remove a file or an empty folder."""
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()

    def sync_folder(self, folder: Path) -> None:
        """Sync `folder`, so that its names survive a power loss."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> RealLock:
        """Lock the directory of the file at `path` against other processes."""
        return RealLock(path, self._rest)

    def is_locked(self, path: Path) -> bool:
        """Return whether a process holds the lock at `path`; False if it cannot be tested."""
        return is_locked(path)

    def space(self, folder: Path) -> DiskSpace:
        """Return the space of the disk with `folder`."""
        return disk_space(folder)

    def rest(self, seconds: float) -> None:
        """Pause, so that other tasks can use the disk."""
        self._rest(seconds)
