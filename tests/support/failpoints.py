"""A disk on which every step of a store can be the last one, or fail.

A step is a call that changes a file or a name, or one write through a map: between two of them
nothing changes that could be found afterwards.
"""

import errno
from pathlib import Path
from typing import Any

import numpy as np

from ternmq_testing.memory.memory_files import (
    MemoryFile,
    MemoryRegion,
    Node,
    PowerLossFileSystem,
    PowerLost,
)

MAP = "map"
CALL = "call"


class WatchedBytes(np.ndarray[Any, Any]):
    """A mapped file's bytes, each write to which is a step."""

    disk: "FailingDisk | None" = None

    def __array_finalize__(self, source: object) -> None:
        """Let views be watched, too."""
        if isinstance(source, WatchedBytes):
            self.disk = source.disk

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write, unless this is where it ends."""
        if self.disk is not None:
            self.disk.step(MAP)
        super().__setitem__(key, value)


class WatchedRegion(MemoryRegion):
    """A mapped file that is watched."""

    def __init__(self, node: Node, disk: "FailingDisk") -> None:
        super().__init__(node)
        watched = node.data.view(WatchedBytes)
        watched.disk = disk
        self.bytes = watched


class WatchedFile(MemoryFile):
    """An open file whose map is watched."""

    def __init__(self, disk: "FailingDisk", path: Path, node: Node) -> None:
        super().__init__(disk, path, node)
        self._disk = disk

    def map(self) -> WatchedRegion:
        """Map the file."""
        return WatchedRegion(self._node, self._disk)


class FailingDisk(PowerLossFileSystem):
    """Counts the steps; at one of them the process dies, or an I/O error comes out.

    Attributes:
        phase: What is being done: a label for the steps to come.
        steps: The phase and kind of every step there was.
        dies_at: The step that is the last one: it does not happen.
        fails_at: The step that raises EIO and does not happen; later ones do.
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase = ""
        self.steps: list[tuple[str, str]] = []
        self.dies_at: int | None = None
        self.fails_at: int | None = None

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        """Open a file."""
        opened = super().open(path, create=create, read_only=read_only)
        if read_only:
            return opened
        return WatchedFile(self, path, self.nodes[path])

    def happen(self) -> None:
        """Count a call."""
        self.step(CALL)

    def step(self, kind: str) -> None:
        """Count a step."""
        number = len(self.steps)
        self.steps.append((self.phase, kind))
        if self.dies_at is not None and number >= self.dies_at:
            raise PowerLost
        if number == self.fails_at:
            raise OSError(errno.EIO, "the disk failed")
