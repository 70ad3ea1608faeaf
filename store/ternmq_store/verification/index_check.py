"""Comparing index files with verified records and with themselves; mends what is damaged in place.

Entries lie in the order of the log, so those of a piece of it follow each other. Chains follow from
the hashes of the entries alone. For any thread: what an index file holds does not change any more.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.index_keys import Hashes, find_keys
from ternmq_model.record_batch import RecordBatch
from ternmq_model.record_heads import Ints
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.index.index_file import IndexInfo, read_entries
from ternmq_store.index.index_format import (
    HEADER_BYTES,
    SLOT,
    SLOT_BYTES,
    Entries,
    chain,
    make_entries,
)
from ternmq_store.reading.source import Source
from ternmq_store.reading.unit_search import record_at

_AROUND: Final = 64
"""So far from where it is looked for the first entry of a piece may lie."""

WALK_ENTRIES: Final = 1 << 14
_SLOTS_AT_ONCE: Final = 1 << 16


class EntryPlace(NamedTuple):
    """Where an entry lies."""

    path: Path
    number: int


@dataclass(slots=True, kw_only=True)
class IndexCheck:
    """The entries of some records' keys. Made and finished by `Verification`."""

    files: FileSystem
    source: Source
    batch: RecordBatch
    infos: Sequence[IndexInfo]
    """All files, oldest first, after the records were indexed."""

    next: EntryPlace | None
    """Where the entries begin, and after `run` those of what follows; None = it is not known."""

    mended: int = 0

    def run(self) -> None:
        """Compare, and write damaged entries anew.

        Entries in another order than the log's, as RocketMQ may leave them, stay as they are.

        Raises:
            OSError: The disk failed.
        """
        keys, heads = find_keys(self.batch), self.batch.heads
        places = heads["physical_offset"].astype(np.int64)[keys.rows]
        times = heads["stored_at_ms"].astype(np.int64)[keys.rows]
        if not len(places):
            return
        with contextlib.suppress(FileNotFoundError):
            at = self.next or self._find(int(places[0]), int(keys.hashes[0]))
            self.next, row = None, 0
            for info in self.infos:
                if at is None or info.path.name < at.path.name:
                    continue
                number = at.number if info.path == at.path else 1
                last = min(number + len(places) - row, info.header.next_number)
                rows = slice(row, row + last - number)
                if not self._compare(info, number, keys.hashes[rows], places[rows], times[rows]):
                    return
                row += last - number
                if row == len(places):
                    self.next = EntryPlace(info.path, last)
                    return

    def _find(self, place: int, wanted: int) -> EntryPlace | None:
        """Return where the first key of the record at `place` has its entry."""
        info = next((each for each in self.infos if each.header.end_offset >= place), None)
        if info is None or not info.has_entries:
            return None
        file = self.files.open(info.path, read_only=True)
        try:
            low, high = 1, info.header.next_number
            while low < high:
                middle = (low + high) // 2
                is_before = int(read_entries(file, info.sizes, middle, 1)["offset"][0]) < place
                low, high = (middle + 1, high) if is_before else (low, middle)
            first = max(low - _AROUND, 1)
            count = min(2 * _AROUND, info.header.next_number - first)
            entries = read_entries(file, info.sizes, first, count)
        finally:
            file.close()
        found = np.flatnonzero((entries["offset"] == place) & (entries["hash"] == wanted))
        return EntryPlace(info.path, first + int(found[0])) if len(found) else None

    def _compare(
        self, info: IndexInfo, first: int, hashes: Hashes, places: Ints, times: Ints
    ) -> bool:
        """Compare entries of one file; return False when they are those of other keys."""
        if not len(hashes):
            return True
        file = self.files.open(info.path)
        try:
            there = read_entries(file, info.sizes, first, len(hashes))
            previous = there["previous"].astype(np.int64)
            right = make_entries(hashes, places, times, previous, info.header.begin_ms)
            if first == 1:  # RocketMQ counts these seconds from the end of the file before
                right["seconds"][0] = there["seconds"][0]
            wrong = np.flatnonzero(there != right)
            if any(self._has_key(there[row]) for row in wrong.tolist()):
                return False
            for row in wrong.tolist():
                file.write(info.sizes.entry_at(first + row), right[row].tobytes())
            if len(wrong):
                file.sync()
                self.mended += len(wrong)
            return True
        finally:
            file.close()

    def _has_key(self, entry: Entries) -> bool:
        """Tell whether an entry tells of a key of a good record."""
        batch = record_at(self.source, int(entry["offset"]))
        own = self.batch.heads["physical_offset"] == entry["offset"]
        return (
            batch is not None
            and not own.any()
            and bool((find_keys(batch).hashes == entry["hash"]).any())
        )


@dataclass(slots=True)
class IndexWalk:
    """Chains of one file, a part of them a run. Made and finished by `Verification`."""

    files: FileSystem
    info: IndexInfo
    slots: NDArray[np.int32]
    """What they must hold after the entries that were looked at."""

    number: int = 1
    mended: int = 0
    is_over: bool = False
    checked_bytes: int = 0

    def run(self) -> None:
        """Look at some more entries, and write links that are damaged anew.

        Raises:
            OSError: The disk failed.
        """
        try:
            file = self.files.open(self.info.path)
        except FileNotFoundError:
            self.is_over = True
            return
        try:
            mended = self.mended
            end = self.info.header.next_number
            if self.number < end:
                self._links(file, min(WALK_ENTRIES, end - self.number))
            self.is_over = self.number >= end
            if self.is_over and not self.info.room:
                self._compare_slots(file)
            if self.mended > mended:
                file.sync()
        finally:
            file.close()

    def _links(self, file: File, count: int) -> None:
        sizes, first = self.info.sizes, self.number
        entries = read_entries(file, sizes, first, count)
        hashes = np.maximum(entries["hash"].astype(np.int32), 0)
        chained = chain(hashes, sizes.slots, first, lambda at: self.slots[at].astype(np.int64))
        for row in np.flatnonzero(chained.previous != entries["previous"]).tolist():
            entry = entries[row : row + 1].copy()
            entry["previous"] = chained.previous[row]
            file.write(sizes.entry_at(first + row), entry.tobytes())
            self.mended += 1
        self.slots[chained.slots] = chained.newest
        self.number += count
        self.checked_bytes = entries.nbytes

    def _compare_slots(self, file: File) -> None:
        for first in range(0, len(self.slots), _SLOTS_AT_ONCE):
            right = self.slots[first : first + _SLOTS_AT_ONCE].astype(SLOT)
            at = HEADER_BYTES + first * SLOT_BYTES
            there = np.frombuffer(file.read(at, right.nbytes), dtype=SLOT)
            # RocketMQ's slots may hold a number that stands for none.
            none = (there <= 0) & (right == 0)
            wrong = np.flatnonzero((there != right) & ~none)
            if len(wrong):
                file.write(at, right.tobytes())
                self.mended += len(wrong)
