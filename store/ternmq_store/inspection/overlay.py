"""A file system over another one: changes stay in memory, and the lower file system is only read.

So the code that opens a store can run on a store that must not be written.
"""

import errno
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ternmq_store.disk.directory_lock import Node
from ternmq_store.disk.filesystem import File, FileSystem, Region

MEMORY_BYTES_MAX: Final = 1 << 30
"""Limit of bytes that are built in memory: the consume queues of some 50 million messages."""


class _Content:
    """Content of a file: that of the file below, until a change."""

    def __init__(self, below: FileSystem | None, path: Path) -> None:
        self._below = below
        self._path = path
        self._region: Region | None = None
        self.data: NDArray[np.uint8] | None = None if below else np.zeros(0, dtype=np.uint8)

    def _opened(self) -> closing[File]:
        assert self._below is not None
        return closing(self._below.open(self._path, read_only=True))

    def size(self) -> int:
        if self.data is not None:
            return len(self.data)
        with self._opened() as file:
            return file.size()

    def read(self, position: int, length: int) -> bytes:
        if self.data is not None:
            return self.data[position : position + length].tobytes()
        with self._opened() as file:
            return file.read(position, length)

    def changeable(self) -> NDArray[np.uint8]:
        """Return the content for changes, which do not reach the file below."""
        if self.data is None:
            with self._opened() as file:
                self._region = file.map() if file.size() else None
            self.data = np.zeros(0, dtype=np.uint8) if self._region is None else self._region.bytes
        return self.data

    def resize(self, length: int) -> None:
        old = self.changeable()
        if length > len(old):
            self.data = np.zeros(length, dtype=np.uint8)
            self.data[: len(old)] = old
        else:
            self.data = old[:length]

    def close(self) -> None:
        self.data = None
        region, self._region = self._region, None
        if region is not None:
            with suppress(BufferError):  # the last slice in use closes it later
                region.close()


class OverlayRegion:
    """A file of an overlay, in memory."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self.bytes = data
        self.view = data.data

    def forget(self, position: int, length: int) -> None:
        """Return: changed memory cannot be read again."""

    def close(self) -> None:
        """Release the view; the file retains its content."""
        self.view.release()
        del self.bytes


class OverlayFile:
    """An open file of an overlay."""

    def __init__(self, files: "OverlayFileSystem", path: Path, content: _Content) -> None:
        self._files = files
        self._content = content
        self.path = path
        self.size, self.read, self.resize = content.size, content.read, content.resize

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Write `data` at `position`, in memory."""
        end = position + len(data)
        if end > self._content.size():
            self._content.resize(end)
        self._content.changeable()[position:end] = np.frombuffer(data, dtype=np.uint8)

    def allocate(self, position: int, length: int) -> None:
        """Count memory for a range.

        Raises:
            OSError: ENOMEM beyond the limit of an overlay.
        """
        self._files.take(length)
        if position + length > self._content.size():
            self._content.resize(position + length)

    def hole_after(self, position: int) -> int:
        """Return the file's length: there are no holes."""
        return self._content.size()

    def map(self) -> OverlayRegion:
        """Return the file in memory."""
        return OverlayRegion(self._content.changeable())

    def sync(self) -> None:
        """Return at once, without a disk."""

    def will_need(self, position: int, length: int) -> None:
        """Return at once, without a disk."""

    @property
    def node(self) -> Node:
        """Identity of the file, which no preview needs."""
        return (0, 0)

    def is_in_place(self) -> bool:
        """Return True: no other program sees the file."""
        return True

    def park(self) -> None:
        """Return at once, without a descriptor."""

    def close(self) -> None:
        """Close the file; its changes remain."""


class OverlayLock:
    """The lock of a directory in memory."""

    def is_in_place(self) -> bool:
        """Return True: the lock has no file."""
        return True

    def release(self) -> None:
        """Return at once, without a disk."""


class OverlayFileSystem:
    """Files of another file system with changes in memory. Owned by one preview, on its thread.

    Attributes:
        removed: Files of the file system below that were removed here, in order.
    """

    def __init__(self, below: FileSystem) -> None:
        self._below = below
        self.is_locked, self.space = below.is_locked, below.space
        self._contents: dict[Path, _Content | None] = {}
        self._folders: dict[Path, bool] = {}
        self._taken = 0
        self.removed: list[Path] = []

    def take(self, length: int) -> None:
        """Count memory.

        Raises:
            OSError: ENOMEM beyond `MEMORY_BYTES_MAX`.
        """
        self._taken += length
        if self._taken > MEMORY_BYTES_MAX:
            raise OSError(
                errno.ENOMEM, f"it takes more than {MEMORY_BYTES_MAX >> 20} MiB of memory"
            )

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> OverlayFile:
        """Open a file, which may be changed even if `read_only`."""
        content = self._contents.get(path)
        if content is None:
            if path not in self._contents and self._below.exists(path):
                content = _Content(self._below, path)
            elif create:
                content = _Content(None, path)
            else:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            self._contents[path] = content
        return OverlayFile(self, path, content)

    def exists(self, path: Path) -> bool:
        """Return whether a file or folder exists."""
        if path in self._contents:
            return self._contents[path] is not None
        known = self._folders.get(path)
        return self._below.exists(path) if known is None else known

    def files(self, folder: Path) -> list[str]:
        """Return the names of the plain files in `folder`, sorted."""
        names = set(self._below.files(folder))
        for path, content in self._contents.items():
            if path.parent == folder:
                names.discard(path.name) if content is None else names.add(path.name)
        return sorted(names)

    def folders(self, folder: Path) -> list[str]:
        """Return the names of the folders in `folder`, sorted."""
        names = set(self._below.folders(folder))
        for path, is_there in self._folders.items():
            if path.parent == folder:
                names.add(path.name) if is_there else names.discard(path.name)
        return sorted(names)

    def nodes_in(self, folder: Path) -> Mapping[str, Node]:
        """Return which file each name in `folder` leads to."""
        return dict.fromkeys(self.files(folder), (0, 0))

    def make_folder(self, folder: Path, *, is_durable: bool = True) -> None:
        """Make a folder and its parents."""
        if not self.exists(folder):
            self.make_folder(folder.parent)
            self._folders[folder] = True

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file."""
        self.open(old)
        self._contents[new], self._contents[old] = self._contents[old], None

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder that is empty."""
        if path in self._contents or not self._is_folder(path):
            if not self.exists(path):
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            if self._below.exists(path):
                self.removed.append(path)
            self._contents[path] = None
            return
        if self.files(path) or self.folders(path):
            raise OSError(errno.ENOTEMPTY, "not empty", str(path))
        self._folders[path] = False

    def _is_folder(self, path: Path) -> bool:
        return self._folders.get(path, False) or path.name in self._below.folders(path.parent)

    def sync_folder(self, folder: Path) -> None:
        """Return at once, without a disk."""

    def lock(self, path: Path) -> OverlayLock:
        """Return a lock of a directory in memory."""
        return OverlayLock()

    def rest(self, seconds: float) -> None:
        """Return: no disk is involved."""

    def close(self) -> None:
        """Drop all changes."""
        for content in self._contents.values():
            if content is not None:
                content.close()
        self._contents.clear()
