"""Extension of a consume queue: bit maps and long tag codes (docs/formats/consume-queue-ext.md).

A unit: size 2 | tag code 8 | store time 8 | bit map length 2 | bit map, big-endian. The consume
queue's unit then contains the address of that unit in place of the tag code: a number below all tag
codes. Four bytes of a file always stay free; a size of -1 refers to the next file.

Source: RocketMQ `ConsumeQueueExt`.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import base_of, file_name, queue_ext_folder
from ternmq_store.disk.mapped_file import MappedFile
from ternmq_store.queues.appended_files import AppendedFiles
from ternmq_store.queues.ext_units import (
    END_MARK,
    EXT_HEADER,
    EXT_UNIT_BYTES_LEAST,
    EXT_UNIT_BYTES_MAX,
    FIRST_ADDRESS,
    BitMapFilter,
    ExtUnit,
    encode_ext_unit,
    ext_units_at,
    find_ext_unit,
)

CONSUME_QUEUE_EXT_FILE_BYTES: Final = 48 << 20
_END_BYTES: Final = 4
ADDRESS_MAX: Final = -(1 << 31) - 1
"""Greatest address of an extension unit; greater values are tag codes."""

_PIECE_BYTES: Final = 1 << 16


class ExtRows(NamedTuple):
    """Content of the extension units of a batch."""

    stored_at_ms: Ints
    bit_maps: Sequence[bytes]
    """Bit map of each message; empty = no filter is known."""

    def at(self, rows: Ints) -> "ExtRows":
        """Return the content of some rows."""
        return ExtRows(self.stored_at_ms[rows], [self.bit_maps[row] for row in rows.tolist()])


def rows_from(rows: ExtRows | None, first: int, last: int) -> ExtRows | None:
    """Return the content of the rows from `first` on before `last`; None without an extension."""
    return None if rows is None else rows.at(np.arange(first, last))


class TagCodes(NamedTuple):
    """The tag codes of units."""

    codes: Ints
    is_known: NDArray[np.bool_] | None
    """True for known codes; None = all are known. A filter must treat the others as matches."""

    def of(self, rows: slice | Ints | Sequence[int]) -> "TagCodes":
        """Return the tag codes of some rows."""
        return TagCodes(self.codes[rows], None if self.is_known is None else self.is_known[rows])


def is_address(tag_codes: Ints) -> NDArray[np.bool_]:
    """Return for each tag code of a consume queue whether it is an address of an ext unit."""
    return tag_codes <= ADDRESS_MAX


def plain_tag_codes(units: NDArray[np.void]) -> TagCodes:
    """Return the tag codes in a consume queue's units, without a look-up in its extension."""
    codes = units["tag_code"].astype(np.int64)
    elsewhere = is_address(codes)
    return TagCodes(codes, ~elsewhere if elsewhere.any() else None)


def _codes_in(headers: NDArray[np.void]) -> tuple[Ints, NDArray[np.bool_]]:
    bit_map_bytes = headers["bit_map_bytes"].astype(np.int64)
    is_known = (bit_map_bytes >= 0) & (headers["size"] == bit_map_bytes + EXT_UNIT_BYTES_LEAST)
    return headers["tag_code"].astype(np.int64), is_known


class ExtLookup(ABC):
    """Look-up of extension units by their addresses, from maps or by plain reads."""

    @abstractmethod
    def _units(
        self, codes: Ints, rows: Ints, kind: "np.dtype[np.void]"
    ) -> Iterator[tuple[Ints, NDArray[np.void]]]:
        """Yield rows whose addresses lie in one file, with what begins there, file by file."""

    def tag_codes(self, units: NDArray[np.void]) -> TagCodes:
        """Return the tag codes of a consume queue's units, from the units or the extension.

        Raises:
            OSError: The disk failed.

        Source: RocketMQ `ConsumeQueue.getExt`, `ConsumeQueue.isExtAddr`.
        """
        codes, is_known = plain = plain_tag_codes(units)
        if is_known is None:
            return plain
        rows = np.flatnonzero(~is_known)
        for inside, headers in self._units(codes, rows, EXT_HEADER):
            codes[inside], is_known[inside] = _codes_in(headers)
        return TagCodes(codes, None if is_known.all() else is_known)

    def may_match(self, units: NDArray[np.void], test: BitMapFilter) -> NDArray[np.bool_]:
        """Return for each unit of a consume queue whether a filter may match it.

        Raises:
            OSError: The disk failed.
        """
        codes, is_known = plain_tag_codes(units)
        matched = np.ones(len(units), dtype=np.bool_)
        if is_known is not None:
            rows = np.flatnonzero(~is_known & (units["offset"] >= test.begin))
            for inside, found in self._units(codes, rows, test.unit_type):
                matched[inside] = test.may_match(found)
        return matched


