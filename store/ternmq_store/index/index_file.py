"""One index file: writes through its map, and plain reads.

Source: RocketMQ `IndexFile`.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from ternmq_model.arrays import Ints, layout_bytes
from ternmq_model.index_keys import Hashes
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.layout import step_end
from ternmq_store.disk.mapped_file import MappedFile
from ternmq_store.index.index_format import (
    ENTRY,
    ENTRY_BYTES,
    HEADER_BYTES,
    SLOT,
    SLOT_BYTES,
    Entries,
    IndexHeader,
    IndexSizes,
    chain,
    decode_entries,
    decode_header,
    decode_slots,
    encode_slot,
    good_entries,
    likely_sizes,
    link_entries,
    make_entries,
    sizes_by_entry,
    slot_at,
)

_PIECE_ENTRIES: Final = 1 << 16
_PIECE_BYTES: Final = _PIECE_ENTRIES * ENTRY_BYTES
_SLOT_PIECE_BYTES: Final = 1 << 16
_TAIL_ENTRIES: Final = 64
_FEW_ENTRIES: Final = 16
"""Most entries that are written one by one: numpy would cost more."""


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """Path, sizes and header of a file: a plain value, for any thread."""

    path: Path
    sizes: IndexSizes
    header: IndexHeader

    @property
    def free_entries(self) -> int:
        """Count of further entries that fit."""
        return max(self.sizes.entries - self.header.next_number, 0)

    @property
    def has_entries(self) -> bool:
        """True if the file has an entry."""
        return self.header.next_number > 1


class IndexFile:
    """Index file for writes. Owned by `IndexFiles`, on the store's thread.

    Attributes:
        info: Path, sizes and present header of the file.
    """

    def __init__(self, file: File, info: IndexInfo, *, real_bytes: int = 0) -> None:
        """Map `file`, which is known to be real up to `real_bytes`."""
        self.info = info
        try:
            self._mapped = MappedFile(file, 0)
            self._mapped.real_bytes = real_bytes
        finally:
            file.park()

    def reserve(self, count: int) -> None:
        """Make the space of the slots and of `count` more entries real, as far as they fit.

        Raises:
            OSError: There is no space, or the disk failed. The file is as before.
        """
        sizes = self.info.sizes
        last = min(self.info.header.next_number + count, sizes.entries)
        self._mapped.make_real(step_end(sizes.entry_at(last), sizes.file_bytes))

    def put(self, hashes: Hashes, offsets: Ints, stored_at_ms: Ints) -> None:
        """Add entries, at least one. They fit, and their space is real.

        A plain read meanwhile finds complete chains: an entry is written before the slot that
        refers to it.
        """
        if len(hashes) <= _FEW_ENTRIES:
            self.put_few(hashes.tolist(), offsets.tolist(), stored_at_ms.tolist())
            return
        begin_ms = self._begin_ms(int(stored_at_ms[0]))
        slots_taken = self._put_many(hashes, offsets, stored_at_ms, begin_ms)
        newest = int(offsets[-1]), int(stored_at_ms[-1])
        self._added(len(hashes), begin_ms, int(offsets[0]), *newest, slots_taken)

    def put_few(
        self, hashes: Sequence[int], offsets: Sequence[int], stored_at_ms: Sequence[int]
    ) -> None:
        """Add entries, as `put` does, one by one: numpy would cost more for a few."""
        sizes, first, view = self.info.sizes, self.info.header.next_number, self._mapped.view
        begin_ms = self._begin_ms(stored_at_ms[0])
        linked = link_entries(hashes, offsets, stored_at_ms, begin_ms, sizes, first, view)
        begin = sizes.entry_at(first)
        view[begin : begin + len(linked.entries)] = linked.entries
        for slot, number in linked.slots.items():
            view[slot_at(slot) : slot_at(slot + 1)] = encode_slot(number)
        newest = offsets[-1], stored_at_ms[-1]
        self._added(len(hashes), begin_ms, offsets[0], *newest, linked.slots_taken)

    def _begin_ms(self, stored_at_ms: int) -> int:
        """Return the store time of the file's first record, which may be the next one's."""
        header = self.info.header
        return stored_at_ms if header.next_number <= 1 else header.begin_ms

    def _added(
        self, count: int, begin_ms: int, first: int, last: int, last_ms: int, slots_taken: int
    ) -> None:
        """Write the header behind new entries of the records at `first` to `last` in the log."""
        header = self.info.header
        self._set_header(
            IndexHeader(
                begin_ms,
                last_ms,
                first if header.next_number <= 1 else header.begin_offset,
                last,
                header.slots_used + slots_taken,
                header.next_number + count,
            )
        )

    def _put_many(self, hashes: Hashes, offsets: Ints, stored_at_ms: Ints, begin_ms: int) -> int:
        """Write all entries and slots at once; return how many slots were empty."""
        sizes, first = self.info.sizes, self.info.header.next_number
        # A local view: none may exist when the file is unmapped.
        slots = self._mapped.bytes[HEADER_BYTES : sizes.entry_at(0)].view(SLOT)
        chained = chain(hashes, sizes.slots, first, lambda rows: slots[rows].astype(np.int64))
        entries = make_entries(hashes, offsets, stored_at_ms, chained.previous, begin_ms)
        begin, end = sizes.entry_at(first), sizes.entry_at(first + len(hashes))
        self._mapped.bytes[begin:end] = layout_bytes(entries, ENTRY)
        slots[chained.slots] = chained.newest
        return chained.slots_taken

    def follow(self, before: IndexHeader) -> None:
        """Copy the end of the previous header, as RocketMQ does in a new file."""
        at, offset = before.end_ms, before.end_offset
        self._set_header(IndexHeader(at, at, offset, offset))

    def _set_header(self, header: IndexHeader) -> None:
        self._mapped.view[:HEADER_BYTES] = header.encode()
        self.info = IndexInfo(self.info.path, self.info.sizes, header)

    def close(self) -> None:
        """Unmap and close."""
        self._mapped.close()


def read_entries(file: File, sizes: IndexSizes, first: int, count: int) -> Entries:
    """Return up to `count` entries from number `first` on, by a plain read."""
    data = file.read(sizes.entry_at(first), min(count, sizes.entries - first) * ENTRY_BYTES)
    return decode_entries(data)


def read_slot(file: File, slot: int) -> int:
    """Return the number of the newest entry of a slot's chain; 0 or less = none."""
    found = decode_slots(file.read(slot_at(slot), SLOT_BYTES))
    return int(found[0]) if len(found) else 0


