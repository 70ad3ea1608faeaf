"""Recovery of deliveries that earlier uses of a store made but did not save.

A delivered record contains the offset of its source, and so does a rolled one. A crash may come
before progress is saved, so the next start searches the log from an offset that is saved with the
progress: a message with a copy there does not wait any more. That offset stays before each copy
until saved progress covers its source.
"""

import contextlib
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints
from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.properties import PAIR_END_BYTE, SOURCE, decode_properties, encode_name
from ternmq_model.record.format import decode_record
from ternmq_model.record.scanner import follow_lengths
from ternmq_store.message_store import MessageStore
from ternmq_store.read.log_source import LogSource

SEARCH_BYTES_MAX: Final = 64 << 20
"""Bytes of the log to search after which, while messages wait, a later offset is saved."""

_UNITS: Final = 65_536

_CHUNK_BYTES: Final = 8 << 20
_RECORDS_MAX: Final = 1 << 20
_PAIR: Final = re.compile(re.escape(encode_name(SOURCE)) + b"[0-9]+" + PAIR_END_BYTE)


class Copies(NamedTuple):
    """Messages of a queue with copies in the log: columns of one length."""

    offsets: Ints
    """Queue offsets of the messages."""

    codes: Ints
    """Due code of each message."""

    physical_offsets: Ints
    """Physical offsets of the copies."""

    def rows(self, chosen: NDArray[np.bool_]) -> "Copies":
        """Return the messages in the chosen rows."""
        return Copies(*(column[chosen] for column in self))

    def between(self, begin: int, end: int) -> frozenset[int]:
        """Return the queue offsets from `begin` on and before `end`."""
        first, last = np.searchsorted(self.offsets, [begin, end]).tolist()
        return frozenset(self.offsets[first:last].tolist())


NO_COPIES: Final = Copies(*np.zeros((3, 0), dtype=np.int64))


def copies_of(
    store: MessageStore, topic: str, queue_id: int, begin: int, found: Mapping[int, PhysicalOffset]
) -> Copies:
    """Return the messages of a queue, from `begin` on, that have copies; ascending.

    Args:
        store: Open store.
        topic: Topic of the queue.
        queue_id: Number of the queue.
        begin: Queue offset of the first message.
        found: Offsets of the copies in the log, by the offset of their source.
    """
    first, end = store.queue_range(topic, queue_id)
    at = QueueOffset(max(begin, first))
    if not found or at >= end:
        return NO_COPIES
    sources = np.array(sorted(found), dtype=np.int64)
    physical = np.array([found[each] for each in sources.tolist()], dtype=np.int64)
    parts: list[Copies] = []
    while at < end:
        units = store.searches.places_at(topic, queue_id, at, _UNITS)
        codes = store.searches.codes_at(topic, queue_id, at, _UNITS)
        rows = np.flatnonzero(np.isin(units, sources))
        copies = physical[np.searchsorted(sources, units[rows])]
        parts.append(Copies(at + rows, codes[rows], copies))
        at = QueueOffset(at + len(units))
    return Copies(*map(np.concatenate, zip(*parts, strict=True)))


def delivered_sources(source: LogSource, begin: PhysicalOffset) -> Mapping[int, PhysicalOffset]:
    """Return the log offset of the last copy of each source, by the source's log offset. Blocks.

    Records behind a damaged range of a file are not found: they are delivered again.

    Args:
        source: Log to search.
        begin: First offset to search: a record begins there, or the log ends.

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
            text = "" if record is None else decode_properties(record.properties).get(SOURCE, "")
            if text.isascii() and text.isdigit():
                yield int(text), starts[row]
