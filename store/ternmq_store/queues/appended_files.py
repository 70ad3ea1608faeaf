"""Files that grow at their end: space is made real ahead, and unsynced bytes are known."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import base_of, step_end
from ternmq_store.disk.mapped_file_queue import FoundFile, MappedFileQueue

_PIECE_BYTES: Final = 1 << 16


class AppendedFiles:
    """Files to which units are appended. Used on the store's thread.

    Attributes:
        files: The mapped files.
    """

    def __init__(self, files: FileSystem, folder: Path, file_bytes: int) -> None:
        self._file_system = files
        self.files = MappedFileQueue(files, folder, file_bytes)
        self._real_end = 0
        self._dirty_from: int | None = None

    def open_files(self, found: Sequence[FoundFile]) -> None:
        """Map existing files. The caller must find or cut the end then."""
        for file in found:
            # Many queues have many files: a parked file has a map, but no descriptor.
            self.files.open_file(file.base).file.park()

    def _make_real(self, begin: int, until: int) -> None:
        """Make space real up to `until`. The first file, if there is none, holds `begin`."""
        while self._real_end < until:
            files = self.files.files
            if files and self._real_end < files[-1].end:
                file = files[-1]
            else:
                base = files[-1].end if files else base_of(begin, self.files.file_bytes)
                file = self.files.create_late_file(base)
            try:
                file.make_real(step_end(min(until, file.end) - file.base, file.file_bytes))
            finally:
                file.file.park()
            self._real_end = file.base + file.real_bytes

    def _mark_dirty(self, at: int) -> None:
        self._dirty_from = at if self._dirty_from is None else min(at, self._dirty_from)

    def _drop_files(self, at: int) -> None:
        """Remove the files that begin at `at` or behind it, durably."""
        if self.files.drop_from(at):
            # A file that reappears after a power loss would count as one of this queue.
            self._file_system.sync_folder(self.files.folder)

    def _wipe(self, at: int) -> bool:
        """Write zeros over the last file from `at` on; return whether other bytes were there."""
        last, is_changed = self.files.last, False
        for position in range(at - last.base, last.file_bytes, _PIECE_BYTES):
            data = last.file.read(position, min(_PIECE_BYTES, last.file_bytes - position))
            if any(data):
                last.file.write(position, bytes(len(data)))
                is_changed = True
        return is_changed

    def _take_dirty(self, end: int) -> Sequence[Path]:
        """Return the files with unsynced bytes before `end`."""
        if self._dirty_from is None:
            return ()
        dirty = self.files.files_between(self._dirty_from, end + 1)
        self._dirty_from = None
        return [file.path for file in dirty]

    def close(self) -> None:
        """Unmap and close the files."""
        self.files.close()
