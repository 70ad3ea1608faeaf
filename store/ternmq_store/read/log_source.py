"""Source of log reads beside the store's thread."""

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
"""Returns the depth of the check of the record at an offset."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogSource:
    """Folder and bounds of the log: plain values, for any thread.

    Attributes:
        files: The file system.
        folder: Folder of the log.
        file_bytes: Length of one file.
        start: Log offset of the oldest record.
        end: Log offset before which readable records begin.
        verify: Returns the depth of the check of the record at an offset.
        read_ahead: True = the next chunk is announced to the disk.
        damaged: Ranges of the log whose records are known to be lost.
        beginnings: Known log offsets of records that are not in memory; ascending.
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
        """Open the file that holds `offset`; return it and its base. The caller closes it.

        Raises:
            FileNotFoundError: The file was deleted.
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