def open_info(files: FileSystem, path: Path, known: Sequence[IndexSizes]) -> IndexInfo | None:
    """Return path, sizes and header of the file at `path`; None if it is no index file.

    A file does not contain its count of slots. The sizes are those of `known` or RocketMQ's, if the
    length and the first entry fit; else a search finds the last entry of the header, at a position
    where the slot of its hash refers to it.
    """
    with closing(files.open(path)) as file:
        length = file.size()
        header = decode_header(file.read(0, HEADER_BYTES))
        if min(header) < 0:
            return None
        for sizes in likely_sizes(length, known):
            if _begins_well(file, sizes, header):
                return IndexInfo(path, sizes, header)
        if header.next_number > 1:
            for sizes in _search_sizes(file, length, header):
                info = IndexInfo(path, sizes, header)
                if _begins_well(file, sizes, header) and _ends_well(file, info):
                    return info
        return None


def _begins_well(file: File, sizes: IndexSizes, header: IndexHeader) -> bool:
    if not 1 <= header.next_number <= sizes.entries:
        return False
    entries = read_entries(file, sizes, 0, 2)
    if header.next_number == 1:
        return not layout_bytes(entries, ENTRY).any()
    return (
        not layout_bytes(entries[:1], ENTRY).any()
        and int(entries["offset"][1]) == header.begin_offset
        and int(entries["previous"][1]) == 0
        and int(entries["hash"][1]) >= 0
    )


def _search_sizes(file: File, length: int, header: IndexHeader) -> Sequence[IndexSizes]:
    found: list[IndexSizes] = []
    for position in range(length % ENTRY_BYTES, length, _PIECE_BYTES):
        window = file.read(position, min(_PIECE_BYTES, length - position))
        window = window[: len(window) - len(window) % ENTRY_BYTES]
        found += sizes_by_entry(length, header, position, window)
    return found


