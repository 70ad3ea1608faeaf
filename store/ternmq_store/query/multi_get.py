"""Reads of records anywhere in the log, many in one go, in another thread."""

from collections.abc import Sequence
from contextlib import closing

from ternmq_model.offsets import QueueOffset
from ternmq_store.queues.units import PADDING_SIZE, UnitRepair
from ternmq_store.read.log_source import LogSource
from ternmq_store.read.record_reader import GoodRecord, RecordReader
from ternmq_store.read.unit_search import QueueSource, UnitSearch, UnitSearchResult


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
