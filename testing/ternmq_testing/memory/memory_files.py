"""Disks for tests: one in memory, and one that loses what was not synced when the power goes."""

import errno
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.errors import StoreLocked
from ternmq_store.disk.disk_space import DiskSpace

Bytes = NDArray[np.uint8]

SECTOR_BYTES = 512


class PowerLost(BaseException):
    """The machine is off: nothing more reaches the disk."""


def _zeros(length: int = 0) -> Bytes:
    return np.zeros(length, dtype=np.uint8)


@dataclass(eq=False)
class Node:
    """The content of a file: what programs see, and what the disk has."""

    data: Bytes = field(default_factory=_zeros)
    disk: Bytes = field(default_factory=_zeros)
    real_bytes: int = 0
    written_bytes: int = 0
    """Up to where it was written from its beginning, other than through a map."""

    maps: int = 0
    touched_bytes: int = field(init=False)
    """End of all that was ever written, or may have been through a map; zeros follow."""

    def __post_init__(self) -> None:
        self.touched_bytes = len(self.data)


def _names_in(folder: Path, paths: Iterable[Path]) -> list[str]:
    prefix = f"{folder}/".replace("//", "/")
    below = [text[len(prefix) :] for text in map(str, paths) if text.startswith(prefix)]
    return sorted(name for name in below if name and "/" not in name)


Entry = Node | None
"""Meaning of a name: a file, or None for nothing."""


