"""Where the records in a log's files say that they lie."""

from typing import Protocol

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.mapped_file_queue import FoundFile
from ternmq_store.log.resync import HEAD_BYTES, claimed_offset, next_record


class Claims(Protocol):
    """Tells of any file of a log what places its records claim."""

    def first(self, found: FoundFile) -> PhysicalOffset | None:
        """Return the place that the first record claims; None when the file begins with none."""
        ...

    def own(self, found: FoundFile, position: int = 0) -> PhysicalOffset | None:
        """Return the first place in the file, from `position` on, that the record there claims."""
        ...


class FileClaims:
    """The claims that lie on a disk: a file is read when it is asked for.

    Args:
        files: The file system.
        unread: Upon such an error a file counts as one that begins with no record.
    """

    def __init__(self, files: FileSystem, unread: type[OSError]) -> None:
        self._files = files
        self._unread = unread

    def first(self, found: FoundFile) -> PhysicalOffset | None:
        """See `Claims`."""
        try:
            file = self._files.open(found.path, read_only=True)
            try:
                return claimed_offset(file.read(0, HEAD_BYTES))
            finally:
                file.close()
        except self._unread:
            return None

    def own(self, found: FoundFile, position: int = 0) -> PhysicalOffset | None:
        """See `Claims`."""
        if not found.file_bytes:
            return None
        file = self._files.open(found.path, read_only=True)
        try:
            region = file.map()
        finally:
            file.close()
        base, at = PhysicalOffset(found.base), position - 1
        try:
            while (there := next_record(region.view, at + 1, base=base)) is not None:
                at = there
                if claimed_offset(bytes(region.view[at : at + HEAD_BYTES])) is not None:
                    return PhysicalOffset(base + at)
            return None
        finally:
            region.close()
