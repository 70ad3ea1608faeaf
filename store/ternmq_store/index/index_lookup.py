"""Looking keys up in index files, without their maps: beside whoever writes them, in any thread.

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
    """Plain values: what to look for, and where."""

    files: FileSystem
    infos: Sequence[IndexInfo]
    """Newest first."""
    hashes: Sequence[int]
    begin_ms: int
    end_ms: int

    def offsets(self, wanted: int) -> Iterator[PhysicalOffset]:
        """Yield where records may lie with a key of hash `wanted`; the newest first.

        An entry tells the second only, and the hash of its key: the record itself decides. A file
        whose last record is older than its first may have some of any time: the clock was set back.
        One that retention removes meanwhile has nothing.
        """
        for info in self.infos:
            header = info.header
            is_near = header.begin_ms <= self.end_ms and header.end_ms + _SECOND_MS > self.begin_ms
            if is_near or header.end_ms < header.begin_ms:
                with (
                    contextlib.suppress(FileNotFoundError),
                    contextlib.closing(self.files.open(info.path)) as file,
                ):
                    yield from self._chain(file, info, wanted)

    def _chain(self, file: File, info: IndexInfo, wanted: int) -> Iterator[PhysicalOffset]:
        sizes, header = info.sizes, info.header
        number, limit = read_slot(file, wanted % sizes.slots), sizes.entries
        is_ordered = header.begin_ms <= header.end_ms
        while 0 < number < limit:
            entry = read_entries(file, sizes, number, 1)
            seconds = int(entry["seconds"][0])
            # The first entry's time is the file's: RocketMQ counts it from the file before.
            at_ms = header.begin_ms + (seconds * _SECOND_MS if number > 1 else 0)
            if seconds < 0 or (is_ordered and at_ms + _SECOND_MS <= self.begin_ms):
                return
            # Newer ones than the header told of when the look-up was made are passed over.
            if (
                number < header.next_number
                and (at_ms <= self.end_ms or not is_ordered)
                and int(entry["hash"][0]) == wanted
            ):
                yield PhysicalOffset(int(entry["offset"][0]))
            # Chains lead to older entries only; what does not is no chain.
            number, limit = int(entry["previous"][0]), number
