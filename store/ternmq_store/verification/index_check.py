"""Comparison of index files with verified records, and repair in place.

Entries lie in the order of the log, so those of a piece of the log are contiguous. Damaged entries
are repaired only between two valid ones whose distance is that of their keys, and only if none of
them leads to a valid record. Any thread may run this, since existing entries do not change.
"""

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints, layout_bytes
from ternmq_model.index_keys import Hashes, find_keys
from ternmq_model.record.batch import RecordBatch
from ternmq_store.disk.filesystem import File
from ternmq_store.index.index_file import IndexInfo, read_entries
from ternmq_store.index.index_format import (
    ENTRY,
    SLOT,
    Entries,
    chain,
    decode_slots,
    make_entries,
    slot_at,
)
from ternmq_store.read.log_source import LogSource
from ternmq_store.read.unit_search import record_at

_AROUND: Final = 64
"""Most entries between the estimated and the real position of a piece's first entry."""

_PROBED: Final = 3
"""Entries of a probe in the bisection. The median counts, since one may be damaged."""

_OPEN_MAX: Final = 4_096
"""Most keys that wait for a valid entry behind theirs."""

WALK_ENTRIES: Final = 1 << 14
_SLOTS_AT_ONCE: Final = 1 << 16


class OpenKeys(NamedTuple):
    """Last compared keys, from the one with the last valid entry on."""

    path: Path
    """Path of the file with the first key's entry."""

    number: int
    """Number of the first key's entry."""

    hashes: Hashes
    places: Ints
    """Log offsets of the keys' records."""

    times: Ints
    """Store times of the keys' records."""


class _EntryGroup(NamedTuple):
    """Entries of one file, in the order of their keys."""

    info: IndexInfo
    first: int
    there: Entries
    right: Entries


