"""Comparison of index and log, both ways, beside the walk of the log."""

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ternmq_model.index_keys import key_hash
from ternmq_model.properties import KEY_SEPARATOR, KEYS, UNIQUE_KEY, decode_properties
from ternmq_model.record.format import FLAG_ROLLBACK, FLAG_TRANSACTION_MASK, Record
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.index.index_format import chain
from ternmq_store.inspection.audit_findings import AuditFinding, note, problem
from ternmq_store.inspection.index_inspection import (
    IndexHead,
    find_index_files,
    find_slots,
    read_index_head,
    read_slots,
    walk_entries,
)
from ternmq_store.inspection.log_inspection import FoundRecord


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry that waits for its record."""

    path: Path
    number: int
    key_hash: int
    offset: int


class IndexAudit:
    """Walk of all index files beside a walk of the log. Owned by one check.

    Entries have the log's order. Only those of the present record are held.

    Attributes:
        files: Count of files.
        entries: Count of entries so far.
    """

    def __init__(self, files: FileSystem, root: Path, *, log_start: int) -> None:
        self._files = files
        self._paths = find_index_files(files, root)
        self._log_start = log_start
        self._sound: list[tuple[IndexHead, int]] = []
        self._waiting: deque[_Entry] = deque()
        self._source = self._walk()
        self._begin: int | None = None
        self._last = -1
        self._missing = 0
        self._first_missing = 0
        self._unindexed: list[int] = []
        self.files = len(self._paths)
        self.entries = 0

    def check_files(self) -> Generator[AuditFinding]:
        """Yield the faults inside each file: header, entries, slots and chains."""
        for path in self._paths:
            head = read_index_head(self._files, path)
            if head is None:
                yield problem("index", path, None, "the header is cut")
                continue
            header = head.header
            if header.next_number == 1:
                continue
            slots = find_slots(self._files, head)
            if slots is None:
                yield problem("index", path, 0, "the entries are not where the header says")
                continue
            yield from self._check_chains(head, slots)
            self._sound.append((head, slots))
            if self._begin is None:
                self._begin = header.begin_offset
            self._last = max(self._last, header.end_offset)

    def _check_chains(self, head: IndexHead, slots: int) -> Generator[AuditFinding]:
        """Compute the chains of the entries, and compare them with the file."""
        newest = np.zeros(slots, dtype=np.int64)
        taken, wrong, first_wrong, below = 0, 0, 0, 0
        for found in walk_entries(self._files, head, slots):
            entries = found.entries
            expected = chain(
                entries["hash"].astype(np.int32), slots, found.first, lambda wanted: newest[wanted]
            )
            newest[expected.slots] = expected.newest
            taken += expected.slots_taken
            bad = np.flatnonzero(entries["previous"] != expected.previous)
            if len(bad) and not wrong:
                first_wrong = found.first + int(bad[0])
            wrong += len(bad)
            offsets = np.append(np.int64(below), entries["offset"].astype(np.int64))
            if (np.diff(offsets) < 0).any():
                text = "entries are not in the log's order"
                yield problem("index", head.path, None, text)
            below = int(offsets[-1])
        if wrong:
            text = f"{wrong} entries do not point to the previous entry of their slot, the first is"
            yield problem("index", head.path, None, f"{text} {first_wrong}")
        lost = np.flatnonzero(read_slots(self._files, head, slots) != newest)
        if len(lost):
            text = f"{len(lost)} slots do not point to their newest entry, the first is {lost[0]}"
            yield problem("index", head.path, None, text)
        if taken != head.header.slots_used:
            text = f"claims that {head.header.slots_used} slots are in use, not {taken}"
            yield problem("index", head.path, 32, text)

    def _walk(self) -> Generator[_Entry]:
        for head, slots in self._sound:
            for found in walk_entries(self._files, head, slots):
                rows = zip(
                    found.entries["hash"].tolist(), found.entries["offset"].tolist(), strict=True
                )
                self.entries += len(found.entries)
                for number, (code, offset) in enumerate(rows, found.first):
                    yield _Entry(head.path, number, code, offset)

    def check(self, found: FoundRecord) -> Generator[AuditFinding]:
        """Yield the faults of a record's entries, and the entries before it that have no record."""
        if self._begin is None:
            return
        strays = self._take(below=found.offset)
        yield from self._strays(strays)
        entries = self._take(below=found.offset + 1)
        expected = set(_hashes(found.record))
        had = {entry.key_hash for entry in entries}
        for entry in entries:
            if entry.key_hash not in expected:
                text = f"entry {entry.number} is of no key of the record at {entry.offset}"
                yield problem("index", entry.path, None, text)
        lacking = len(expected - had)
        if not lacking:
            return
        if found.offset > self._last:
            self._unindexed.append(found.offset)
            del self._unindexed[1:-1]
        else:
            if not self._missing:
                self._first_missing = found.offset
            self._missing += lacking

    def _take(self, *, below: int) -> Sequence[_Entry]:
        taken: list[_Entry] = []
        while True:
            if not self._waiting:
                entry = next(self._source, None)
                if entry is None:
                    return taken
                self._waiting.append(entry)
            if self._waiting[0].offset >= below:
                return taken
            taken.append(self._waiting.popleft())

    def _strays(self, entries: Sequence[_Entry]) -> Generator[AuditFinding]:
        strays = [entry for entry in entries if entry.offset >= self._log_start]
        if strays:
            text = f"{len(strays)} entries are of no record, the first is {strays[0].number}, of"
            yield problem("index", strays[0].path, None, f"{text} {strays[0].offset}")

    def finish(self, end: int, *, dispatched: int) -> Generator[AuditFinding]:
        """Yield the entries behind the last record, and the keys without an entry.

        Args:
            end: End of the log.
            dispatched: End of the newest record with a unit.
        """
        if self._begin is None:
            yield note("index", None, None, "there is no index: messages cannot be found by key")
            return
        strays = self._take(below=1 << 62)
        yield from self._strays([entry for entry in strays if entry.offset < end])
        behind = [entry for entry in strays if entry.offset >= end]
        if behind:
            text = f"{len(behind)} entries are of records behind the log's end, the first is"
            yield problem("index", behind[0].path, None, f"{text} {behind[0].number}")
        if self._missing:
            text = f"{self._missing} keys have no entry, the first is of the record at"
            yield problem("index", None, self._first_missing, f"{text} {self._first_missing}")
        if self._unindexed:
            first = self._unindexed[0]
            text = "the keys of the records from here on have no entry"
            finding = problem if first < dispatched else note
            yield finding("index", None, first, text)


def _hashes(record: Record) -> list[int]:
    """Return the hashes of a record's keys. Source: RocketMQ `IndexService.buildIndex`."""
    if record.header.sys_flag & FLAG_TRANSACTION_MASK == FLAG_ROLLBACK:
        return []
    properties = decode_properties(record.properties)
    topic = record.topic.decode(errors="replace")
    keys = [properties[UNIQUE_KEY]] if UNIQUE_KEY in properties else []
    keys += [key for key in properties.get(KEYS, "").split(KEY_SEPARATOR) if key]
    return [key_hash(topic, key) for key in keys]
