"""Recovery of deliveries that earlier uses made beyond the progress that they kept.

A delivered record tells where its source waited, and so does one that was laid anew to wait. A
crash comes before progress is kept, so the log is looked through at the next start, behind the
place that is kept with progress: what has a copy there does not wait any more. That place stays
before each copy until kept progress tells of its source.
"""

import contextlib
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import SOURCE, decode_properties
from ternmq_model.record.format import decode_record
from ternmq_model.record.scanner import follow_lengths
from ternmq_store.message_store import MessageStore
from ternmq_store.read.log_source import LogSource

LOOK_BYTES_MAX: Final = 64 << 20
"""Bytes of the log behind the kept place after which, while messages wait, it is kept anew."""

_UNITS: Final = 65_536

_CHUNK_BYTES: Final = 8 << 20
_RECORDS_MAX: Final = 1 << 20
_PAIR: Final = re.compile(re.escape(SOURCE.encode()) + b"\x01[0-9]+\x02")


class Copies(NamedTuple):
    """Messages of a queue of which the log has copies: columns of one length."""

    offsets: Ints
    """In that queue."""

    codes: Ints
    """Each unit's code, which says when its message is due."""

    places: Ints
    """Physical offsets of the copies."""

    def between(self, begin: int, end: int) -> frozenset[int]:
        """Return the offsets, which ascend, from `begin` on and before `end`."""
        first, last = np.searchsorted(self.offsets, [begin, end]).tolist()
        return frozenset(self.offsets[first:last].tolist())


NO_COPIES: Final = Copies(*np.zeros((3, 0), dtype=np.int64))


def copies_of(
    store: MessageStore, topic: str, queue_id: int, begin: int, found: Mapping[int, PhysicalOffset]
) -> Copies:
    """Return which messages of a queue, from `begin` on, have copies; ascending.

    Args:
        store: Open.
        topic: Whose.
        queue_id: Of it.
        begin: The first message to look at, by its offset.
        found: By the place of each source, where its copy lies.
    """
    first, end = store.queue_range(topic, queue_id)
    at = QueueOffset(max(begin, first))
    if not found or at >= end:
        return NO_COPIES
    sources = np.array(sorted(found), dtype=np.int64)
    places = np.array([found[each] for each in sources.tolist()], dtype=np.int64)
    parts: list[Copies] = []
    while at < end:
        lies = store.searches.places_at(topic, queue_id, at, _UNITS)
        codes = store.searches.codes_at(topic, queue_id, at, _UNITS)
        rows = np.flatnonzero(np.isin(lies, sources))
        copies = places[np.searchsorted(sources, lies[rows])]
        parts.append(Copies(at + rows, codes[rows], copies))
        at = QueueOffset(at + len(lies))
    return Copies(*map(np.concatenate, zip(*parts, strict=True)))


def delivered_sources(source: LogSource, begin: PhysicalOffset) -> Mapping[int, PhysicalOffset]:
    """Return where the sources of records waited, each with the place of its last copy. Blocks.

    A damaged stretch hides what lies behind it in its file: that is delivered again.

    Args:
        source: The log.
        begin: Where to look from: a record begins there, or the log ends.

    Raises:
        OSError: The disk failed.
    """
    found: dict[int, PhysicalOffset] = {}
    at = max(begin, source.start)
    while at < source.end:
        file, base = source.open(at)
        file_end = base + source.file_bytes
        with contextlib.closing(file):
            data = file.read(at - base, min(_CHUNK_BYTES, file_end - at, source.end - at))
        starts, end, _ = follow_lengths(memoryview(data), 0, len(data), _RECORDS_MAX)
        found.update((each, PhysicalOffset(at + row)) for each, row in _sources(data, starts, end))
        at = PhysicalOffset(at + end if starts else file_end)
    return found


def _sources(data: bytes, starts: Sequence[int], end: int) -> Iterator[tuple[int, int]]:
    rows = {bisect_right(starts, pair.start()) - 1 for pair in _PAIR.finditer(data, 0, end)}
    for row in sorted(rows):
        with contextlib.suppress(CorruptRecord):
            record = decode_record(data, starts[row])
            place = "" if record is None else decode_properties(record.properties).get(SOURCE, "")
            if place.isascii() and place.isdigit():
                yield int(place), starts[row]
