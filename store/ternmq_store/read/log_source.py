"""The log as a source of reads beside the store's thread."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.scanner import Verify
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.layout import base_of, file_name
from ternmq_store.log.quarantine import DamagedRanges

VerifyAt = Callable[[PhysicalOffset], Verify]
"""Tells how much of the record at an offset is checked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogSource:
    """Place and bounds of the log: plain values, good in any thread.

    Attributes:
        files: The disk.
        folder: Of the log.
        file_bytes: Of one file.
        start: Where the oldest record begins.
        end: Records that begin before it may be read.
        verify: Tells how much of the record at an offset is checked.
        read_ahead: Whether the disk is told what will be wanted next.
        damaged: Ranges of the log whose records are known to be lost.
        beginnings: Some places of the log where records begin that are not in memory; ascending.
    """

    files: FileSystem
    folder: Path
    file_bytes: int
    start: PhysicalOffset
    end: PhysicalOffset
    verify: VerifyAt
    read_ahead: bool
    beginnings: Sequence[int]
    damaged: DamagedRanges

    def open(self, offset: int) -> tuple[File, int]:
        """Return a file of its own for who reads at `offset`, and where that file begins.

        Raises:
            FileNotFoundError: It was deleted.
        """
        base = base_of(offset, self.file_bytes)
        return self.files.open(self.folder / file_name(base), read_only=True), base
