"""Search for messages that are stored already, by their unique keys.

For producers that send again what they had no answer to: what is appended counts, indexed or not.
First come records that wait for the index, with the keys of their dispatch requests or read from
the log; then the index.
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
from ternmq_model.record.format import BLANK_BYTES, RecordHeader, decode_record
from ternmq_model.record.scanner import SCAN_BYTES_MAX, Verify, scan_records
from ternmq_store.dispatch.log_dispatcher import UndispatchedRange
from ternmq_store.index.index_lookup import IndexLookup
from ternmq_store.read.cold_read import ColdRecord
from ternmq_store.read.log_source import LogSource

UNIQUE_KEYS_MAX: Final = 64
"""No more are looked up at once."""

_RECORDS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class UniqueKeySearch:
    """Search for unique keys of a topic; `run` may be called in any thread."""

    topic: str
    keys: Sequence[str]
    floor: PhysicalOffset
    """Records of the topic before it count no more."""

    source: LogSource
    undispatched: Sequence[UndispatchedRange]
    """In the order of the log."""

    lookup: IndexLookup | None
    """For hashes in the order of `keys`."""

    hashes: Sequence[int]
    accepts: Callable[[Mapping[str, str]], bool] = lambda _properties: True
    """Tells by its properties whether a record with one of the keys is looked for."""

    def run(self) -> dict[str, RecordHeader]:
        """Return the header of the newest record of each key that there is.

        Raises:
            OSError: The disk failed.
        """
        found: dict[str, RecordHeader] = {}
        self._take(reversed(list(self._undispatched_offsets())), found)
        if self.lookup is not None:
            for key, wanted in zip(self.keys, self.hashes, strict=True):
                if key not in found:
                    self._take(self.lookup.offsets(wanted), found, only=key)
        return found

    def _take(
        self, offsets: Iterable[PhysicalOffset], found: dict[str, RecordHeader], only: str = ""
    ) -> None:
        """Read records, the newest first, until every key is found, or `only` that one."""
        for offset in offsets:
            if max(self.floor, self.source.start) <= offset < self.source.end:
                key, header = self._read(offset)
                if header is not None and key in self.keys:
                    found.setdefault(key, header)
            if (only in found) if only else len(found) == len(self.keys):
                return

    def _read(self, offset: PhysicalOffset) -> tuple[str, RecordHeader | None]:
        read = ColdRecord(self.source, offset, ())
        read.run()
        record = None if read.record is None else decode_record(read.record, check_crc=False)
        if record is None or record.topic != self.topic.encode():
            return "", None
        properties = decode_properties(record.properties)
        return properties.get(UNIQUE_KEY, "") if self.accepts(properties) else "", record.header

    def _undispatched_offsets(self) -> Iterator[PhysicalOffset]:
        """Yield where undispatched records with one of the hashes lie, the oldest first."""
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
            file, base = self.source.open(at)
            with closing(file):
                data = file.read(at - base, SCAN_BYTES_MAX * 2 + BLANK_BYTES)
            limit = min(len(data), end - at, base + self.source.file_bytes - at)
            found = scan_records(
                memoryview(data), 0, limit, at=at, records_max=_RECORDS_MAX, verify=Verify.NOTHING
            )
            if found.batch is not None:
                offsets = found.batch.headers["physical_offset"].astype(np.int64)
                yield from self._matches(find_keys(found.batch), offsets)
            if found.is_blank:
                at = PhysicalOffset(base + self.source.file_bytes)
            elif found.end:
                at = PhysicalOffset(at + found.end)
            else:
                return
