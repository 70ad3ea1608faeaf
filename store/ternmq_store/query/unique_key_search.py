"""Search for stored messages by their unique keys.

The search serves producers that repeat messages without an answer, so all appended records count,
indexed or not. It first tests records that are not dispatched yet, by the keys of their requests or
from the log, and then the index.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.index_keys import KeyRows, find_keys
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.properties import UNIQUE_KEY, decode_properties
from ternmq_model.record.format import RecordHeader
from ternmq_model.record.scanner import SCAN_BYTES_MAX, Verify
from ternmq_store.dispatch.log_dispatcher import UndispatchedRange
from ternmq_store.index.index_lookup import IndexLookup
from ternmq_store.read.log_source import LogSource
from ternmq_store.read.record_reader import RecordReader

UNIQUE_KEYS_MAX: Final = 64
"""Most keys of one search."""


@dataclass(frozen=True, slots=True)
class UniqueKeySearch:
    """Search for unique keys of a topic; `run` may be called in any thread."""

    topic: str
    keys: Sequence[str]
    floor: PhysicalOffset
    """Log offset before which records of the topic no longer count."""

    source: LogSource
    undispatched: Sequence[UndispatchedRange]
    """Undispatched ranges, in the order of the log."""

    lookup: IndexLookup | None
    """Look-up of the hashes, in the order of `keys`; None = no index."""

    hashes: Sequence[int]
    accepts: Callable[[Mapping[str, str]], bool] = lambda _properties: True
    """Function of the properties that returns whether a record with one of the keys counts."""

    def run(self) -> dict[str, RecordHeader]:
        """Return the header of the newest record of each existing key.

        Raises:
            OSError: The disk failed.
        """
        found: dict[str, RecordHeader] = {}
        with closing(RecordReader(self.source)) as reader:
            self._take(reversed(list(self._undispatched_offsets())), reader, found)
            if self.lookup is not None:
                for key, code in zip(self.keys, self.hashes, strict=True):
                    if key not in found:
                        self._take(self.lookup.offsets(code), reader, found, only=key)
        return found

    def _take(
        self,
        offsets: Iterable[PhysicalOffset],
        reader: RecordReader,
        found: dict[str, RecordHeader],
        only: str = "",
    ) -> None:
        """Read records, newest first, until every key is found, or the key `only`."""
        for offset in offsets:
            read = reader.read(offset) if offset >= self.floor else None
            if read is not None and read.record.topic == self.topic.encode():
                properties = decode_properties(read.record.properties)
                key = properties.get(UNIQUE_KEY, "") if self.accepts(properties) else ""
                if key in self.keys:
                    found.setdefault(key, read.record.header)
            if (only in found) if only else len(found) == len(self.keys):
                return

    def _undispatched_offsets(self) -> Iterator[PhysicalOffset]:
        """Yield the log offsets of undispatched records with one of the hashes, oldest first."""
        for waiting in self.undispatched:
            if waiting.keys is not None:
                yield from self._matches(waiting.keys, waiting.offsets)
            else:
                yield from self._read_through(waiting.start, min(waiting.end, self.source.end))

    def _matches(self, keys: KeyRows, offsets: Ints) -> Iterator[PhysicalOffset]:
        rows = np.unique(keys.rows[np.isin(keys.hashes, self.hashes)])
        yield from map(PhysicalOffset, offsets[rows].tolist())

    def _read_through(self, at: PhysicalOffset, end: PhysicalOffset) -> Iterator[PhysicalOffset]:
        while at < end:
            step = self.source.step(at, end, verify=Verify.NOTHING, search_bytes=SCAN_BYTES_MAX)
            if step.batch is not None:
                offsets = step.batch.headers["physical_offset"].astype(np.int64)
                yield from self._matches(find_keys(step.batch), offsets)
            at = step.end
