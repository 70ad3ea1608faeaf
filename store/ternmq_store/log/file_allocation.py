"""Allocation of commit log files ahead of their use: reserved, or filled with zeros in small steps.

The file system converts blocks that were only reserved during a sync, which takes the longer;
blocks of zeros are just overwritten. An asynchronous flush, and a replica that copies a long log,
have no senders that wait for a sync: their files are only reserved.
"""

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from ternmq_store.disk.file_content import write_zeros
from ternmq_store.disk.filesystem import File, FileSystem

USED_SHARE_MAX: Final = 0.90
"""Use of the disk above which the log gets no further file, 0 to 1."""

_PIECE_BYTES: Final = 1 << 20
_SYNC_EVERY_BYTES: Final = 16 << 20


class FileTask(Protocol):
    """A task of allocation, for a blocking thread."""

    def run(self) -> None:
        """Make or fill the file.

        Raises:
            OSError: The file cannot be made or filled.
        """
        ...


@dataclass(frozen=True, slots=True)
class AllocateTask:
    """Task of making the log's next file, reserved and partly zero-filled, in a blocking thread."""

    files: FileSystem
    draft: Path
    path: Path
    file_bytes: int
    zero_bytes: int
    """Length of the part that is filled; the rest is only reserved."""

    def run(self) -> None:
        """Make the file under its name, durably.

        Raises:
            OSError: The file cannot be made, and no draft is left. ENOSPC also on a disk above
                `USED_SHARE_MAX`.
        """
        self._check_used()
        file = self.files.open(self.draft, create=True)
        try:
            self._fill(file)
        except OSError:
            self.files.remove(self.draft)
            raise
        finally:
            file.close()
        self.files.rename(self.draft, self.path)
        self.files.sync_folder(self.path.parent)
        self.files.sync_folder(self.draft.parent)

    def _fill(self, file: File) -> None:
        file.resize(self.file_bytes)
        file.allocate(0, self.file_bytes)
        for position in range(0, self.zero_bytes, _SYNC_EVERY_BYTES):
            end = min(position + _SYNC_EVERY_BYTES, self.zero_bytes)
            write_zeros(self.files, file, position, end)
            file.sync()
            self._check_used()
        if not self.zero_bytes:
            file.sync()

    def _check_used(self) -> None:
        used = self.files.space(self.draft.parent).used_share
        if used > USED_SHARE_MAX:
            raise OSError(
                errno.ENOSPC,
                f"the disk is {used:.0%} full, and above {USED_SHARE_MAX:.0%} no file is created",
                str(self.path),
            )


@dataclass(frozen=True, slots=True)
class FillTask:
    """Task of filling more of a file ahead of its writer, in a blocking thread.

    The range takes no append before `run` has ended.
    """

    files: FileSystem
    file: File
    start: int
    end: int
    is_urgent: bool = False
    """True = a writer waits for the range: the task makes no pauses."""

    def run(self) -> None:
        """Write zeros and sync them.

        Raises:
            OSError: Part of the range is not filled; its space is reserved.
        """
        write_zeros(self.files, self.file, self.start, self.end, rests=not self.is_urgent)
        self.file.sync()


def next_fill(
    file: File, start: int, end: int, files: FileSystem, *, is_urgent: bool = False
) -> FillTask:
    """Return the next step of filling `file` from `start` on, at most to `end`."""
    return FillTask(files, file, start, min(start + _SYNC_EVERY_BYTES, end), is_urgent)


def wipe(file: File, start: int, end: int) -> int:
    """Zero the bytes from `start` to `end`; return how many were not zero."""
    wiped = 0
    for position in range(start, end, _PIECE_BYTES):
        data = np.frombuffer(file.read(position, min(_PIECE_BYTES, end - position)), np.uint8)
        count = int(np.count_nonzero(data))
        if count:
            file.write(position, bytes(len(data)))
            wiped += count
    return wiped
