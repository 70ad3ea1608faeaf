"""Mapped file of the commit log or of a consume queue, with its full length from the start."""

from ternmq_model.record.format import SIZE_BYTES, read_size
from ternmq_store.disk.filesystem import File


class MappedFile:
    """Mapped file that begins at byte `base` of its log or queue.

    Owned by one `MappedFileQueue`. Another thread may only sync `file`.
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
        """Number of the first bytes with allocated space. Writers change no byte of the map beyond
        it: on a full disk that would kill the process."""
        self.holds = 0
        """Number of readers that hold the file. A held file is not deleted."""
        self._region = file.map()
        self.bytes = self._region.bytes
        self.view = self._region.view

    def sized_at(self, offset: int) -> memoryview | None:
        """Return the bytes at log offset `offset`, with the length in their first field.

        The slice of the map may be no record. None = the length is impossible.
        """
        position = offset - self.base
        size = read_size(self.view, position)
        if not SIZE_BYTES <= size <= self.file_bytes - position:
            return None
        return self.view[position : position + size]

    def make_real(self, position: int) -> None:
        """Allocate the space below `position`.

        Raises:
            OSError: The allocation failed. The content has not changed.
        """
        if position > self.real_bytes:
            self.file.allocate(self.real_bytes, position - self.real_bytes)
            self.real_bytes = position

    def hold(self) -> None:
        """Protect the file from deletion until `release`. The map may be closed meanwhile.

        Source: RocketMQ `ReferenceResource`.
        """
        self.holds += 1

    def release(self) -> None:
        """End one `hold`."""
        assert self.holds > 0, "the file is not held"
        self.holds -= 1

    def forget(self, position: int, length: int) -> None:
        """Release the memory of a range without readers. Any thread may call it."""
        self._region.forget(position, length)

    def close(self) -> None:
        """Unmap and close the file. No slice may exist, and no sync may be running."""
        del self.bytes, self.view
        self._region.close()
        self.file.close()