class MemoryRegion:
    """A file of a `MemoryFileSystem`, mapped."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.bytes = node.data
        self.view = node.data.data
        node.touched_bytes = max(node.touched_bytes, len(node.data))
        node.maps += 1

    def forget(self, position: int, length: int) -> None:
        """Give back the memory of a range: there is none."""

    def close(self) -> None:
        """Let go of the file."""
        self.view.release()
        self.bytes = _zeros(0)
        self._node.maps -= 1


class MemoryFile:
    """An open file of a `MemoryFileSystem`."""

    def __init__(
        self, files: "MemoryFileSystem", path: Path, node: Node, *, read_only: bool = False
    ) -> None:
        self._files = files
        self._node = node
        self._read_only = read_only
        self.path = path

    def size(self) -> int:
        """Return its length."""
        return len(self._node.data)

    def read(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes."""
        if self._files.read_error is not None:
            raise self._files.read_error
        return self._node.data[position : position + length].tobytes()

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Put `data` at `position`."""
        self._files.happen()
        behind = position + len(data) - max(len(self._node.data), self._node.real_bytes)
        if behind > 0:
            self._files.take_space(behind)
            self._node.real_bytes = position + len(data)
        self._lengthen(position + len(data))
        if position <= self._node.written_bytes:
            self._node.written_bytes = max(self._node.written_bytes, position + len(data))
        self._node.touched_bytes = max(self._node.touched_bytes, position + len(data))
        self._node.data[position : position + len(data)] = np.frombuffer(data, dtype=np.uint8)

    def resize(self, length: int) -> None:
        """Cut the file or lengthen it."""
        self._files.happen()
        assert not self._node.maps, "a mapped file keeps its length"
        self._node.data = self._node.data[:length].copy()
        self._files.give_space(self._node.real_bytes - length)
        self._node.real_bytes = min(self._node.real_bytes, length)
        self._lengthen(length)

    def allocate(self, position: int, length: int) -> None:
        """Take space from the disk."""
        self._files.happen()
        wanted = max(position + length - self._node.real_bytes, 0)
        self._files.take_space(wanted)
        self._node.real_bytes += wanted
        self._lengthen(position + length)

    def hole_after(self, position: int) -> int:
        """Return where the file begins to be only reserved."""
        written = self._node.written_bytes
        return max(position, min(written, len(self._node.data)))

    def map(self) -> MemoryRegion:
        """Map the file; one that is only read, so that no change reaches it."""
        return MemoryRegion(Node(self._node.data.copy()) if self._read_only else self._node)

    def sync(self) -> None:
        """Bring the content to the disk."""
        self._files.happen()
        self._files.syncs += 1
        if self._files.sync_error is not None:
            raise self._files.sync_error
        self._files.keep(self._node)

    def will_need(self, position: int, length: int) -> None:
        """Count the hints."""
        self._files.hints += 1

    @property
    def node(self) -> tuple[int, int]:
        """Identity of the file."""
        return (0, id(self._node))

    def is_in_place(self) -> bool:
        """Tell whether the name still leads to this file."""
        return self._files.nodes.get(self.path) is self._node

    def park(self) -> None:
        """Give the descriptor back: there is none."""

    def close(self) -> None:
        """Close the file."""

    def _lengthen(self, length: int) -> None:
        if length > len(self._node.data):
            assert not self._node.maps, "a mapped file keeps its length"
            longer = _zeros(length)
            longer[: len(self._node.data)] = self._node.data
            self._node.data = longer


class MemoryLock:
    """A lock of a `MemoryFileSystem`."""

    def __init__(self, files: "MemoryFileSystem", path: Path) -> None:
        self._files, self._path = files, path

    def is_in_place(self) -> bool:
        """Tell that it is: it has no file."""
        return True

    def release(self) -> None:
        """Let another one have it."""
        self._files.locks.discard(self._path)


class MemoryFileSystem:
    """Files in memory.

    Attributes:
        space_bytes: Free space of the disk; None = without end.
        sync_error: Raised by every sync, when set.
        syncs: Number of syncs.
        used: The share of the disk that is in use, as it tells.
        rests: Number of pauses for others.
        read_error: Raised by every read but those through a map, when set.
        hints: Number of hints about reads.
        unreadable: Raised when a file of that name is opened.
    """

    def __init__(self) -> None:
        self.nodes: dict[Path, Node] = {}
        self.made_folders: set[Path] = {Path("/")}
        self.locks: set[Path] = set()
        self.space_bytes: int | None = None
        self.sync_error: OSError | None = None
        self.syncs = 0
        self.used = 0.0
        self.rests = 0
        self.hints = 0
        self.read_error: OSError | None = None
        self.unreadable: dict[Path, OSError] = {}

    def happen(self) -> None:
        """Something is about to change: a place for a subclass to cut in."""

    def keep(self, node: Node) -> None:
        """Bring the content of `node` to the disk: here it is there."""

    def record(self, *changes: tuple[Path, Entry]) -> None:
        """Give names another meaning, all at once."""
        for path, entry in changes:
            if entry is None:
                self.nodes.pop(path, None)
            else:
                self.nodes[path] = entry

    def take_space(self, length: int) -> None:
        """Take `length` bytes from the disk."""
        if self.space_bytes is not None:
            if length > self.space_bytes:
                raise OSError(errno.ENOSPC, "the disk is full")
            self.space_bytes -= length

    def give_space(self, length: int) -> None:
        """Give `length` bytes back to the disk, if there are any."""
        if self.space_bytes is not None:
            self.space_bytes += max(length, 0)

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        """Open a file."""
        assert not (create and read_only)
        if path in self.unreadable:
            raise self.unreadable[path]
        if path not in self.nodes:
            if not create or path.parent not in self.made_folders:
                raise FileNotFoundError(path)
            self.happen()
            self.record((path, Node()))
        return MemoryFile(self, path, self.nodes[path], read_only=read_only)

    def exists(self, path: Path) -> bool:
        """Tell whether a file or folder is there."""
        return path in self.nodes or path in self.made_folders

    def files(self, folder: Path) -> list[str]:
        """Return the names of files in `folder`, sorted."""
        return _names_in(folder, self.nodes)

    def folders(self, folder: Path) -> list[str]:
        """Return the names of folders in `folder`, sorted."""
        return _names_in(folder, self.made_folders)

    def nodes_in(self, folder: Path) -> dict[str, tuple[int, int]]:
        """Return which file each name in `folder` leads to."""
        return {name: (0, id(self.nodes[folder / name])) for name in self.files(folder)}

    def make_folder(self, folder: Path, *, is_durable: bool = True) -> None:
        """Make a folder and those above it."""
        self.happen()
        self.made_folders.update(self.missing_folders(folder))

    def missing_folders(self, folder: Path) -> list[Path]:
        """Return a folder and those above it that are not there."""
        made = self.made_folders
        return list(takewhile(lambda each: each not in made, chain((folder,), folder.parents)))

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name."""
        self.happen()
        if new in self.nodes:
            self.give_space(self.nodes[new].real_bytes)
        self.record((new, self.nodes[old]), (old, None))

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder that is empty."""
        self.happen()
        if path in self.made_folders:
            if self.files(path) or self.folders(path):
                raise OSError(errno.ENOTEMPTY, "not empty", str(path))
            self.made_folders.discard(path)
        elif path in self.nodes:
            self.give_space(self.nodes[path].real_bytes)
            self.record((path, None))
        else:
            raise FileNotFoundError(path)

    def sync_folder(self, folder: Path) -> None:
        """Bring the names in `folder` to the disk."""
        if folder not in self.made_folders:
            raise FileNotFoundError(folder)
        self.happen()

    def lock(self, path: Path) -> MemoryLock:
        """Hold the lock at `path`."""
        if path in self.locks:
            raise StoreLocked(f"{path.parent} is in use by this process")
        self.locks.add(path)
        return MemoryLock(self, path)

    def is_locked(self, path: Path) -> bool:
        """Tell whether somebody holds the lock at `path`."""
        return path in self.locks

    def space(self, folder: Path) -> DiskSpace:
        """Return the space of a disk of 1 TiB with the part `used`."""
        return DiskSpace(self.used, int((1 - self.used) * (1 << 40)))

    def forget(self) -> None:
        """Give back the memory of all files. The file system is not used any more."""
        for node in self.nodes.values():
            node.data = node.disk = _zeros(0)
        self.nodes.clear()

    def rest(self, seconds: float) -> None:
        """Count the rests."""
        self.rests += 1


class _Change(NamedTuple):
    """Names that get another meaning, all at once."""

    entries: tuple[tuple[Path, Entry], ...]
    folders: set[str]


def _folder_of(path: Path) -> str:
    # A path remembers its text, while its parent is a new path each time.
    return str(path).rpartition("/")[0] or "/"


class PowerLossFileSystem(MemoryFileSystem):
    """Files whose content and names reach the disk when they are synced, or before, or not.

    Set `happenings_left` to let the power go at a chosen change: `PowerLost` comes out of it, and
    out of every later one. `lose_power` then gives the file system that the next start finds.
    """

    def __init__(self) -> None:
        super().__init__()
        self._on_disk: dict[Path, Node] = {}
        self._waiting: list[_Change] = []
        self._late_folders: set[Path] = set()
        self.happenings_left: int | None = None

    def make_folder(self, folder: Path, *, is_durable: bool = True) -> None:
        """Make a folder and those above it; a late one may go with the power, and all in it."""
        if not is_durable:
            self._late_folders.update(self.missing_folders(folder))
        super().make_folder(folder, is_durable=is_durable)

    def happen(self) -> None:
        """Count a change; the power goes when there were enough."""
        if self.happenings_left is not None:
            if self.happenings_left <= 0:
                raise PowerLost
            self.happenings_left -= 1

    def keep(self, node: Node) -> None:
        """Bring the content of `node` to the disk."""
        if len(node.disk) != len(node.data):
            node.disk = _zeros(len(node.data))  # takes memory only where it is written
        node.disk[: node.touched_bytes] = node.data[: node.touched_bytes]

    def record(self, *changes: tuple[Path, Entry]) -> None:
        """Give names another meaning; the disk learns of it when their folder is synced."""
        super().record(*changes)
        self._waiting.append(_Change(changes, {_folder_of(path) for path, _ in changes}))

    def sync_folder(self, folder: Path) -> None:
        """Bring every change of a name in `folder` to the disk."""
        super().sync_folder(folder)
        name = str(folder)
        self._late_folders = {path for path in self._late_folders if _folder_of(path) != name}
        self._keep_names(folder)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder that is empty."""
        is_folder = path in self.made_folders
        super().remove(path)
        if is_folder:  # one that still has a name on the disk does not go away
            self._keep_names(path)

    def _keep_names(self, folder: Path) -> None:
        waiting, name = self._waiting, str(folder)
        self._waiting = []
        for change in waiting:
            if name in change.folders:
                _apply(self._on_disk, change.entries)
            else:
                self._waiting.append(change)

    def restart(self) -> "PowerLossFileSystem":
        """Return what the next process finds after this one was killed: all, synced or not."""
        after = PowerLossFileSystem()
        after.made_folders = self.made_folders
        after.nodes = self.nodes
        after._on_disk = self._on_disk
        after._waiting = self._waiting
        after._late_folders = self._late_folders
        return after

    def lose_power(
        self, chance: random.Random, *, lucky: float | None = None
    ) -> "PowerLossFileSystem":
        """Return what is left: of the sectors and names not synced, any.

        Args:
            chance: Draws what is left.
            lucky: Probability with which each is left; None = drawn.
        """
        after = PowerLossFileSystem()
        names = dict(self._on_disk)
        lucky = chance.choice((0.0, 0.5, 0.9, 1.0)) if lucky is None else lucky
        lost = {path for path in sorted(self._late_folders) if chance.random() >= lucky}
        after.made_folders = {
            path for path in self.made_folders if lost.isdisjoint((path, *path.parents))
        }
        for change in self._waiting:
            if chance.random() < lucky:
                _apply(names, change.entries)
        for path, node in names.items():
            if path.parent not in after.made_folders:
                continue
            data = _surviving(node, chance, lucky)
            after.nodes[path] = after._on_disk[path] = Node(data, data.copy(), len(data))
        return after


def _apply(names: dict[Path, Node], changes: tuple[tuple[Path, Entry], ...]) -> None:
    for path, entry in changes:
        if entry is None:
            names.pop(path, None)
        else:
            names[path] = entry


def _surviving(node: Node, chance: random.Random, lucky: float) -> Bytes:
    """Return the disk's content, with any of the sectors that it has not got yet."""
    has_length = len(node.data) == len(node.disk) or chance.random() < lucky
    data = _zeros(len(node.data) if has_length else len(node.disk))
    kept = min(len(data), len(node.disk))
    data[:kept] = node.disk[:kept]
    seen = node.data[: len(data)]
    different = np.flatnonzero(data[: len(seen)] != seen) // SECTOR_BYTES
    for sector in np.unique(different).tolist():
        if chance.random() < lucky:
            begin = sector * SECTOR_BYTES
            end = min(begin + SECTOR_BYTES, len(seen))
            data[begin:end] = seen[begin:end]
    return data
