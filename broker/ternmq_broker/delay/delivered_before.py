"""What earlier uses have delivered beyond the progress that they kept.

A delivered record tells where its source waited. A crash comes before progress is kept, so what the
log holds behind the place that is kept with it is looked through at the next start: nothing that
lies there is delivered again.
"""

import contextlib
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.properties import SOURCE, decode_properties
from ternmq_model.record import decode_record
from ternmq_model.record_scan import follow_lengths
from ternmq_store.reading.source import Source

LOOK_BYTES_MAX: Final = 64 << 20
"""While messages wait, the place is kept anew when so much of the log lies behind it."""

_CHUNK_BYTES: Final = 8 << 20
_RECORDS_MAX: Final = 1 << 20
_PAIR: Final = re.compile(re.escape(SOURCE.encode()) + b"\x01[0-9]+\x02")


def delivered_sources(source: Source, begin: PhysicalOffset) -> frozenset[int]:
    """Return where the sources of delivered records waited. Blocks.

    A damaged stretch hides what lies behind it in its file: that is delivered again.

    Args:
        source: The log.
        begin: Where to look from: a record begins there, or the log ends.

    Raises:
        OSError: The disk failed.
    """
    found: set[int] = set()
    at = max(begin, source.start)
    while at < source.end:
        file, base = source.open(at)
        file_end = base + source.file_bytes
        with contextlib.closing(file):
            data = file.read(at - base, min(_CHUNK_BYTES, file_end - at, source.end - at))
        starts, end, _ = follow_lengths(memoryview(data), 0, len(data), _RECORDS_MAX)
        found.update(_sources(data, starts, end))
        at = PhysicalOffset(at + end if starts else file_end)
    return frozenset(found)


def _sources(data: bytes, starts: Sequence[int], end: int) -> Iterator[int]:
    rows = {bisect_right(starts, pair.start()) - 1 for pair in _PAIR.finditer(data, 0, end)}
    for row in rows:
        with contextlib.suppress(CorruptRecord):
            record = decode_record(data, starts[row])
            place = "" if record is None else decode_properties(record.properties).get(SOURCE, "")
            if place.isascii() and place.isdigit():
                yield int(place)