def _ends_well(file: File, info: IndexInfo) -> bool:
    number = info.header.next_number - 1
    last = read_entries(file, info.sizes, number, 1)
    return (
        len(last) == 1
        and int(last["offset"][0]) == info.header.end_offset
        and read_slot(file, int(last["hash"][0]) % info.sizes.slots) == number
    )


def is_sound(files: FileSystem, info: IndexInfo) -> bool:
    """Return whether header and slots agree with the last entry, as after each clean stop."""
    if info.header.next_number == 1:
        return True
    with closing(files.open(info.path)) as file:
        return _ends_well(file, info)


def keys_of_last(files: FileSystem, info: IndexInfo) -> int:
    """Return how many of the newest entries are of the record at the header's end offset."""
    with closing(files.open(info.path)) as file:
        count, end = 0, info.header.next_number
        while end > 1:
            first = max(end - _TAIL_ENTRIES, 1)
            entries = read_entries(file, info.sizes, first, end - first)
            others = np.flatnonzero(entries["offset"] != info.header.end_offset)
            if len(others):
                return count + len(entries) - 1 - int(others[-1])
            count, end = count + len(entries), first
        return count


def repair(files: FileSystem, info: IndexInfo, limit: int) -> IndexInfo:
    """Cut a file behind its good entries of records before `limit`, and sync it.

    Header and slots are rebuilt from these entries, and the bytes behind them are zeroed.

    Raises:
        OSError: The disk failed.
    """
    with closing(files.open(info.path)) as file:
        slots = np.zeros(info.sizes.slots, dtype=SLOT)
        count, last = _walk(file, info, limit, slots)
        header = IndexHeader()
        if count > 1:
            seconds = int(last["seconds"]) if count > 2 else 0
            end_ms = info.header.begin_ms + seconds * 1000 + 999  # an entry has whole seconds only
            header = info.header._replace(
                end_ms=min(info.header.end_ms, end_ms),
                end_offset=int(last["offset"]),
                slots_used=int(np.count_nonzero(slots)),
                next_number=count,
            )
        _write_changed(file, HEADER_BYTES, layout_bytes(slots, SLOT).data)
        for position in range(info.sizes.entry_at(count), info.sizes.file_bytes, _PIECE_BYTES):
            length = min(_PIECE_BYTES, info.sizes.file_bytes - position)
            _write_changed(file, position, bytes(length))
        file.write(0, header.encode())
        file.sync()
        return replace(info, header=header)


def _walk(
    file: File, info: IndexInfo, limit: int, slots: "np.ndarray[tuple[int], np.dtype[np.int32]]"
) -> tuple[int, Entries]:
    """Put the good entries before `limit` into `slots`; return the next number and the last one."""
    count, after, end = 1, info.header.begin_offset, info.header.next_number
    last: Entries = np.zeros((), dtype=ENTRY)
    while count < end:
        asked = min(_PIECE_ENTRIES, end - count)
        entries = read_entries(file, info.sizes, count, asked)
        good = good_entries(entries, count, after, limit)
        if good < asked:
            end = count + good
            continue
        hashes = entries["hash"].astype(np.int32)
        chained = chain(hashes, info.sizes.slots, count, lambda at: slots[at].astype(np.int64))
        # The link of an entry that a power loss has torn is mostly wrong.
        differs = chained.previous != entries["previous"]
        if differs.any():
            end = count + int(differs.argmax())
            continue
        slots[chained.slots] = chained.newest
        last, count = entries[-1], count + asked
        after = int(last["offset"])
    return count, last


def _write_changed(file: File, position: int, data: bytes | memoryview) -> None:
    """Write the pieces of `data` that differ from the file: zeros then need no space either."""
    for begin in range(0, len(data), _SLOT_PIECE_BYTES):
        piece = data[begin : begin + _SLOT_PIECE_BYTES]
        if file.read(position + begin, len(piece)) != piece:
            file.write(position + begin, piece)
