"""One file of the commit log or of a consume queue: its full length from the start, and mapped."""

from ternmq_model.record.format import SIZE_BYTES, read_size
from ternmq_store.disk.filesystem import File


class MappedFile:
    """A mapped file that begins at byte `base` of its log or queue.

    Owned by one `MappedFileQueue`. Only `file` may be given to another thread, to be synced.
    """

    __slots__ = (
        "_region",
        "base",
        "bytes",
        "end",
        "file",
        "file_bytes",
        "holds",
        "real_bytes",
        "view",
    )

    def __init__(self, file: File, base: int) -> None:
        self.file = file
        self.base = base
        self.file_bytes = file.size()
        self.end = base + self.file_bytes
        self.real_bytes = 0
        """Bytes from the start whose space is known to be real. Nothing beyond is touched through
        the map by a writer: on a full disk that would kill the process."""
        self.holds = 0
        """Count of readers that need the file: it is not deleted while there is one."""
        self._region = file.map()
        self.bytes = self._region.bytes
        self.view = self._region.view

    def sized_at(self, offset: int) -> memoryview | None:
        """Return the bytes at log offset `offset`, with the length that their first field states.

        They are a slice of the map and need not be a record. None = the length is impossible.
        """
        position = offset - self.base
        size = read_size(self.view, position)
        if not SIZE_BYTES <= size <= self.file_bytes - position:
            return None
        return self.view[position : position + size]

    def make_real(self, position: int) -> None:
        """Make the space below `position` real.

        Raises:
            OSError: It cannot be; nothing that counts was changed.
        """
        if position > self.real_bytes:
            self.file.allocate(self.real_bytes, position - self.real_bytes)
            self.real_bytes = position

    def hold(self) -> None:
        """Protect the file from deletion until `release`; the map may be closed meanwhile.

        Source: RocketMQ `ReferenceResource`.
        """
        self.holds += 1

    def release(self) -> None:
        """End one `hold`."""
        assert self.holds > 0, "the file is not held"
        self.holds -= 1

    def forget(self, position: int, length: int) -> None:
        """Release the memory of a range that has no reader; any thread may call it."""
        self._region.forget(position, length)

    def close(self) -> None:
        """Unmap and close. The caller holds no slice of it, and no sync is under way."""
        del self.bytes, self.view
        self._region.close()
        self.file.close()
