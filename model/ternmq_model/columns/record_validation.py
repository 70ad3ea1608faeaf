"""Validation of records in a buffer, and decompression of their bodies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints
from ternmq_model.columns.slices import gather, parts_of, same_texts
from ternmq_model.compression import decompress
from ternmq_model.errors import CorruptBody, CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.checksum import crc31_of_ranges, match_checksums
from ternmq_model.record.format import (
    FLAG_COMPRESSED,
    MAGIC_V1,
    MAGIC_V2,
    OVERHEAD_BYTES,
    decode_record,
)
from ternmq_model.record.header_arrays import header_type, take_headers
from ternmq_model.record.integrity import has_lost_sector
from ternmq_model.record.layout import RecordLayout, lay_out

_HEAD: Final = header_type(0)


class DamagedRow(NamedTuple):
    """Damaged record, which has no row."""

    row: int
    """Index among the given records."""

    error: CorruptRecord


class ExpectedRecords(NamedTuple):
    """Expected values in the headers of records, and the depth of the check."""

    places: Ints
    """Log offsets of the records."""

    numbers: Ints | None = None
    """Queue offsets of the records. None = any offset of any queue."""

    queues: Sequence[tuple[bytes, int]] = ()
    """Topic and id of each queue."""

    queue_of: Ints | None = None
    """Index of each record's queue; None = the first."""

    is_sealed: bool = False
    """True = the checksum of the whole record must match; False = only that of the body."""

    def only(self, rows: Ints) -> "ExpectedRecords":
        """Return the expectations for the records `rows`."""
        return self._replace(
            places=self.places[rows],
            numbers=None if self.numbers is None else self.numbers[rows],
            queue_of=None if self.queue_of is None else self.queue_of[rows],
        )


@dataclass(frozen=True, slots=True)
class ValidRecords:
    """Valid records, in the given order."""

    view: bytes | memoryview
    layout: RecordLayout
    rows: Ints
    """Indices among the given records."""

    def only(self, keep: NDArray[np.bool_] | Ints) -> "ValidRecords":
        """Return the records that `keep` selects."""
        some = {each.name: getattr(self.layout, each.name)[keep] for each in fields(RecordLayout)}
        return ValidRecords(self.view, RecordLayout(**some), self.rows[keep])


@dataclass(frozen=True, slots=True)
class UnpackedBodies:
    """Decompressed bodies of records."""

    unpacked: Sequence[tuple[int, bytes | None]]
    """Bodies by row, ascending; None = a null."""

    broken: Sequence[tuple[int, CorruptBody]]
    """Rows with bodies that cannot be decompressed."""

    rows: int
    """Number of the first rows within the limit, at least one."""

    def with_nulls(self) -> "UnpackedBodies":
        """Return the bodies with a null for each broken one."""
        nulls = [(row, None) for row, _ in self.broken]
        unpacked = sorted([*self.unpacked, *nulls], key=lambda each: each[0])
        return UnpackedBodies(unpacked, (), self.rows)


def find_records(
    view: bytes | memoryview,
    starts: Ints,
    sizes: Ints,
    expected: ExpectedRecords | None,
) -> tuple[ValidRecords | None, list[DamagedRow]]:
    """Return the valid records and the damaged ones, both in the given order.

    Args:
        view: Buffer with the records.
        starts: Positions of the records in it.
        sizes: Lengths of the records.
        expected: Facts that the records must state. None = any.
    """
    rows = np.arange(len(starts))
    ends = starts + sizes
    places = None if expected is None else expected.places
    damaged: list[DamagedRow] = []
    good = _have_heads(view, starts, sizes)
    layout: RecordLayout | int = 0
    if len(rows) and good.all():
        layout = lay_out(view, starts, ends, places)
    if isinstance(layout, int):
        damaged = _check_each(view, starts, sizes, places)
        rows = np.setdiff1d(rows, [each.row for each in damaged])
        if not len(rows):
            return None, damaged
        layout = lay_out(view, starts[rows], ends[rows], None)
        assert isinstance(layout, RecordLayout), "good records are good together"
    found = ValidRecords(view, layout, rows)
    required = expected.only(rows) if expected is not None and damaged else expected
    for bad, reason in _doubts(found, required):
        if bad.any():
            claimed = starts if places is None else places
            damaged += [
                DamagedRow(row, CorruptRecord(PhysicalOffset(int(claimed[row])), reason))
                for row in found.rows[bad].tolist()
                if all(row != each.row for each in damaged)
            ]
    if damaged:
        damaged.sort(key=lambda each: each.row)
        bad_rows = [each.row for each in damaged]
        found = found.only(~np.isin(found.rows, bad_rows))
    return found if len(found.rows) else None, damaged


def _doubts(
    found: ValidRecords, expected: ExpectedRecords | None
) -> Iterator[tuple[NDArray[np.bool_], str]]:
    """Yield masks of damaged records, each with its reason."""
    layout = found.layout
    if expected is not None and expected.numbers is not None:
        yield ~_are_of_place(found, expected), "the record there is another message's"
    if expected is not None and expected.is_sealed:
        sealed = match_checksums(found.view, layout.starts, layout.properties, layout.ends)
        yield ~sealed, "the record's checksum is missing or differs"
    else:
        yield ~_have_right_bodies(found.view, layout), "the body's checksum differs"
        if expected is not None:
            yield _have_lost_sectors(found, expected.places), "part of the properties is lost"


