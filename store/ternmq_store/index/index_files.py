"""Index of messages by topic and key (docs/formats/index.md).

Files are ordered by their creation. New entries go to the newest file with entries; full files are
only read. The index can be rebuilt from the log.

Source: RocketMQ `IndexService`.
"""

import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.clock import Clock
from ternmq_model.index_keys import Hashes, KeyRows
from ternmq_model.offsets import PhysicalOffset
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import index_folder, index_name, is_index_name
from ternmq_store.disk.resource_exhaustion import is_exhausted, is_full
from ternmq_store.index.index_allocation import IndexTask, real_at_first
from ternmq_store.index.index_file import (
    IndexFile,
    IndexInfo,
    is_sound,
    keys_of_last,
    open_info,
    repair,
)
from ternmq_store.index.index_format import IndexHeader, IndexSizes
from ternmq_store.index.index_lookup import IndexLookup

logger = logging.getLogger(__name__)

_PREPARE_AT: Final = 4
"""The next file is created when less than a quarter of the newest one is free."""


class IndexFiles:
    """Index files of a store.

    Owned by `MessageStore`, on the store's thread. A look-up reads beside it, in any thread.

    Attributes:
        indexed_to: Log offset before which all records are in the index: `put` ignores them.
    """

    def __init__(
        self, files: FileSystem, root: Path, sizes: IndexSizes, clock: Clock, found: list[IndexInfo]
    ) -> None:
        """Use `open`."""
        self._files = files
        self._folder = index_folder(root)
        self._sizes = sizes
        self._clock = clock
        self._read: list[IndexInfo] = found
        self._written: deque[IndexFile] = deque()
        self._expected = 0
        self._dirty: dict[Path, None] = {}
        self._making: IndexTask | None = None
        self._ahead: set[Path] = set()
        self._full: list[IndexFile] = []
        self._unused: list[Path] = []
        self._newest = found[-1].path.name if found else ""
        self.indexed_to = PhysicalOffset(0)
        self._begun = (0, 0)
        self._begin()

    @classmethod
    def open(
        cls, files: FileSystem, root: Path, *, slots: int, entries: int, clock: Clock
    ) -> "IndexFiles":
        """Open the existing files, and drop them from the first bad one on.

        After a crash `cut` must follow.

        Args:
            files: The file system.
            root: The store's directory.
            slots: Count of slots of new files.
            entries: Count of entries of new files.
            clock: Clock for the names of new files.

        Raises:
            OSError: A file could not be read, repaired or removed.
        """
        folder, sizes = index_folder(root), IndexSizes(slots, entries)
        found: list[IndexInfo] = []
        names = [name for name in files.files(folder) if is_index_name(name)]
        for name in names:
            known = (*(info.sizes for info in found[-1:]), sizes)
            info = open_info(files, folder / name, known)
            has_gap = info is not None and bool(found) and _has_gap(found[-1], info)
            if info is not None and not has_gap and is_sound(files, info):
                found.append(info)
                continue
            if info is not None and not has_gap:
                logger.warning("index file had a damaged end, which was cut file=%s", info.path)
                found.append(repair(files, info, 1 << 62))
            dropped = [folder / other for other in names[len(found) :]]
            if dropped:
                logger.warning("index files dropped file=%s count=%d", dropped[0], len(dropped))
            _remove(files, dropped)
            break
        return cls(files, root, sizes, clock, found)

    def _begin(self) -> None:
        """Set the end of the indexed records by the files alone."""
        infos = [info for info in self._read if info.has_entries]
        end, count = infos[-1].header.end_offset if infos else 0, 0
        for info in reversed(infos):
            keys = keys_of_last(self._files, info) if info.header.end_offset == end else 0
            count += keys
            if keys + 1 < info.header.next_number:
                break
        # Perhaps only some keys of that record were written.
        self.indexed_to, self._begun = PhysicalOffset(end), (end, count)

    @property
    def stored_at_ms(self) -> int:
        """Store time of the newest record with an entry; 0 = there is none."""
        headers = [info.header for info in self.infos() if info.has_entries]
        return headers[-1].end_ms if headers else 0

    def infos(self) -> Sequence[IndexInfo]:
        """Return all files, oldest first."""
        return (*self._read, *(file.info for file in self._written))

    def reserve(self, count: int) -> None:
        """Make space real for `count` entries beyond the expected ones.

        Raises:
            OSError: There is no space. The index is as before.
        """
        self._make_space(self._expected + count)

    def expect(self, count: int) -> None:
        """Reserve the space of `count` entries for a later `put`."""
        self._expected += count

    def put(self, keys: KeyRows, offsets: Ints, stored_at_ms: Ints, end: PhysicalOffset) -> None:
        """Add the keys of records, but for those that are indexed already.

        Args:
            keys: Keys of the records.
            offsets: Log offset of every record, ascending.
            stored_at_ms: Store time of every record.
            end: Log offset behind the last record: the new `indexed_to`.

        Raises:
            OSError: There was no space, and none was reserved. Nothing was added.
        """
        self._expected = max(self._expected - len(keys.rows), 0)
        hashes, places, times = keys.hashes, offsets[keys.rows], stored_at_ms[keys.rows]
        if self._begun[1] or (len(places) and places[0] < self.indexed_to):
            new = places >= self.indexed_to
            new[np.flatnonzero(places == self._begun[0])[: self._begun[1]]] = False
            hashes, places, times = hashes[new], places[new], times[new]
        if len(hashes):
            self._make_space(len(hashes))
            self._add(hashes, places, times)
        self.trust(end)

    def put_one(
        self, hashes: Sequence[int], offset: PhysicalOffset, stored_at_ms: int, end: PhysicalOffset
    ) -> None:
        """Add the keys of one record, as `put` does for many.

        Raises:
            OSError: There was no space, and none was reserved. Nothing was added.
        """
        count = len(hashes)
        file = self._written[0] if self._written else None
        is_known = bool(self._begun[1]) or offset < self.indexed_to
        if is_known or file is None or file.info.free_entries < count:
            keys = KeyRows(np.zeros(count, dtype=np.int64), np.array(hashes, dtype=np.int32))
            one = np.array((offset, stored_at_ms), dtype=np.int64)
            self.put(keys, one[:1], one[1:], end)
            return
        self._expected = max(self._expected - count, 0)
        if count:
            file.reserve(count)
            file.put_few(hashes, [offset] * count, [stored_at_ms] * count)
            self._dirty[file.info.path] = None
        self.trust(end)

    def _add(self, hashes: Hashes, places: Ints, times: Ints) -> None:
        done = 0
        while done < len(hashes):
            file = self._written[0]
            if not file.info.free_entries:
                self._roll()
                continue
            until = done + file.info.free_entries
            file.put(hashes[done:until], places[done:until], times[done:until])
            self._dirty[file.info.path] = None
            done = min(until, len(hashes))

    def _roll(self) -> None:
        """Continue with the next file, which `_make_space` has created."""
        full = self._written.popleft()
        self._full.append(full)
        self._read.append(full.info)
        self._written[0].follow(full.info.header)

    def _make_space(self, count: int) -> None:
        if not self._written:
            self._reopen()
        for file in self._written:
            if count <= 0:
                return
            file.reserve(count)
            count -= file.info.free_entries
        while count > 0:
            file = self._create()
            self._written.append(file)
            file.reserve(count)
            count -= file.info.free_entries

    def _reopen(self) -> None:
        """Reopen the newest file with entries, if it has space, and empty files after it."""
        while self._read and self._read[-1].free_entries:
            if self._written and self._written[0].info.has_entries:
                return
            info = self._read[-1]
            self._written.appendleft(IndexFile(self._files.open(info.path), info))
            self._read.pop()

    def _create(self) -> IndexFile:
        """Create the next file: its length and name are on the disk before its use.

        Raises:
            OSError: There is no new file.
        """
        self._files.make_folder(self._folder)
        name = index_name(self._clock.wall_ms(), self._newest)
        path = self._folder / name
        file = self._files.open(path, create=True)
        created: IndexFile | None = None
        try:
            file.resize(self._sizes.file_bytes)
            created = IndexFile(file, IndexInfo(path, self._sizes, IndexHeader()))
            created.reserve(1)
            file.sync()
            self._files.sync_folder(self._folder)
        except OSError:
            if created is not None:
                created.close()
            file.close()
            self._files.remove(path)
            raise
        if not self._written and self._read:
            created.follow(self._read[-1].header)
        file.park()
        self._newest = name
        logger.info("index file created file=%s entries=%d", path, self._sizes.entries)
        return created

    def prepare_due(self) -> IndexTask | None:
        """Return the task that creates the next file, if it is due; `prepared` must follow."""
        if self._making is not None:
            return None
        path: Path | None = None
        infos = self.infos()
        if not infos or infos[-1].free_entries < infos[-1].sizes.entries // _PREPARE_AT:
            self._newest = index_name(self._clock.wall_ms(), self._newest)
            path = self._folder / self._newest
        if path is None and not self._full and not self._unused:
            return None
        full, unused = tuple(self._full), tuple(self._unused)
        self._making = IndexTask(self._files, path, self._sizes, full, unused)
        self._full.clear()
        self._unused.clear()
        return self._making

    def prepared(self, task: IndexTask, error: OSError | None) -> None:
        """Add the file that `task` created. A missing file is created on demand.

        Raises:
            OSError: The disk failed.
        """
        self._making = None
        if error is not None:
            if not is_full(error) and not is_exhausted(error):
                raise error
            logger.warning("index file not created in advance err=%s", error)
            return
        if task.path is None:
            return
        if self._newest != task.path.name:
            self._unused.append(task.path)  # another file was created on demand meanwhile
            return
        if not self._written:
            self._reopen()
        info = IndexInfo(task.path, task.sizes, IndexHeader())
        file = IndexFile(self._files.open(task.path), info, real_bytes=real_at_first(task.sizes))
        if not self._written and self._read:
            file.follow(self._read[-1].header)
        self._written.append(file)
        self._ahead.add(task.path)
        logger.info(
            "index file created in advance file=%s entries=%d", task.path, task.sizes.entries
        )

    def cut(self, end: PhysicalOffset) -> None:
        """Drop the entries of records at or beyond `end`, and entries that a crash has torn.

        The last file's slots are rebuilt from its entries. The result is on the disk on return.

        Raises:
            OSError: The disk failed.
        """
        self._close_written()
        infos, behind = list(self._read), list[IndexInfo]()
        while infos and (not infos[-1].has_entries or infos[-1].header.begin_offset >= end):
            behind.insert(0, infos.pop())
        _remove(self._files, [info.path for info in behind[1:]])
        for info in infos[:-1]:
            with contextlib.closing(self._files.open(info.path)) as file:
                file.sync()
        if infos:
            infos[-1] = repair(self._files, infos[-1], end)
        # The first of the others stays, empty: most of its entries come again.
        infos += [repair(self._files, info, 0) for info in behind[:1]]
        self._read = infos
        self._dirty.clear()
        self._newest = infos[-1].path.name if infos else ""
        self._begin()

    def drop_from(self, path: Path) -> None:
        """Remove the file at `path` and all after it.

        Raises:
            OSError: Some files may still be there.
        """
        self._close_written()
        first = [info.path for info in self._read].index(path)
        self._read, dropped = self._read[:first], self._read[first:]
        logger.warning("index files dropped file=%s count=%d", path, len(dropped))
        _remove(self._files, [info.path for info in dropped])
        self._newest = self._read[-1].path.name if self._read else ""
        self._begin()

    def durable_at(self, stored_at_ms: int) -> PhysicalOffset:
        """Return the log offset before which all entries are on the disk, by a store time alone.

        Args:
            stored_at_ms: Store time of a record with a synced entry: RocketMQ notes it for full
                files.

        Source: RocketMQ `IndexService.load`.
        """
        for info in self.infos():
            if info.header.end_ms > stored_at_ms:
                return PhysicalOffset(info.header.begin_offset)
        return PhysicalOffset(1 << 62)

    def trust(self, indexed_to: PhysicalOffset) -> None:
        """Record that all records before `indexed_to` are in the index.

        The files contain only the offset of the last record with a key.
        """
        if indexed_to > self.indexed_to:
            self.indexed_to = indexed_to
            self._begun = (0, 0)

    def delete_before(self, start: PhysicalOffset) -> Sequence[Path]:
        """Forget the files whose records all lie before `start`; the newest file stays.

        Returns:
            Paths for the caller to remove.
        """
        gone: list[Path] = []
        while len(self._read) + len(self._written) > 1 and self._read:
            if self._read[0].header.end_offset >= start:
                break
            path = self._read.pop(0).path
            self._dirty.pop(path, None)
            gone.append(path)
        return gone

    def lookup(
        self, infos: Sequence[IndexInfo], hashes: Sequence[int], begin_ms: int, end_ms: int
    ) -> IndexLookup:
        """Return a look-up of hashes in some of the files, newest first.

        Any thread may run the look-up, also while entries are written.
        """
        return IndexLookup(self._files, infos, hashes, begin_ms, end_ms)

    def take_dirty(self) -> Sequence[Path]:
        """Return the files with unsynced entries; the caller syncs them."""
        dirty, self._dirty = self._dirty, {}
        return tuple(dirty)

    def notes(self) -> Sequence[str]:
        """Return lines for the store's notes: each file with entries, and `indexed_to`."""
        files = [
            f"{info.path.name} {info.header.next_number} {info.header.end_offset}"
            for info in self.infos()
            if info.has_entries
        ]
        return (*files, f"to {self.indexed_to}")

    def trust_notes(self, lines: Sequence[str]) -> None:
        """Trust the lines of `notes` at the last clean stop, if the files are as they were then."""
        kind, _, offset = lines[-1].partition(" ") if lines else ("", "", "")
        is_offset = kind == "to" and offset.isascii() and offset.isdigit()
        if is_offset and tuple(lines[:-1]) == tuple(self.notes()[:-1]):
            self.trust(PhysicalOffset(int(offset)))

    def _close_written(self) -> None:
        while self._written:
            file = self._written.popleft()
            file.close()
            self._read.append(file.info)

    def close(self) -> None:
        """Unmap and close all files, and remove an unneeded one that was created ahead.

        RocketMQ would continue in that file, and leave space unused in the one before.
        """
        self._close_written()
        for file in self._full:
            file.close()
        self._full.clear()
        if self._read and self._read[-1].path in self._ahead and not self._read[-1].has_entries:
            self._unused.append(self._read.pop().path)
        with contextlib.suppress(OSError):
            _remove(self._files, self._unused)


def _has_gap(before: IndexInfo, info: IndexInfo) -> bool:
    """Return whether entries are missing between two files, as after an unsynced header."""
    return before.free_entries > 0 and before.has_entries and info.has_entries


def _remove(files: FileSystem, paths: Sequence[Path]) -> None:
    for path in paths:
        files.remove(path)
    if paths:
        files.sync_folder(paths[0].parent)
