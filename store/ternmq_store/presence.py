"""Whether an open store's files are still in their folders, from where others may remove them.

A file without a name is written and synced as ever, and is gone with the process. What the store
itself removes is no part of log, queues and index any more before it goes.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from ternmq_store.disk.filesystem import FileSystem, Lock
from ternmq_store.disk.layout import abort_path, checkpoint_path, lock_path, notes_path
from ternmq_store.disk.mapped_file import MappedFile
from ternmq_store.disk.mapped_file_queue import MappedFileQueue
from ternmq_store.disk.watched import WatchedFileSystem
from ternmq_store.recovery.opening import OpenedFiles

_NEWEST: Final = 2
"""Files of the log at which every look looks: the one that is written, and the next."""

_LEAST: Final = 64
_ROUND_LOOKS: Final = 60
"""Older files, queues and index take turns: all within so many looks, and so many at once at least.
139 files took a thread 0.35 ms and the loop 0.14 ms."""

_TRIES: Final = 3
_TRY_PAUSE_S: Final = 0.02
"""A small file that is being replaced has no name for a moment."""

_PASSING: Final = (".bak", ".tmp", ".bad")
"""End the names of what may come and go beside a small file."""


class Place(NamedTuple):
    """A file that has to be in its folder."""

    path: Path
    is_in_place: Callable[[], bool]
    """Blocks."""
    is_current: Callable[[], bool]
    """The store still has the file. Asked on its thread."""


def _always() -> bool:
    return True


@dataclass(slots=True)
class PresenceTask:
    """Look whether files are in place: for a blocking thread; the outcome is in it afterwards."""

    files: FileSystem
    places: Sequence[Place]
    small: frozenset[Path]
    """Files that were there at the look before, and are replaced as a whole."""
    candidates: Sequence[Path]
    """Those that may have come since."""
    folders: Sequence[Path]
    """Folders of further ones."""
    missing: list[Place] = field(default_factory=list[Place])
    found: set[Path] = field(default_factory=set[Path])

    def run(self) -> None:
        """Look at all of them.

        Raises:
            OSError: The system does not tell.
        """
        self.missing = [place for place in self.places if not place.is_in_place()]
        names = ((folder, self.files.files(folder)) for folder in self.folders)
        listed = {path / name for path, below in names for name in below}
        self.found = {path for path in self.candidates if self.files.exists(path)}
        self.found |= {path for path in listed if path.suffix not in _PASSING}
        for path in self.small - self.found:
            if not self._is_there(path):
                self.missing.append(Place(path, _always, _always))

    def _is_there(self, path: Path) -> bool:
        for _ in range(_TRIES):
            if self.files.exists(path):
                return True
            self.files.rest(_TRY_PAUSE_S)
        return False


class Presence:
    """Which files are looked at next. Owned by `MessageStore`, on the store's thread.

    Args:
        files: Fails when a file is gone.
        root: The store's directory.
        opened: What is in it.
        lock: Held there.

    Attributes:
        folders: Folders of small files, which only who writes them may remove.
    """

    def __init__(
        self, files: WatchedFileSystem, root: Path, opened: OpenedFiles, lock: Lock
    ) -> None:
        self._files = files
        self._log, self._queues, self._index = opened.log, opened.queues, opened.index
        self._lock = Place(lock_path(root), lock.is_in_place, _always)
        self._candidates = (abort_path(root), checkpoint_path(root), notes_path(root))
        self._small: frozenset[Path] = frozenset()
        self._turns = self._round()
        self._count = 0
        self.folders: Sequence[Path] = ()

    def look(self) -> PresenceTask:
        """Return the next look; `done` must follow."""
        log = self._log.files
        newest = [_place(log, file) for file in log.files[-_NEWEST:]]
        count = max(_LEAST, self._count // _ROUND_LOOKS)
        turns = list(islice(self._turns, count))
        if len(turns) < count:
            self._turns = self._round()
        places = (self._lock, *newest, *turns)
        return PresenceTask(self._files, places, self._small, self._candidates, self.folders)

    def done(self, task: PresenceTask, error: OSError | None = None) -> None:
        """Take note of what `task` found: a file that is gone makes the store read-only."""
        if error is not None:
            return  # a disk that tells nothing fails with the next write
        self._small |= task.found
        for place in task.missing:
            if place.is_current():
                self._files.fail(
                    OSError(
                        errno.ENOENT,
                        "somebody removed or replaced it while it was in use: copy what is still"
                        " open before this process ends, put it back, and start again"
                        " (docs/operations.md)",
                        str(place.path),
                    )
                )
                return

    def _round(self) -> Iterator[Place]:
        """Give every file that takes turns, once."""
        count = 0
        for place in self._places():
            count += 1
            yield place
        self._count = count

    def _places(self) -> Iterator[Place]:
        rows = [self._log.files]
        for queue in self._queues:
            rows.append(queue.files)
            if queue.ext is not None:
                rows.append(queue.ext.files)
        for row in rows:
            for file in list(row.files):
                yield _place(row, file)
        for info in () if self._index is None else self._index.infos():
            yield self._of_index(info.path)

    def _of_index(self, path: Path) -> Place:
        index, files = self._index, self._files
        return Place(
            path,
            lambda: files.exists(path),
            lambda: index is not None and any(info.path == path for info in index.infos()),
        )


def _place(row: MappedFileQueue, file: MappedFile) -> Place:
    return Place(
        file.file.path, file.file.is_in_place, lambda: any(each is file for each in row.files)
    )
