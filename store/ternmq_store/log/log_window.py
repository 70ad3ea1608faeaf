"""Window on one file of the log: a walk of its records, blank records and damage. For any thread.

A damaged range ends at the next claim: a record's magic number with the physical offset of that
very position, or a blank record that reaches to the end of the file.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.format import (
    BLANK_BYTES,
    OFFSETS_BYTES,
    OVERHEAD_BYTES,
    SIZE_BYTES,
    claimed_offset,
    is_blank,
    possible_starts,
    read_size,
)
from ternmq_model.record.scanner import SCAN_BYTES_MAX, LogChunk, Verify, scan_records
from ternmq_store.disk.filesystem import File

_PIECE_BYTES: Final = 1 << 20
_RECORDS_MAX: Final = 1 << 16


class WalkStep(NamedTuple):
    """Records, a blank record or damage from one log offset to another."""

    batch: RecordBatch | None
    """Records up to `end`; None = a blank record or damage."""

    end: PhysicalOffset
    """Start of the next step; behind a blank record the end of the file."""

    damage: str = ""
    """Damage of the first record; empty = there is none."""


class LogWindow:
    """One file of the log, read or mapped. Owned by one reader, who closes the file.

    Args:
        read: Returns bytes of the file by position and length.
        base: Log offset at which the file begins.
        file_bytes: Length of the file.
        piece_bytes: Least length of a read; the last read is retained. 0 = reads have the requested
            length, and none is retained.
    """

    def __init__(
        self,
        read: Callable[[int, int], bytes | memoryview],
        base: int,
        file_bytes: int,
        piece_bytes: int = 0,
    ) -> None:
        self.base = base
        self.file_bytes = file_bytes
        self._read = read
        self._piece_bytes = piece_bytes
        self._start = 0
        self._data = memoryview(b"")

    @classmethod
    def of_file(cls, file: File, base: int, *, piece_bytes: int = 0) -> "LogWindow":
        """Return a window on an open file of its present length."""
        return cls(file.read, base, file.size(), piece_bytes)

    @classmethod
    def of_view(cls, view: memoryview, base: int) -> "LogWindow":
        """Return a window on a file in memory; no slice of `view` is retained."""
        return cls(lambda position, length: view[position : position + length], base, len(view))

    def take(self, position: int, length: int) -> memoryview:
        """Return `length` bytes from `position`, or fewer at the end of the file."""
        length = max(0, min(length, self.file_bytes - position))
        if not self._piece_bytes:
            return memoryview(self._read(position, length))
        begin = position - self._start
        if not 0 <= begin <= begin + length <= len(self._data):
            self._data = memoryview(self._read(position, max(length, self._piece_bytes)))
            self._start, begin = position, 0
        return self._data[begin : begin + length]

    def is_blank(self, position: int) -> bool:
        """Return whether the blank record at the end of the file begins at `position`."""
        return is_blank(self.take(position, BLANK_BYTES), 0, self.file_bytes - position)

    def lies_at(self, position: int) -> bool:
        """Return whether a record, or a blank one, claims `position` as its own."""
        return self._is_claim(bytes(self.take(position, OFFSETS_BYTES)), position)

    def _is_claim(self, head: bytes, position: int) -> bool:
        left = self.file_bytes - position
        if is_blank(head, 0, left):
            return True
        return left >= OVERHEAD_BYTES and claimed_offset(head) == self.base + position

    def next_record(self, start: int, end: int | None = None) -> int | None:
        """Return the first of the `claims` between `start` and `end`; None = there is none."""
        return next(self.claims(start, end), None)

    def claims(self, start: int, end: int | None = None) -> Iterator[int]:
        """Yield the positions that a record, or a blank one, states as its own.

        The record there may be damaged all the same.

        Args:
            start: First position of the search.
            end: End of the search; None = the end of the file.
        """
        end = self.file_bytes if end is None else min(end, self.file_bytes)
        for position in range(start, end, _PIECE_BYTES):
            # A head that begins in this piece may end in the next.
            part = self.take(position, _PIECE_BYTES + OFFSETS_BYTES - 1)
            # Most of the last file is zeros, often.
            data = bytes(part) if np.frombuffer(part, dtype=np.uint8).any() else b""
            del part  # a search that pauses must not keep the map open
            for begin in possible_starts(data):
                if begin >= min(_PIECE_BYTES, end - position):
                    break
                if self._is_claim(data[begin : begin + OFFSETS_BYTES], position + begin):
                    yield position + begin

    def next_content(self, position: int) -> int | None:
        """Return a position behind zeros only, from `position` on; None = all bytes are zeros.

        The next other byte follows within 1 MiB.
        """
        for start in range(position, self.file_bytes, _PIECE_BYTES):
            if np.frombuffer(self.take(start, _PIECE_BYTES), dtype=np.uint8).any():
                return start
        return None

    def content_end(self, position: int) -> int:
        """Return the position behind the last nonzero byte from `position` on."""
        end = self.file_bytes
        while end > position:
            begin = max(position, end - _PIECE_BYTES)
            content = np.frombuffer(self.take(begin, end - begin), dtype=np.uint8).nonzero()[0]
            if len(content):
                return begin + int(content[-1]) + 1
            end = begin
        return position

    def step(
        self,
        start: PhysicalOffset,
        until: int,
        *,
        verify: Verify,
        bytes_max: int = SCAN_BYTES_MAX,
        search_bytes: int | None = None,
    ) -> WalkStep:
        """Return the records or the damage at `start`, and the start of the next step.

        Args:
            start: Log offset at which a record, a blank record or damage begins.
            until: End of the walk, at which a record ends.
            verify: Depth of the check of each record.
            bytes_max: Limit of bytes that one step reads, unless the first record is longer.
            search_bytes: Limit of damaged bytes that one step searches; None = the rest of it.
        """
        position, end = start - self.base, min(until - self.base, self.file_bytes)
        found = self._scan(position, min(position + bytes_max, end), verify)
        if found.batch is None:
            size = read_size(self.take(position, SIZE_BYTES))
            if bytes_max < size <= end - position:
                found = self._scan(position, position + size, verify)
        if found.batch is not None:
            return WalkStep(found.batch, PhysicalOffset(start + found.end))
        if self.is_blank(position):
            return WalkStep(None, PhysicalOffset(self.base + self.file_bytes))
        if search_bytes is not None:
            end = min(end, position + 1 + search_bytes)
        following = self.next_record(position + 1, end)
        reason = "no record begins there" if found.error is None else found.error.reason
        return WalkStep(
            None, PhysicalOffset(self.base + (end if following is None else following)), reason
        )

    def _scan(self, position: int, limit: int, verify: Verify) -> LogChunk:
        # A record that does not end in the window is taken for damaged, and scanned alone then.
        return scan_records(
            self.take(position, limit - position + BLANK_BYTES),
            0,
            limit - position,
            at=PhysicalOffset(self.base + position),
            records_max=_RECORDS_MAX,
            verify=verify,
        )
