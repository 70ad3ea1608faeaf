"""A verified chunk of the log: a read that checks every record in it. For any thread."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.batch import RecordBatch
from ternmq_store.disk.mapped_file import MappedFile
from ternmq_store.log.log_window import LogWindow
from ternmq_store.log.quarantine import DamagedRange
from ternmq_store.read.log_source import LogSource

_SEARCH_BYTES: Final = 16 << 20
"""Bytes behind damage that one run searches for the next record; the next run goes on there."""


@dataclass(slots=True, kw_only=True)
class VerifiedChunk:
    """A chunk of one file of the log. Made and finished by `Verification` or `UnitSearch`."""

    source: LogSource
    start: PhysicalOffset
    until: PhysicalOffset
    """Offset behind the last byte that may be read, in the same file: a record ends there."""

    bytes_max: int
    held: Sequence[MappedFile] = ()
    """Files that stay until the piece is finished; not touched here."""

    end: PhysicalOffset = field(default=PhysicalOffset(0), init=False)
    """Start of the next chunk."""

    batch: RecordBatch | None = None
    """The good records of the piece."""

    bad: DamagedRange | None = None
    """Damage, if there is any: the chunk ends behind it."""

    @property
    def checked_bytes(self) -> int:
        """Bytes of the log that were checked."""
        is_checked = self.batch is not None or self.bad is not None
        return self.end - self.start if is_checked else 0

    def run(self) -> None:
        """Read and check.

        Raises:
            OSError: The disk failed.
        """
        source = self.source
        file, base = source.open(self.start)
        with closing(file):
            step = LogWindow(file.read, base, source.file_bytes).step(
                self.start,
                self.until,
                verify=source.verify(self.start),
                bytes_max=self.bytes_max,
                search_bytes=_SEARCH_BYTES,
            )
        self.batch, self.end = step.batch, step.end
        if step.damage:
            self.bad = DamagedRange(self.start, self.end, step.damage)
