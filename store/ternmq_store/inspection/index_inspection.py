"""Reads of the index files of a store that may be damaged or in use, without a write.

The count of slots is in no field. The header has the count of used slots, and the first entries
have to fit the header: so a search of the file finds the count.

Source: RocketMQ `IndexFile`, `IndexHeader`.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.layout import index_folder, is_index_name
from ternmq_store.index.index_file import read_slot
from ternmq_store.index.index_format import (
    ENTRY_BYTES,
    HEADER_BYTES,
    SLOT_BYTES,
    Entries,
    IndexHeader,
    IndexSizes,
    decode_entries,
    decode_header,
    decode_slots,
)

_PIECE_ENTRIES: Final = 3_276
_PIECE_BYTES: Final = 1 << 20
_SAMPLE_ENTRIES: Final = 64


@dataclass(frozen=True, slots=True)
class IndexHead:
    """Header and length of an index file."""

    path: Path
    file_bytes: int
    header: IndexHeader


@dataclass(frozen=True, slots=True)
class FoundEntries:
    """Consecutive entries."""

    first: int
    """Number of the first entry; the first one of a file has 1."""

    entries: Entries


def find_index_files(files: FileSystem, root: Path) -> Sequence[Path]:
    """Return the index files below `root`, oldest first, without other files."""
    folder = index_folder(root)
    return [folder / name for name in files.files(folder) if is_index_name(name)]


def read_index_head(files: FileSystem, path: Path) -> IndexHead | None:
    """Return the head of the index file at `path`; None = the file is shorter than a header."""
    with closing(files.open(path, read_only=True)) as file:
        data = file.read(0, HEADER_BYTES)
        if len(data) < HEADER_BYTES:
            return None
        return IndexHead(path, file.size(), decode_header(data))


def find_slots(files: FileSystem, head: IndexHead) -> int | None:
    """Return the count of slots of a file; None = it has no entries, or contradicts its header."""
    if head.header.next_number <= 1 or min(head.header) < 0:
        return None
    with closing(files.open(head.path, read_only=True)) as file:
        low, high = _slots_range(file, head)
        for slots in range(low, high + 1):
            rest = head.file_bytes - HEADER_BYTES - slots * SLOT_BYTES
            if rest % ENTRY_BYTES == 0 and _is_sound(file, head, slots):
                return slots
        return None


def _slots_range(file: File, head: IndexHead) -> tuple[int, int]:
    """Return the least and the greatest count of slots with as many in use as in the header."""
    most = (head.file_bytes - HEADER_BYTES - head.header.next_number * ENTRY_BYTES) // SLOT_BYTES
    used, place, low = 0, 0, 1
    while place < most:
        data = file.read(HEADER_BYTES + place * SLOT_BYTES, _PIECE_BYTES)
        words = decode_slots(data)
        if not len(words):
            break
        filled = np.flatnonzero(words) + place
        missing = head.header.slots_used - used
        if missing > 0:
            low = int(filled[min(missing, len(filled)) - 1]) + 1 if len(filled) else low
        if len(filled) > missing:
            return low, min(most, int(filled[missing]))
        used += len(filled)
        place += len(words)
    return low, most


def _is_sound(file: File, head: IndexHead, slots: int) -> bool:
    """Return whether the first entries are possible behind `slots` slots."""
    count = min(head.header.next_number - 1, _SAMPLE_ENTRIES)
    data = file.read(_sizes(head, slots).entry_at(1), count * ENTRY_BYTES)
    entries = decode_entries(data)
    offsets, hashes = entries["offset"], entries["hash"]
    numbers = np.arange(1, count + 1)
    if (
        int(offsets[0]) != head.header.begin_offset
        or (np.diff(offsets) < 0).any()
        or int(offsets[-1]) > head.header.end_offset
        or (hashes < 0).any()
        or ((entries["previous"] < 0) | (entries["previous"] >= numbers)).any()
    ):
        return False
    newest = np.array([read_slot(file, each % slots) for each in hashes.tolist()])
    # A negative slot is damaged, and no proof of another count.
    return bool(((newest >= numbers) | (newest < 0)).all())


def _sizes(head: IndexHead, slots: int) -> IndexSizes:
    left = head.file_bytes - HEADER_BYTES - slots * SLOT_BYTES
    return IndexSizes(slots, left // ENTRY_BYTES)


def walk_entries(files: FileSystem, head: IndexHead, slots: int) -> Generator[FoundEntries]:
    """Yield the entries of an index file in the order of their numbers.

    Raises:
        OSError: The file cannot be read.
    """
    with closing(files.open(head.path, read_only=True)) as file:
        number = 1
        while number < head.header.next_number:
            count = min(_PIECE_ENTRIES, head.header.next_number - number)
            data = file.read(_sizes(head, slots).entry_at(number), count * ENTRY_BYTES)
            entries = decode_entries(data)
            if not len(entries):
                return
            yield FoundEntries(number, entries)
            number += len(entries)


def read_slots(files: FileSystem, head: IndexHead, slots: int) -> Ints:
    """Return the number of the newest entry of each slot; 0 = there is none."""
    with closing(files.open(head.path, read_only=True)) as file:
        return decode_slots(file.read(HEADER_BYTES, slots * SLOT_BYTES)).astype(np.int64)