def _have_lost_sectors(found: ValidRecords, places: Ints) -> NDArray[np.bool_]:
    """Return a mask of the records with a sector of zeros in their properties."""
    layout = found.layout
    lost = np.zeros(len(layout.starts), dtype=np.bool_)
    texts = gather(found.view, layout.properties, layout.ends)
    data, bounds = parts_of(texts)
    rows = np.searchsorted(bounds, np.flatnonzero(data == 0), side="right") - 1
    for row in np.unique(rows).tolist():
        at = int(places[row] + layout.properties[row] - layout.starts[row])
        lost[row] = has_lost_sector(data[bounds[row] : bounds[row + 1]].tobytes(), at)
    return lost


def _are_of_place(found: ValidRecords, expected: ExpectedRecords) -> NDArray[np.bool_]:
    """Return a mask of the records with the expected queue and offset."""
    layout, headers = found.layout, found.layout.headers
    which = expected.queue_of
    topics = [topic for topic, _ in expected.queues]
    ids = np.array([queue_id for _, queue_id in expected.queues])
    good: NDArray[np.bool_] = headers["queue_offset"] == expected.numbers
    good &= headers["queue_id"] == (ids[0] if which is None else ids[which])
    same = same_texts(found.view, layout.topics, layout.topics + layout.topic_bytes, topics, which)
    good &= same
    return good


def _have_heads(view: bytes | memoryview, starts: Ints, sizes: Ints) -> NDArray[np.bool_]:
    """Return a mask of the records inside the buffer with the expected length."""
    good = (starts >= 0) & (sizes >= OVERHEAD_BYTES) & (starts + sizes <= len(view))
    if good.all() and len(good):
        headers = take_headers(view, starts, _HEAD)
        good = (headers["total_bytes"] == sizes) & (
            (headers["magic"] == MAGIC_V1) | (headers["magic"] == MAGIC_V2)
        )
    return good


def _check_each(
    view: bytes | memoryview, starts: Ints, sizes: Ints, places: Ints | None
) -> list[DamagedRow]:
    """Return the damage of each record, without a check of checksums."""
    damaged: list[DamagedRow] = []
    whole = memoryview(view)
    for row, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        at = _place(row, starts, places)
        try:
            if start < 0 or start + size > len(whole):
                raise CorruptRecord(at, f"only {max(len(whole) - start, 0)} bytes are left")
            claimed = None if places is None else at
            data = whole[start : start + max(size, 0)]
            record = decode_record(data, 0, at=claimed, check_crc=False)
            if record is None:
                raise CorruptRecord(at, "it is a blank record")
            if record.header.total_bytes != size:
                raise CorruptRecord(at, f"it is {record.header.total_bytes} bytes long")
        except CorruptRecord as error:
            damaged.append(DamagedRow(row, CorruptRecord(at, error.reason)))
    return damaged


def _place(row: int, starts: Ints, places: Ints | None) -> PhysicalOffset:
    return PhysicalOffset(int((starts if places is None else places)[row]))


def _have_right_bodies(view: bytes | memoryview, layout: RecordLayout) -> NDArray[np.bool_]:
    """Return a mask of the records whose body has the checksum of the header."""
    crcs = crc31_of_ranges(view, layout.bodies, layout.body_ends)
    good: NDArray[np.bool_] = crcs == layout.headers["body_crc"]
    good |= layout.bodies == layout.body_ends
    return good


def unpack_bodies(found: ValidRecords, bytes_max: int) -> UnpackedBodies:
    """Decompress bodies until records and bodies together reach the limit.

    Args:
        found: Valid records.
        bytes_max: Limit in bytes; the first record may exceed it.

    Raises:
        MissingPackage: A compressed body needs the extra `compression`.
    """
    layout = found.layout
    sizes = np.cumsum(layout.ends - layout.starts)
    count = max(int(np.searchsorted(sizes, bytes_max, side="right")), 1)
    flags = layout.headers["sys_flag"].astype(np.int64)
    compressed: list[int] = np.flatnonzero(flags[:count] & FLAG_COMPRESSED).tolist()
    if not compressed:
        return UnpackedBodies((), (), count)
    whole = memoryview(found.view)
    unpacked: list[tuple[int, bytes]] = []
    broken: list[tuple[int, CorruptBody]] = []
    more = 0
    for row in compressed:
        stored = bytes(whole[int(layout.bodies[row]) : int(layout.body_ends[row])])
        at = PhysicalOffset(int(layout.headers["physical_offset"][row]))
        try:
            body = decompress(stored, int(flags[row]), at=at)
        except CorruptBody as error:
            broken.append((row, CorruptBody(at, error.reason)))
            continue
        more += len(body)
        if row and more + int(sizes[row]) > bytes_max:
            return UnpackedBodies(unpacked, broken, row)
        unpacked.append((row, body))
    return UnpackedBodies(unpacked, broken, count)
