"""Reads of records anywhere in the log, many in one go, in another thread."""

import contextlib
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from ternmq_model.errors import CorruptRecord
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record.format import BLANK_BYTES, RECORD_BYTES_MAX, decode_record
from ternmq_store.disk.filesystem import File
from ternmq_store.disk.layout import base_of
from ternmq_store.queues.units import PADDING_SIZE, Unit, UnitRepair
from ternmq_store.read.cold_read import check_one
from ternmq_store.read.log_source import LogSource
from ternmq_store.read.unit_search import QueueSource, UnitSearch, UnitSearchResult

_NO_FILE: Final = -1


class MultiGet:
    """One read; `run` may be called in any thread.

    Args:
        source: The log.
        queue: The messages' queue; None when there is none.
        numbers: Which messages to read.
        bytes_max: After so many bytes no more is read.

    Attributes:
        records: Of each message that was looked at, its record, or None when there is no good one.
        repairs: Units that were damaged.
        searched: Messages whose records were looked for.
    """

    def __init__(
        self,
        source: LogSource,
        queue: QueueSource | None,
        numbers: Sequence[int],
        *,
        bytes_max: int,
    ) -> None:
        self._source = source
        self.queue = queue
        self._numbers = numbers
        self._bytes_max = bytes_max
        self.records: list[bytes | None] = []
        self.repairs: list[UnitRepair] = []
        self.searched: Sequence[UnitSearchResult] = ()

    def run(self) -> None:
        """Read.

        Raises:
            OSError: The disk failed.
        """
        self.records, self.repairs = [], []
        queue, left = self.queue, self._bytes_max
        if queue is None:
            self.records = [None] * len(self._numbers)
            return
        reader = _RecordReader(self._source)
        with closing(queue.files), closing(reader):
            search = UnitSearch(self._source, queue)
            for number in self._numbers:
                if left <= 0:
                    break
                record = None
                if queue.files.min_offset <= number < queue.files.end:
                    unit = queue.files.unit(QueueOffset(number))
                    record = reader.read(unit)
                    if unit.size != PADDING_SIZE and not self._is(record, number):
                        record = self._found(search, number, unit, reader)
                self.records.append(record)
                left -= len(record or b"")
            self.searched = search.searched

    def _is(self, data: bytes | None, number: int) -> bool:
        """Return whether a good record is the message."""
        queue, record = self.queue, None if data is None else decode_record(data, check_crc=False)
        if queue is None or record is None:
            return False
        place = (record.topic, record.header.queue_id, record.header.queue_offset)
        return place == (queue.topic.encode(), queue.queue_id, number)

    def _found(
        self, search: UnitSearch, number: int, was: Unit, reader: "_RecordReader"
    ) -> bytes | None:
        """Return the record of a message whose unit does not fit it, if the log has it."""
        self.repairs += search.find_all(number, was)
        unit = next((repair.unit for repair in self.repairs if repair.offset == number), None)
        return None if unit is None else reader.read(unit)


class _RecordReader:
    """Reader of single records, which holds one file of the log open."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._base = _NO_FILE
        self._file: File | None = None

    def read(self, unit: Unit) -> bytes | None:
        """Return the good record that a unit tells of; None if there is none."""
        source, place = self._source, unit.offset
        is_within = source.start <= place and place + unit.size <= source.end
        if not is_within or not BLANK_BYTES < unit.size <= RECORD_BYTES_MAX:
            return None
        file = self._at(place)
        if file is None:
            return None
        data = memoryview(file.read(place - self._base, unit.size + BLANK_BYTES))
        with contextlib.suppress(CorruptRecord):
            check_one(data, 0, at=place, size=unit.size, verify=source.verify(place))
            return bytes(data[: unit.size])
        return None

    def _at(self, place: PhysicalOffset) -> File | None:
        if base_of(place, self._source.file_bytes) != self._base:
            self.close()
            with contextlib.suppress(FileNotFoundError):
                self._file, self._base = self._source.open(place)
        return self._file

    def close(self) -> None:
        """Close the file."""
        file, self._file, self._base = self._file, None, _NO_FILE
        if file is not None:
            file.close()