@dataclass(frozen=True, slots=True)
class ExtSource(ExtLookup):
    """Folder of one queue's extension: plain values, for any thread."""

    files: FileSystem
    folder: Path
    file_bytes: int

    def _units(
        self, codes: Ints, rows: Ints, kind: "np.dtype[np.void]"
    ) -> Iterator[tuple[Ints, NDArray[np.void]]]:
        offsets = codes[rows] - FIRST_ADDRESS
        bases = offsets - offsets % self.file_bytes
        for base in np.unique(bases).tolist():
            inside = bases == base
            with contextlib.suppress(FileNotFoundError):  # deleted since
                yield rows[inside], self._read(base, offsets[inside] - base, kind)

    def _read(self, base: int, positions: Ints, kind: "np.dtype[np.void]") -> NDArray[np.void]:
        """Return the units at positions of one file; zeros where a position is too near its end."""
        found = np.zeros(len(positions), dtype=kind)
        order = np.argsort(positions, kind="stable")
        cuts = np.flatnonzero(np.diff(positions[order]) > _PIECE_BYTES) + 1
        with contextlib.closing(
            self.files.open(self.folder / file_name(base), read_only=True)
        ) as file:
            for rows in np.split(order, cuts):
                begin, end = int(positions[rows[0]]), int(positions[rows[-1]]) + kind.itemsize
                data = file.read(begin, end - begin)
                rows = rows[positions[rows] + kind.itemsize <= begin + len(data)]
                if len(rows):
                    found[rows] = ext_units_at(memoryview(data), positions[rows] - begin, kind)
        return found


class ConsumeQueueExt(AppendedFiles, ExtLookup):
    """Extension units of one queue.

    Owned by its `ConsumeQueue`, on the store's thread.

    Attributes:
        end: Offset behind the last unit.
    """

    def __init__(
        self, files: FileSystem, root: Path, topic: str, queue_id: int, file_bytes: int
    ) -> None:
        super().__init__(files, queue_ext_folder(root, topic, queue_id), file_bytes)
        self.end = 0

    def source(self) -> ExtSource:
        """Return the source of the units, for reads in another thread."""
        return ExtSource(self._file_system, self.files.folder, self.files.file_bytes)

    def reserve(self, count: int, unit_bytes: int) -> None:
        """Make space real for `count` units more.

        Raises:
            OSError: There is no space, or the disk failed. The queue is as before.
        """
        if count > 0:
            self._make_real(self.end, self.end + count * unit_bytes + _END_BYTES)

    def append(self, tag_codes: Ints, rows: ExtRows) -> Ints:
        """Add units and return their addresses. A bit map that is too long is left out.

        Raises:
            OSError: There was no space, and none was reserved. Nothing was added.

        Source: RocketMQ `ConsumeQueueExt.put`.
        """
        at, file_bytes = self.end, self.files.file_bytes
        runs: list[tuple[int, bytearray]] = [(at, bytearray())]
        places: list[int] = []
        for code, stored_at_ms, bits in zip(
            tag_codes.tolist(), rows.stored_at_ms.tolist(), rows.bit_maps, strict=True
        ):
            bit_map = bits if EXT_UNIT_BYTES_LEAST + len(bits) <= EXT_UNIT_BYTES_MAX else b""
            size = EXT_UNIT_BYTES_LEAST + len(bit_map)
            file_end = base_of(at, file_bytes) + file_bytes
            if at + size + _END_BYTES > file_end:
                runs[-1][1].extend(END_MARK)
                at = file_end
                runs.append((at, bytearray()))
            runs[-1][1].extend(encode_ext_unit(code, stored_at_ms, bit_map))
            places.append(at)
            at += size
        self._make_real(self.end, at + _END_BYTES)
        for start, data in runs:
            if data:
                file = self.files.at(start)
                position = start - file.base
                file.bytes[position : position + len(data)] = np.frombuffer(data, dtype=np.uint8)
        if self._dirty_from is None:
            self._dirty_from = self.end
        self.end = at
        return np.array(places, dtype=np.int64) + FIRST_ADDRESS

    def unit(self, address: int) -> ExtUnit | None:
        """Return the unit at `address`; None if there is none."""
        offset = address - FIRST_ADDRESS
        if offset < 0 or not self.files.has(offset):
            return None
        file = self.files.at(offset)
        return find_ext_unit(file.view, offset - file.base)

    def _units(
        self, codes: Ints, rows: Ints, kind: "np.dtype[np.void]"
    ) -> Iterator[tuple[Ints, NDArray[np.void]]]:
        offsets = codes[rows] - FIRST_ADDRESS
        for file in self.files.files:
            inside = (offsets >= file.base) & (offsets <= file.end - kind.itemsize)
            if inside.any():
                yield rows[inside], ext_units_at(file.view, offsets[inside] - file.base, kind)

    def cut_behind(self, address: int | None) -> None:
        """Cut the units behind the one at `address`, and wipe their bytes.

        Args:
            address: Newest address in the consume queue; None = there is none.

        Raises:
            OSError: The disk failed.

        Source: RocketMQ `ConsumeQueueExt.truncateByMaxAddress`.
        """
        end = 0
        if address is not None:
            offset, unit = address - FIRST_ADDRESS, self.unit(address)
            # The end of a lost last unit is unknown: the next file is free.
            end = (
                base_of(offset, self.files.file_bytes) + self.files.file_bytes
                if unit is None
                else offset + EXT_UNIT_BYTES_LEAST + len(unit.bit_map)
            )
        if self.files.files and self.files.last.end < end:
            self.files.drop_from(0)
        self._drop_files(end)
        if self.files.files and self._wipe(end):
            self._mark_dirty(end)
        self.end = end
        self._real_end = base_of(end, self.files.file_bytes)
        if self.files.files:
            self._real_end = self.files.last.base + self.files.last.real_bytes

    def delete_before(self, address: int) -> Sequence[MappedFile]:
        """Release the files before the unit at `address`; the caller removes them, oldest first.

        Source: RocketMQ `ConsumeQueueExt.truncateByMinAddress`.
        """
        return self.files.drop_before(address - FIRST_ADDRESS)

    def take_dirty(self) -> Sequence[Path]:
        """Return the files with unsynced units; the caller syncs them."""
        return self._take_dirty(self.end)
