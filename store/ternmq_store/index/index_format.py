"""Layout of an index file, and rules for its bytes (docs/formats/index.md). Pure.

    header 40 | slots, 4 bytes each | entries, 20 bytes each

A key's hash selects the slot of its chain. The slot contains the number of the chain's newest
entry, and each entry the number of the one before. Entry 0 is never used.

Source: RocketMQ `IndexFile`, `IndexHeader`.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints
from ternmq_model.index_keys import Hashes

Entries = NDArray[np.void]
"""Entries in the layout of their file."""

_FIELDS: Final[list[Any]] = [
    ("hash", ">i4"),
    ("offset", ">i8"),
    ("seconds", ">i4"),
    ("previous", ">i4"),
]
ENTRY: Final[np.dtype[np.void]] = np.dtype(_FIELDS)
ENTRY_BYTES: Final = 20
assert ENTRY.itemsize == ENTRY_BYTES

SLOT: Final = np.dtype(">i4")
SLOT_BYTES: Final = 4
HEADER_BYTES: Final = 40
_HEADER: Final = struct.Struct(">4q2i")
_ENTRY: Final = struct.Struct(">iqii")
_SLOT: Final = struct.Struct(">i")
_SECONDS_MAX: Final = (1 << 31) - 1
_ROW_BITS: Final = 32
_ROW_MASK: Final = (1 << _ROW_BITS) - 1
_ENTRIES_PER_SLOT: Final = 4


def decode_entries(data: bytes) -> Entries:
    """Return the complete entries in `data`, which begins with one."""
    return np.frombuffer(data, dtype=ENTRY, count=len(data) // ENTRY_BYTES)


def decode_slots(data: bytes) -> NDArray[np.int32]:
    """Return the complete slots in `data`, which begins with one."""
    return np.frombuffer(data, dtype=SLOT, count=len(data) // SLOT_BYTES)


def encode_slot(number: int) -> bytes:
    """Return the bytes of a slot that holds `number`."""
    return _SLOT.pack(number)


class IndexSizes(NamedTuple):
    """Counts of slots and entries in a file, which the file does not contain."""

    slots: int
    entries: int
    """Count of entries, with entry 0, which is never used."""

    @property
    def file_bytes(self) -> int:
        """Length of the file."""
        return self.entry_at(self.entries)

    def entry_at(self, number: int) -> int:
        """Return the position of entry `number`."""
        return HEADER_BYTES + self.slots * SLOT_BYTES + number * ENTRY_BYTES


class IndexHeader(NamedTuple):
    """Header of an index file."""

    begin_ms: int = 0
    """Store time of the first entry's record."""
    end_ms: int = 0
    begin_offset: int = 0
    """Physical offset of the first entry's record."""
    end_offset: int = 0
    slots_used: int = 0
    next_number: int = 1
    """Number of the next entry."""

    def encode(self) -> bytes:
        """Return the bytes of the header."""
        return _HEADER.pack(*self)


def decode_header(data: bytes) -> IndexHeader:
    """Return the header in `data`; an empty header for short data, as of a new file."""
    if len(data) < HEADER_BYTES:
        return IndexHeader()
    header = IndexHeader(*_HEADER.unpack_from(data))
    return header if header.next_number else header._replace(next_number=1)


class LinkedChains(NamedTuple):
    """Links of chains with new entries."""

    previous: Ints
    """Number of the previous entry in the chain of each new entry; 0 = none."""
    slots: Ints
    """Slots that change."""
    newest: Ints
    """New value of each of these slots."""
    slots_taken: int
    """Count of slots that were empty."""


def chain(
    hashes: Hashes, slot_count: int, first: int, read: Callable[[Ints], Ints]
) -> LinkedChains:
    """Link new entries into their chains, all at once.

    Args:
        hashes: Hashes of the new entries, at least one.
        slot_count: Count of slots of the file.
        first: Number of the first new entry.
        read: Returns the present values of slots. A value that is no older entry's number counts
            as none.

    Source: RocketMQ `IndexFile.putKey`.
    """
    count = len(hashes)
    slots = hashes.astype(np.int64) % slot_count
    # Slot and row in one number: sorting those is faster than a stable argsort of the slots.
    ranks = np.sort((slots << _ROW_BITS) | np.arange(count))
    order, slots = ranks & _ROW_MASK, ranks >> _ROW_BITS
    is_first = np.ones(count, dtype=bool)
    np.not_equal(slots[1:], slots[:-1], out=is_first[1:])
    is_last = np.append(is_first[1:], True)
    found = read(slots[is_first])
    found = np.where((found > 0) & (found < first), found, 0)
    befores = np.empty(count, dtype=np.int64)
    befores[1:] = order[:-1] + first
    befores[is_first] = found
    previous = np.empty(count, dtype=np.int64)
    previous[order] = befores
    taken = len(found) - int(np.count_nonzero(found))
    return LinkedChains(previous, slots[is_last], order[is_last] + first, taken)


