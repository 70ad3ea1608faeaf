"""Look-up of keys in index files by plain reads, in any thread and beside their writer.

Source: RocketMQ `IndexService.queryOffset`, `IndexFile.selectPhyOffset`.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.index.index_file import IndexInfo, read_entries, read_slot

_SECOND_MS = 1000


@dataclass(frozen=True, slots=True)
class IndexLookup:
    """Look-up of hashes in index files: plain values, for any thread."""

    files: FileSystem
    infos: Sequence[IndexInfo]
    """Files to search, newest first."""
    hashes: Sequence[int]
    begin_ms: int
    end_ms: int

    def offsets(self, code: int) -> Iterator[PhysicalOffset]:
        """Yield the log offsets of records that may have a key of hash `code`, newest first.

        An entry has only the second and the hash of a key: the caller checks the record. A file
        whose last record is older than its first may have records of any time: the clock was set
        back. A file that retention removes meanwhile has no entries.
        """
        for info in self.infos:
            header = info.header
            is_near = header.begin_ms <= self.end_ms and header.end_ms + _SECOND_MS > self.begin_ms
            if is_near or header.end_ms < header.begin_ms:
                with (
                    contextlib.suppress(FileNotFoundError),
                    contextlib.closing(self.files.open(info.path)) as file,
                ):
                    yield from self._chain(file, info, code)

    def _chain(self, file: File, info: IndexInfo, code: int) -> Iterator[PhysicalOffset]:
        sizes, header = info.sizes, info.header
        number, limit = read_slot(file, code % sizes.slots), sizes.entries
        is_ordered = header.begin_ms <= header.end_ms
        while 0 < number < limit:
            entry = read_entries(file, sizes, number, 1)
            seconds = int(entry["seconds"][0])
            # The first entry has the file's time: RocketMQ counts its seconds from the file before.
            at_ms = header.begin_ms + (seconds * _SECOND_MS if number > 1 else 0)
            if seconds < 0 or (is_ordered and at_ms + _SECOND_MS <= self.begin_ms):
                return
            # Entries that are newer than the header of the look-up are skipped.
            if (
                number < header.next_number
                and (at_ms <= self.end_ms or not is_ordered)
                and int(entry["hash"][0]) == code
            ):
                yield PhysicalOffset(int(entry["offset"][0]))
            # Chains lead to older entries only; another link ends the chain.
            number, limit = int(entry["previous"][0]), number
