"""Offsets that the records in a log's files claim as their own."""

import enum
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Final, Protocol

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import UNIT_BYTES, PhysicalOffset
from ternmq_model.record.checksum import has_checksum, verify_checksum
from ternmq_model.record.fields import topic_name
from ternmq_model.record.format import OFFSETS_BYTES, Record, claimed_offset
from ternmq_model.record.integrity import check_record
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.disk.layout import queue_folder
from ternmq_store.disk.mapped_file_queue import FoundFile, find_files
from ternmq_store.log.log_window import LogWindow
from ternmq_store.queues.units import decode_units, unit_of

_RECORDS_MAX: Final = 1000
"""Good records of each file that are compared with the consume queues."""


class LogFit(enum.Enum):
    """Evidence that files behind a gap are of the log before it."""

    NO_RECORD = "no record"
    """The files have no good record."""

    UNCONFIRMED = "unconfirmed"
    """The files have good records that the consume queues do not confirm."""

    CONFIRMED = "confirmed"
    """A unit points to a record in the files, or a queue ends before its first record in them."""


class RecordedOffsets(Protocol):
    """Offsets that the records of a log's files claim as their own."""

    def first(self, found: FoundFile) -> PhysicalOffset | None:
        """Return the offset that the first record claims; None = the file begins with none."""
        ...

    def own(self, found: FoundFile, position: int = 0) -> PhysicalOffset | None:
        """Return the first offset, from `position` on, that a record there claims; None = none."""
        ...

    def fit(self, run: Sequence[FoundFile]) -> LogFit:
        """Compare the good records of consecutive files with the consume queues."""
        ...


class FileRecordedOffsets:
    """Recorded offsets of the files of the store at `root`.

    A file whose read raises `unread` counts as one that begins with no record.
    """

    def __init__(self, files: FileSystem, root: Path, unread: type[OSError]) -> None:
        self._files = files
        self._root = root
        self._unread = unread

    def first(self, found: FoundFile) -> PhysicalOffset | None:
        """See `RecordedOffsets`."""
        try:
            with closing(self._files.open(found.path, read_only=True)) as file:
                return claimed_offset(file.read(0, OFFSETS_BYTES))
        except self._unread:
            return None

    def own(self, found: FoundFile, position: int = 0) -> PhysicalOffset | None:
        """See `RecordedOffsets`."""
        with self._mapped(found) as view:
            for at in LogWindow.of_view(view, found.base).claims(position):
                if claimed_offset(bytes(view[at : at + OFFSETS_BYTES])) is not None:
                    return PhysicalOffset(found.base + at)
        return None

    def fit(self, run: Sequence[FoundFile]) -> LogFit:
        """See `RecordedOffsets`."""
        seen: set[tuple[str, int]] = set()
        fit = LogFit.NO_RECORD
        for record in chain.from_iterable(map(self._good_records, run)):
            fit = LogFit.UNCONFIRMED
            topic, head = topic_name(record.topic), record.header
            if topic is None or head.queue_id < 0 or head.queue_offset < 0:
                continue
            at, size = self._unit(topic, head.queue_id, head.queue_offset)
            if (at, size) == (head.physical_offset, head.total_bytes):
                return LogFit.CONFIRMED
            if (topic, head.queue_id) not in seen and size == 0 and head.queue_offset:
                before, length = self._unit(topic, head.queue_id, head.queue_offset - 1)
                if length > 0 and before < head.physical_offset:
                    return LogFit.CONFIRMED
            seen.add((topic, head.queue_id))
        return fit

    def _good_records(self, found: FoundFile) -> Sequence[Record]:
        with self._mapped(found) as view:
            return list(islice(_good_records(view, PhysicalOffset(found.base)), _RECORDS_MAX))

    @contextmanager
    def _mapped(self, found: FoundFile) -> Generator[memoryview]:
        if not found.file_bytes:
            yield memoryview(b"")
            return
        with closing(self._files.open(found.path, read_only=True)) as file:
            region = file.map()
        with closing(region):
            yield region.view

    def _unit(self, topic: str, queue_id: int, number: int) -> tuple[int, int]:
        """Return log offset and size in a unit of a queue; zeros = no unit is written."""
        at = number * UNIT_BYTES
        try:
            for found in find_files(self._files, queue_folder(self._root, topic, queue_id)):
                if found.base <= at and at + UNIT_BYTES <= found.base + found.file_bytes:
                    with closing(self._files.open(found.path, read_only=True)) as file:
                        data = file.read(at - found.base, UNIT_BYTES)
                    unit = unit_of(decode_units(data))
                    return unit.offset, unit.size
        except self._unread:
            pass
        return 0, 0


def _good_records(view: memoryview, base: PhysicalOffset) -> Iterator[Record]:
    """Yield the good records that claim their own offsets."""
    end = 0
    for position in LogWindow.of_view(view, base).claims(0):
        if position < end:
            continue  # the body of a good record may look like another
        at = PhysicalOffset(base + position)
        try:
            record = check_record(view, position, at=at, next_file=True)
        except CorruptRecord:
            continue
        if record is None:
            continue
        record_end = position + record.header.total_bytes
        data = view[position:record_end]
        if not has_checksum(record.properties) or verify_checksum(data, record.properties):
            end = record_end
            yield record
