"""Feed of the log's bytes for other replicas.

What is in memory is copied from the map at once. What is not is read by a task, for another thread:
a page fault in the map would stop everything else for as long as the disk takes.
"""

import logging
import zlib
from contextlib import closing
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from ternmq_model.errors import InvalidParameter
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import base_of, file_name
from ternmq_store.log.checksum_ranges import is_inside, next_border
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.log.log_window import LogWindow
from ternmq_store.log.quarantine import DamagedRange
from ternmq_store.log.store_session import StoreSession
from ternmq_store.read.store_reads import StoreReads
from ternmq_store.replication.log_slice import LogSlice, take_records

logger = logging.getLogger(__name__)

_WINDOW_BYTES: Final = 8 << 20
"""Bytes that one search for the next record behind damage covers."""

_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Extent:
    """Bounds of a slice."""

    start: PhysicalOffset
    stop: int
    file_base: int
    file_end: int
    bytes_max: int
    is_checksummed: bool
    damage: str


@dataclass(slots=True)
class ColdSlice:
    """The reading of a slice that is not in memory. `run` may be called in any thread."""

    files: FileSystem
    folder: Path
    extent: _Extent
    found: LogSlice | None = None
    """The slice; None when the file was deleted meanwhile."""

    bad: DamagedRange | None = None
    """Damage that was not known before."""

    def run(self) -> None:
        """Read.

        Raises:
            OSError: The disk failed.
        """
        extent = self.extent
        try:
            file = self.files.open(self.folder / file_name(extent.file_base), read_only=True)
        except FileNotFoundError:
            return

        def read(at: int, length: int) -> memoryview:
            return memoryview(file.read(at - extent.file_base, length))

        with closing(file):
            damage = extent.damage
            data = None
            if not damage:
                data = take_records(
                    read,
                    extent.start,
                    extent.stop,
                    file_end=extent.file_end,
                    bytes_max=extent.bytes_max,
                )
            if data is None:
                length = extent.stop - extent.start
                if not damage:
                    damage = "no record lies where one should"
                    base = extent.file_base
                    window = LogWindow(file.read, base, extent.file_end - base)
                    end = min(extent.stop, extent.start + _WINDOW_BYTES)
                    following = window.next_record(extent.start - base + 1, end - base)
                    end = end if following is None else base + following
                    self.bad = DamagedRange(extent.start, PhysicalOffset(end), damage)
                    length = end - extent.start
                data = bytes(read(extent.start, min(length, extent.bytes_max)))
        self.found = LogSlice(extent.start, data, extent.is_checksummed, damage)


@dataclass(frozen=True, slots=True)
class LogChecksum:
    """The CRC-32 of a range of the log: a task for any thread."""

    files: FileSystem
    folder: Path
    file_bytes: int
    start: PhysicalOffset
    end: PhysicalOffset

    def run(self) -> int:
        """Return it.

        Raises:
            FileNotFoundError: A part of it was deleted meanwhile.
            OSError: The disk failed.
        """
        crc, at = 0, int(self.start)
        while at < self.end:
            base = base_of(at, self.file_bytes)
            with closing(self.files.open(self.folder / file_name(base), read_only=True)) as file:
                end = min(self.end, base + self.file_bytes)
                while at < end:
                    data = file.read(at - base, min(_PIECE_BYTES, end - at))
                    if not data:
                        raise OSError(f"{file_name(base)} ends at {at - base}")
                    crc = zlib.crc32(data, crc)
                    at += len(data)
        return crc


class LogFeed:
    """Feed of one log from any offset on, for replicas. Owned by `MessageStore`.

    Used on the store's thread. It keeps nothing: whoever follows knows where he is.
    """

    def __init__(
        self, files: FileSystem, log: CommitLog, session: StoreSession, reads: StoreReads
    ) -> None:
        self._files = files
        self._log = log
        self._session = session
        self._reads = reads

    @property
    def end(self) -> PhysicalOffset:
        """Offset up to which the log is appended, on the disk or not."""
        return self._log.committed

    def slice(self, start: PhysicalOffset, bytes_max: int) -> LogSlice | ColdSlice | None:
        """Return the bytes of the log from `start` on.

        Args:
            start: Where a slice ended, or a record begins.
            bytes_max: How many bytes at most, unless the first record alone is longer, or what
                follows it: a blank record with all that it covers.

        Returns:
            The bytes; or what is to be run in another thread, and then given to `finish`; or None
            when nothing follows yet.

        Raises:
            InvalidParameter: `start` does not lie in the log.
        """
        end = self.end
        if not self._log.start <= start <= end:
            what = f"offset {start} does not lie in the log, {self._log.start} to {end}"
            raise InvalidParameter(ResponseCode.INVALID_PARAMETER, what)
        if start == end:
            return None
        extent = self._extent(start, bytes_max)
        return self._from_memory(extent) or ColdSlice(self._files, self._log.files.folder, extent)

    def _extent(self, start: PhysicalOffset, bytes_max: int) -> _Extent:
        file, ranges = self._log.files.at(start), self._session.ranges
        stops = [file.end, self.end, next_border(ranges, start) or file.end]
        damage = ""
        for damaged in self._session.quarantine.ranges:
            if damaged.start > start:
                stops.append(damaged.start)
                break
            if damaged.end > start:
                damage = damaged.reason or "damaged"
                stops += [damaged.end, start + bytes_max]
        return _Extent(
            start, min(stops), file.base, file.end, bytes_max, is_inside(ranges, start), damage
        )

    def _from_memory(self, extent: _Extent) -> LogSlice | None:
        start = extent.start
        stop = min(extent.stop, self._reads.in_memory_to(start))
        if stop <= start or (extent.damage and stop < extent.stop):
            return None
        view, base = self._log.files.at(start).view, extent.file_base

        def read(at: int, length: int) -> memoryview:
            return view[at - base : at - base + length]

        if extent.damage:
            data: bytes | None = bytes(read(start, stop - start))
        else:
            data = take_records(
                read, start, stop, file_end=extent.file_end, bytes_max=extent.bytes_max
            )
        if data is None:
            return None
        return LogSlice(start, data, extent.is_checksummed, extent.damage)

    def finish(self, cold: ColdSlice) -> LogSlice | None:
        """Return what a task has read; None when its file was deleted meanwhile.

        Bytes that are no record go as damaged. Nothing is concluded from that here: perhaps whoever
        follows has named a place where none begins.
        """
        if cold.bad is not None:
            logger.warning("no record to pass on start=%d end=%d reason=%r", *astuple(cold.bad))
        return cold.found

    def checksum(self, start: PhysicalOffset, end: PhysicalOffset) -> LogChecksum:
        """Return the task of computing the CRC-32 of the log from `start` to `end`.

        Raises:
            InvalidParameter: That is not a part of the log.
        """
        if not self._log.start <= start <= end <= self.end:
            what = f"{start} to {end} is not a part of the log, {self._log.start} to {self.end}"
            raise InvalidParameter(ResponseCode.INVALID_PARAMETER, what)
        return LogChecksum(
            self._files, self._log.files.folder, self._log.files.file_bytes, start, end
        )
