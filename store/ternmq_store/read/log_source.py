"""The log as a source of reads beside the store's thread."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.scanner import SCAN_BYTES_MAX, Verify
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.layout import base_of, file_name
from ternmq_store.log.log_window import LogWindow, WalkStep
from ternmq_store.log.quarantine import DamagedRanges

_DAMAGE_BYTES: Final = 16 << 20
"""Bytes behind damage that one step searches for the next record; the next step goes on there."""

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

    def step(
        self,
        start: PhysicalOffset,
        until: int,
        *,
        verify: Verify,
        bytes_max: int = SCAN_BYTES_MAX,
        search_bytes: int = _DAMAGE_BYTES,
    ) -> WalkStep:
        """Return the records at `start`, or the damage there, by `LogWindow.step`.

        Raises:
            FileNotFoundError: The file was deleted.
            OSError: The disk failed.
        """
        file, base = self.open(start)
        with closing(file):
            return LogWindow(file.read, base, self.file_bytes).step(
                start, until, verify=verify, bytes_max=bytes_max, search_bytes=search_bytes
            )