def make_entries(
    hashes: Hashes, offsets: Ints, stored_at_ms: Ints, previous: Ints, begin_ms: int
) -> Entries:
    """Return entries; `begin_ms` is the store time of the file's first record."""
    entries = np.empty(len(hashes), dtype=ENTRY)
    entries["hash"] = hashes
    entries["offset"] = offsets
    if begin_ms > 0:
        entries["seconds"] = np.clip((stored_at_ms - begin_ms) // 1000, 0, _SECONDS_MAX)
    else:
        entries["seconds"] = 0
    entries["previous"] = previous
    return entries


class LinkedEntries(NamedTuple):
    """A few new entries, and the slots of their chains."""

    entries: bytes
    slots: Mapping[int, int]
    """New value of each slot that changes."""
    slots_taken: int
    """Count of slots that were empty."""


def link_entries(
    hashes: Sequence[int],
    offsets: Sequence[int],
    stored_at_ms: Sequence[int],
    begin_ms: int,
    sizes: IndexSizes,
    first: int,
    view: memoryview,
) -> LinkedEntries:
    """Return a few entries, linked one by one as `chain` and `make_entries` link many.

    Args:
        hashes: Hashes of the new entries.
        offsets: Log offsets of their records.
        stored_at_ms: Store times of their records.
        begin_ms: Store time of the file's first record.
        sizes: Sizes of the file.
        first: Number of the first new entry.
        view: Bytes of the file.
    """
    entries = bytearray()
    newest: dict[int, int] = {}
    taken = 0
    rows = zip(hashes, offsets, stored_at_ms, strict=True)
    for number, (code, offset, at_ms) in enumerate(rows, first):
        slot = code % sizes.slots
        before = newest.get(slot)
        if before is None:
            before = _SLOT.unpack_from(view, slot_at(slot))[0]
            before = before if 0 < before < first else 0
            taken += not before
        seconds = min(max((at_ms - begin_ms) // 1000, 0), _SECONDS_MAX) if begin_ms > 0 else 0
        entries += _ENTRY.pack(code, offset, seconds, before)
        newest[slot] = number
    return LinkedEntries(bytes(entries), newest, taken)


def slot_at(slot: int) -> int:
    """Return the position of a slot in its file."""
    return HEADER_BYTES + slot * SLOT_BYTES


def good_entries(entries: Entries, first: int, after: int, limit: int) -> int:
    """Return how many entries from the first one on can be entries of records before `limit`.

    Args:
        entries: Entries that follow each other in a file.
        first: Number of the first entry.
        after: Least possible log offset.
        limit: Log offset behind the possible ones.
    """
    offsets = entries["offset"].astype(np.int64)
    floor = np.maximum.accumulate(np.append(np.int64(after), offsets[:-1]))
    previous = entries["previous"].astype(np.int64)
    numbers = np.arange(first, first + len(entries))
    is_empty = (offsets == 0) & (entries["hash"] == 0) & (previous == 0)
    bad = (
        (offsets < floor)
        | (offsets >= limit)
        | (entries["hash"] < 0)
        | (entries["seconds"] < 0)
        | (previous < 0)
        | (previous >= numbers)
        | is_empty
    )
    return int(bad.argmax()) if bad.any() else len(bad)


def likely_sizes(file_bytes: int, known: Sequence[IndexSizes]) -> Sequence[IndexSizes]:
    """Return possible sizes of a file by its length: `known` ones, and 4 entries a slot.

    RocketMQ's defaults have 4 entries a slot: 5,000,000 slots and 20,000,000 entries.
    """
    slots, rest = divmod(file_bytes - HEADER_BYTES, SLOT_BYTES + _ENTRIES_PER_SLOT * ENTRY_BYTES)
    likely = [sizes for sizes in known if sizes.file_bytes == file_bytes]
    if not rest and slots > 0:
        likely.append(IndexSizes(slots, _ENTRIES_PER_SLOT * slots))
    return tuple(dict.fromkeys(likely))


def sizes_by_entry(
    file_bytes: int, header: IndexHeader, position: int, window: bytes
) -> Sequence[IndexSizes]:
    """Return sizes with which an entry in `window` would be the file's last one.

    Args:
        file_bytes: Length of the file.
        header: Header of the file.
        position: Position of `window` in the file, a multiple of 20 bytes before the file's end.
        window: Bytes of the file, a multiple of 20.
    """
    entries = decode_entries(window)
    rows = np.flatnonzero(entries["offset"] == header.end_offset).tolist()
    found: list[IndexSizes] = []
    for row in rows:
        before = (
            position + row * ENTRY_BYTES - (header.next_number - 1) * ENTRY_BYTES - HEADER_BYTES
        )
        slots, rest = divmod(before, SLOT_BYTES)
        if slots > 0 and not rest and int(entries["hash"][row]) >= 0:
            entry_bytes = file_bytes - HEADER_BYTES - slots * SLOT_BYTES
            found.append(IndexSizes(slots, entry_bytes // ENTRY_BYTES))
    return found
