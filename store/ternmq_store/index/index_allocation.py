"""Allocation of index files ahead of their use, and release of full ones: for another thread.

The allocation of 20 MB of slots, and the release of a map of several hundred, take longer than a
loop may pause.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ternmq_store.disk.file_content import write_zeros
from ternmq_store.disk.filesystem import File, FileSystem
from ternmq_store.disk.layout import step_end
from ternmq_store.index.index_file import IndexFile
from ternmq_store.index.index_format import IndexSizes


@dataclass(frozen=True, slots=True)
class IndexTask:
    """A task of allocation or release, for a blocking thread."""

    files: FileSystem
    path: Path | None
    """Path of the file to create; None = no file is needed yet."""
    sizes: IndexSizes
    full: Sequence[IndexFile]
    """Full files that are still mapped; later reads need no map."""
    unused: Sequence[Path]
    """Files to remove: other files have replaced them."""

    def run(self) -> None:
        """Create the file durably, with zeros in its slots.

        Raises:
            OSError: There is no new file.
        """
        for file in self.full:
            file.close()
        for path in self.unused:
            with contextlib.suppress(FileNotFoundError):
                self.files.remove(path)
        if self.path is not None:
            self._make(self.path)

    def _make(self, path: Path) -> None:
        self.files.make_folder(path.parent)
        file = self.files.open(path, create=True)
        try:
            file.resize(self.sizes.file_bytes)
            self._fill(file)
            file.sync()
            self.files.sync_folder(path.parent)
        except OSError:
            self.files.remove(path)
            raise
        finally:
            file.close()

    def _fill(self, file: File) -> None:
        # All slots are written: the file system would convert reserved blocks one by one.
        end = real_at_first(self.sizes)
        file.allocate(0, end)
        write_zeros(self.files, file, 0, end)


def real_at_first(sizes: IndexSizes) -> int:
    """Return the end of the space that an `IndexTask` makes real: slots and first entries."""
    return step_end(sizes.entry_at(1), sizes.file_bytes)