@dataclass(slots=True, kw_only=True)
class IndexCheck:
    """Comparison of the entries of some records' keys. Made and finished by `Verification`."""

    source: LogSource
    batch: RecordBatch
    """Valid, contiguous records of the log."""

    infos: Sequence[IndexInfo]
    """All index files, oldest first, after the records were indexed."""

    open: OpenKeys | None
    """Open keys of the records before these; after `run`, those for the records behind. None = the
    position of the entries is unknown."""

    repaired: int = 0

    def run(self) -> None:
        """Compare the entries and repair damaged ones.

        Raises:
            OSError: The disk failed.
        """
        keys, headers = find_keys(self.batch), self.batch.headers
        if not len(keys.rows):
            return
        places = headers["physical_offset"].astype(np.int64)[keys.rows]
        times = headers["stored_at_ms"].astype(np.int64)[keys.rows]
        with suppress(FileNotFoundError):
            at = self.open or self._find(int(places[0]), int(keys.hashes[0]))
            self.open = None
            if at is not None:
                self.open = self._compare(
                    at._replace(
                        hashes=np.concatenate((at.hashes, keys.hashes)),
                        places=np.concatenate((at.places, places)),
                        times=np.concatenate((at.times, times)),
                    )
                )

    def _find(self, place: int, wanted: int) -> OpenKeys | None:
        """Return the open keys with the entry of the first key of the record at `place`."""
        info = next((each for each in self.infos if each.header.end_offset >= place), None)
        if info is None or not info.has_entries:
            return None
        with closing(self.source.files.open(info.path, read_only=True)) as file:
            low, high = 1, info.header.next_number
            while low < high:
                middle = (low + high) // 2
                count = min(_PROBED, info.header.next_number - middle)
                probed = np.sort(read_entries(file, info.sizes, middle, count)["offset"])
                is_before = int(probed[(count - 1) // 2]) < place
                low, high = (middle + 1, high) if is_before else (low, middle)
            first = max(low - _AROUND, 1)
            count = min(2 * _AROUND, info.header.next_number - first)
            entries = read_entries(file, info.sizes, first, count)
        found = np.flatnonzero((entries["offset"] == place) & (entries["hash"] == wanted))
        if not len(found):
            return None
        none = np.zeros(0, dtype=np.int64)
        return OpenKeys(info.path, first + int(found[0]), none.astype(np.int32), none, none)

    def _compare(self, keys: OpenKeys) -> OpenKeys | None:
        """Compare the entries of keys. Return the keys that are still open."""
        parts = self._parts(keys)
        there = np.concatenate([part.there for part in parts])
        right = np.concatenate([part.right for part in parts])
        if len(there) < len(keys.hashes):
            return None
        sound = np.flatnonzero(there == right)
        if not len(sound):
            return None
        for before, behind in zip(sound[:-1].tolist(), sound[1:].tolist(), strict=True):
            hole = slice(before + 1, behind)
            if behind - before > 1 and not self._has_others(there[hole], right[hole]):
                self._write(parts, hole)
        last = int(sound[-1])
        if len(there) - last > _OPEN_MAX:
            return None
        row = last
        for info, first, entries, _ in parts:
            if row < len(entries):
                left = slice(last, None)
                return OpenKeys(
                    info.path,
                    first + row,
                    keys.hashes[left],
                    keys.places[left],
                    keys.times[left],
                )
            row -= len(entries)
        return None

    def _parts(self, keys: OpenKeys) -> Sequence[_EntryGroup]:
        """Return the present and the expected entries of keys, as far as entries exist."""
        parts, row = list[_EntryGroup](), 0
        for info in self.infos:
            if info.path.name < keys.path.name or row == len(keys.hashes):
                continue
            number = keys.number if info.path == keys.path else 1
            last = min(number + len(keys.hashes) - row, info.header.next_number)
            rows = slice(row, row + max(last - number, 0))
            with closing(self.source.files.open(info.path, read_only=True)) as file:
                there = read_entries(file, info.sizes, number, rows.stop - row)
            hashes, places, times = keys.hashes[rows], keys.places[rows], keys.times[rows]
            previous = there["previous"].astype(np.int64)
            right = make_entries(hashes, places, times, previous, info.header.begin_ms)
            if number == 1 and len(there):  # RocketMQ counts these seconds from the file before
                right["seconds"][0] = there["seconds"][0]
            parts.append(_EntryGroup(info, number, there, right))
            row = rows.stop
        return parts

    def _has_others(self, there: Entries, right: Entries) -> bool:
        """Return whether an entry leads to a valid record of another key."""
        is_other = (there["offset"] != right["offset"]) | (there["hash"] != right["hash"])
        return any(has_record(self.source, entry) for entry in there[is_other])

    def _write(self, parts: Sequence[_EntryGroup], rows: slice) -> None:
        begin = 0
        for info, first, there, right in parts:
            own = range(max(rows.start - begin, 0), min(rows.stop - begin, len(there)))
            begin += len(there)
            if not len(own):
                continue
            with closing(self.source.files.open(info.path)) as file:
                data = layout_bytes(right[own.start : own.stop], ENTRY).data
                file.write(info.sizes.entry_at(first + own.start), data)
                file.sync()
            self.repaired += len(own)


def has_record(source: LogSource, entry: Entries) -> bool:
    """Return whether an entry leads to a valid record with its key.

    Raises:
        OSError: The disk failed.
    """
    batch = record_at(source, int(entry["offset"]))
    return batch is not None and bool((find_keys(batch).hashes == entry["hash"]).any())


@dataclass(slots=True)
class IndexWalk:
    """Check of the chains of one file, in steps. Made and finished by `Verification`.

    The hashes decide the chains. A link is repaired only between two entries that lead to valid
    records: another entry may have a damaged hash and valid links.
    """

    source: LogSource
    info: IndexInfo
    slots: NDArray[np.int32]
    """Expected values of the slots after the checked entries."""

    number: int = 1
    repaired: int = 0
    is_over: bool = False
    checked_bytes: int = 0

    def run(self) -> None:
        """Check some more entries and repair damaged links.

        Raises:
            OSError: The disk failed.
        """
        try:
            file = self.source.files.open(self.info.path)
        except FileNotFoundError:
            self.is_over = True
            return
        with closing(file):
            repaired = self.repaired
            end = self.info.header.next_number
            if self.number < end:
                self._links(file, min(WALK_ENTRIES, end - self.number))
            self.is_over = self.number >= end
            if self.is_over and not self.info.free_entries:
                self._compare_slots(file)
            if self.repaired > repaired:
                file.sync()

    def _links(self, file: File, count: int) -> None:
        sizes, first = self.info.sizes, self.number
        entries = read_entries(file, sizes, first, count)
        hashes = np.maximum(entries["hash"].astype(np.int32), 0)
        chained = chain(hashes, sizes.slots, first, lambda at: self.slots[at].astype(np.int64))
        for row in np.flatnonzero(chained.previous != entries["previous"]).tolist():
            if has_record(self.source, entries[row]) and self._may_link(
                file, int(chained.previous[row])
            ):
                entry = entries[row : row + 1].copy()
                entry["previous"] = chained.previous[row]
                file.write(sizes.entry_at(first + row), layout_bytes(entry, ENTRY).data)
                self.repaired += 1
        self.slots[chained.slots] = chained.newest
        self.number += count
        self.checked_bytes = entries.nbytes

    def _may_link(self, file: File, number: int) -> bool:
        """Return whether a link to an entry may be written; 0 = no entry."""
        return not number or has_record(
            self.source, read_entries(file, self.info.sizes, number, 1)[0]
        )

    def _compare_slots(self, file: File) -> None:
        for first in range(0, len(self.slots), _SLOTS_AT_ONCE):
            right = self.slots[first : first + _SLOTS_AT_ONCE].astype(SLOT)
            there = decode_slots(file.read(slot_at(first), right.nbytes))
            # RocketMQ's slots may hold a number that stands for none.
            none = (there <= 0) & (right == 0)
            for row in np.flatnonzero((there != right) & ~none).tolist():
                if self._may_link(file, int(right[row])):
                    slot = layout_bytes(right[row : row + 1], SLOT).data
                    file.write(slot_at(first + row), slot)
                    self.repaired += 1
