"""Reads of many records at any offsets of the log, in another thread."""

from collections.abc import Sequence
from contextlib import closing

from ternmq_model.offsets import QueueOffset
from ternmq_store.queues.units import PADDING_SIZE, UnitRepair
from ternmq_store.read.log_source import LogSource
from ternmq_store.read.record_reader import GoodRecord, RecordReader
from ternmq_store.read.unit_search import QueueSource, UnitSearch, UnitSearchResult


class MultiGet:
    """Read of many records; `run` may be called in any thread.

    Args:
        source: Log of the records.
        queue: Queue of the messages; None = no such queue.
        numbers: Queue offsets of the messages.
        bytes_max: Bytes after which the read ends.

    Attributes:
        records: Record of each read message; None = no valid record.
        repairs: Damaged units with their repairs.
        searched: Messages with a search of the log for their record.
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
        """Read the records.

        Raises:
            OSError: The disk failed.
        """
        self.records, self.repairs = [], []
        queue, left = self.queue, self._bytes_max
        if queue is None:
            self.records = [None] * len(self._numbers)
            return
        reader = RecordReader(self._source)
        with closing(queue.files), closing(reader):
            search = UnitSearch(self._source, queue)
            for number in self._numbers:
                if left <= 0:
                    break
                found = None
                if queue.files.min_offset <= number < queue.files.end:
                    unit = queue.files.unit(QueueOffset(number))
                    found = reader.read(unit.offset, unit.size)
                    if unit.size != PADDING_SIZE and not _is_message(found, queue, number):
                        self.repairs += search.find_all(number, unit)
                        right = (each.unit for each in self.repairs if each.offset == number)
                        repaired = next(right, None)
                        found = repaired and reader.read(repaired.offset, repaired.size)
                record = None if found is None else found.data
                self.records.append(record)
                left -= len(record or b"")
            self.searched = search.searched


def _is_message(found: GoodRecord | None, queue: QueueSource, number: int) -> bool:
    if found is None:
        return False
    record = found.record
    place = (record.topic, record.header.queue_id, record.header.queue_offset)
    return place == (queue.topic.encode(), queue.queue_id, number)
