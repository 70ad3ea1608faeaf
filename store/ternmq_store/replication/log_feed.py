"""Feed of the log's bytes for other replicas.

Bytes in memory are copied from the map at once. A task for another thread reads other bytes: a page
fault in the map would stop the event loop for the time of the disk.
"""

import logging
from contextlib import closing
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from ternmq_model.crc32 import crc32
from ternmq_model.errors import invalid
from ternmq_model.offsets import PhysicalOffset
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
"""Bytes of one search for the next record behind damage."""

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
    """Read of a slice outside the memory. `run` may be called in any thread."""

    files: FileSystem
    folder: Path
    extent: _Extent
    found: LogSlice | None = None
    """Slice; None = the file was deleted during the scan."""

    bad: DamagedRange | None = None
    """New damage; None = none."""

    def run(self) -> None:
        """Read the slice.

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
    """CRC-32 of a range of the log: a task for any thread."""

    files: FileSystem
    folder: Path
    file_bytes: int
    start: PhysicalOffset
    end: PhysicalOffset

    def run(self) -> int:
        """Return the CRC-32.

        Raises:
            FileNotFoundError: A part of the range was deleted during the scan.
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
                    crc = crc32(data, crc)
                    at += len(data)
        return crc


class LogFeed:
    """Feed of one log from any offset on, for replicas. Owned by `MessageStore`.

    Used on the store's thread. The feed has no state: each follower knows its own offset.
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
        """End of the appended log, on the disk or not."""
        return self._log.committed

    def slice(self, start: PhysicalOffset, bytes_max: int) -> LogSlice | ColdSlice | None:
        """Return the bytes of the log from `start` on.

        Args:
            start: End of a slice, or begin of a record.
            bytes_max: Most bytes, except for a single longer record, or a blank record with the
                bytes behind it.

        Returns:
            Slice; or a task for another thread, to be passed to `finish`; None = no bytes yet.

        Raises:
            InvalidParameter: `start` lies outside the log.
        """
        end = self.end
        if not self._log.start <= start <= end:
            raise invalid(f"offset {start} is outside the log, {self._log.start} to {end}")
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
        """Return the slice of a task; None = its file was deleted during the scan.

        Bytes that are no record are sent as damaged. They are not quarantined here: the follower
        may have named an offset at which no record begins.
        """
        if cold.bad is not None:
            logger.warning(
                "no record to pass on log_offset=%d log_end=%d reason=%r", *astuple(cold.bad)
            )
        return cold.found

    def checksum(self, start: PhysicalOffset, end: PhysicalOffset) -> LogChecksum:
        """Return the task of computing the CRC-32 of the log from `start` to `end`.

        Raises:
            InvalidParameter: The range lies outside the log.
        """
        if not self._log.start <= start <= end <= self.end:
            what = f"{start} to {end} is not a part of the log, {self._log.start} to {self.end}"
            raise invalid(what)
        return LogChecksum(
            self._files, self._log.files.folder, self._log.files.file_bytes, start, end
        )
