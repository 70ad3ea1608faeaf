"""Scan of a whole store without a broker: the messages that queues reach, by log file.

Each log file is a partition: its messages come in the order of the log, across queues. Records that
no queue reaches are left out: those that were never dispatched, or whose topic was deleted.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Final, NamedTuple

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.errors import MessageDamaged, RangeGone
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_store.queues.offset_search import first_from
from ternmq_store.queues.units import PADDING_SIZE
from ternmq_store.read.message_selection import select
from ternmq_store.scan.directory import StoreDirectory
from ternmq_store.scan.log_rows import LogRows, RecordSelection
from ternmq_store.scan.queue_scan import NO_PLACE, rows_before_log
from ternmq_store.scan.scan_spec import ScanRange, ScanSpec, ScanStep
from ternmq_store.scan.user_topics import is_user_topic

_PIECE_UNITS: Final = 4_096
_WINDOW_BYTES: Final = 16 << 20
"""Bytes of the log for which units are collected at a time."""

_OPEN_MAX: Final = 256
"""Limit of open queues: with more, each window opens their files again."""


class LogFilePartition(NamedTuple):
    """Messages in one log file."""

    base: int
    """Base of the file."""

    ranges: Sequence[ScanRange]
    """Messages of each queue in the file."""


def plan_directory(
    directory: StoreDirectory, *, topics: Collection[str] | None = None
) -> Sequence[LogFilePartition]:
    """Return the partitions of a store, by log file.

    Args:
        directory: Directory of the store.
        topics: Topics to read, also system topics. None = all user topics.

    Raises:
        StoreError: Files are missing.
        OSError: The directory cannot be read.
    """
    chosen = [
        queue
        for queue in directory.queues()
        if (is_user_topic(queue.topic) if topics is None else queue.topic in topics)
    ]
    return plan_ranges(directory, chosen)


def plan_ranges(
    directory: StoreDirectory, ranges: Sequence[ScanRange]
) -> Sequence[LogFilePartition]:
    """Return the partitions that hold the messages of ranges.

    Args:
        directory: Directory of the store.
        ranges: At most one range of each queue, within those of `directory.queues`.

    Raises:
        OSError: The disk failed.
    """
    step = directory.log_file_bytes
    bases = range(directory.log_start, directory.log_end, step) if step else range(0)
    found: dict[int, list[ScanRange]] = {base: [] for base in bases}
    for scan_range in ranges:
        with closing(directory.unit_files(*scan_range)) as units:
            for base in bases:
                if units.min_offset >= scan_range.end:
                    break
                # Each unit belongs to a partition, even if a damaged one misleads the search.
                is_last = base == bases[-1]
                end = scan_range.end if is_last else first_from(units, PhysicalOffset(base + step))
                if end > units.min_offset:
                    found[base].append(scan_range._replace(begin=units.min_offset, end=end))
                units.min_offset = QueueOffset(end)
    return [LogFilePartition(base, tuple(some)) for base, some in found.items() if some]


def scan_partition(
    directory: StoreDirectory, part: LogFilePartition, spec: ScanSpec
) -> Iterator[ScanStep]:
    """Yield the matching messages of one log file, in its order, a batch a step.

    Args:
        directory: Directory of the store.
        part: Planned partition.
        spec: Filter and columns. The topic of its subscription does not count.

    Raises:
        MessageDamaged: A message is damaged, and `spec` does not skip such.
        RangeGone: The file was deleted after the planning.
        UsageError: `spec` names an unknown column.
        MissingPackage: A body is compressed in a way that needs the extra `compression`.
        OSError: The disk failed.
    """
    spec = spec.checked()
    if not part.ranges:
        return
    with ExitStack() as stack:
        try:
            rows = LogRows(directory, spec, base=part.base)
        except FileNotFoundError:
            topic, queue_id, begin, end = part.ranges[0]
            raise RangeGone(topic, queue_id, begin, end) from None
        stack.callback(rows.close)
        scan = _PartitionScan(directory, part, spec, rows, stack)
        yield from scan.run()
        for base in scan.bases_elsewhere():
            yield from scan.run_elsewhere(base)
        yield ScanStep(None, rows.end, scan.damaged)


class _PartitionScan:
    """One scan of one log file."""

    def __init__(
        self,
        directory: StoreDirectory,
        part: LogFilePartition,
        spec: ScanSpec,
        rows: LogRows,
        stack: ExitStack,
    ) -> None:
        self._directory = directory
        self._part = part
        self._spec = spec
        self._rows = rows
        self.damaged = 0
        self._queues = [(queue.topic.encode(), queue.queue_id) for queue in part.ranges]
        self._elsewhere = self._join([])
        self._cursors = [_Cursor(directory, queue, spec, stack) for queue in part.ranges]

    def run(self) -> Iterator[ScanStep]:
        """Yield the steps of the scan."""
        waiting = self._join([])
        for border in range(self._rows.base, self._rows.end, _WINDOW_BYTES):
            is_last = border + _WINDOW_BYTES >= self._rows.end
            end = None if is_last else border + _WINDOW_BYTES
            waiting = self._only_here(self._join([waiting, *self._take_to(end)]))
            while len(waiting.starts) and (is_last or self._is_full(waiting)):
                waiting, scanned = self._step(self._rows, waiting)
                yield scanned
            if not is_last:
                self._rows.will_need(border + _WINDOW_BYTES)

    def _only_here(self, waiting: RecordSelection) -> RecordSelection:
        """Return the records in this file; a damaged unit may have misled the planning."""
        is_here = (waiting.starts >= self._rows.base) & (waiting.starts < self._rows.end)
        if is_here.all():
            return waiting
        self._elsewhere = self._join([self._elsewhere, waiting.only(~is_here)])
        return waiting.only(is_here)

    def bases_elsewhere(self) -> Sequence[int]:
        """Return the bases of the other files that hold messages of these ranges."""
        step = self._directory.log_file_bytes
        bases: list[int] = np.unique(self._elsewhere.starts // step * step).tolist()
        return bases

    def run_elsewhere(self, base: int) -> Iterator[ScanStep]:
        """Yield the steps of the scan of another file."""
        step = self._directory.log_file_bytes
        waiting = self._elsewhere.only(self._elsewhere.starts // step * step == base)
        try:
            rows = LogRows(self._directory, self._spec, base=base)
        except FileNotFoundError:
            raise self._gone(waiting) from None
        with closing(rows):
            while len(waiting.starts):
                waiting, scanned = self._step(rows, waiting)
                yield scanned

    def _step(self, rows: LogRows, waiting: RecordSelection) -> tuple[RecordSelection, ScanStep]:
        """Inspect some of the waiting messages; return the others, and the step."""
        found = rows.take(waiting)
        for damage in found.damaged:
            self._note(waiting, damage.row, damage.error.reason)
        last = int(waiting.starts[found.inspected - 1])
        return (
            waiting.part(found.inspected, len(waiting.starts)),
            ScanStep(found.batch, last + 1, self.damaged),
        )

    def _gone(self, waiting: RecordSelection) -> RangeGone:
        assert waiting.numbers is not None, "these records have units"
        assert waiting.queue_of is not None, "these records have units"
        queue = self._part.ranges[int(waiting.queue_of[0])]
        return RangeGone(queue.topic, queue.queue_id, int(waiting.numbers[0]), queue.end)

    def _is_full(self, waiting: RecordSelection) -> bool:
        is_long = int(waiting.sizes.sum()) > self._spec.batch_bytes_max
        return is_long or len(waiting.starts) > self._spec.batch_rows_max

    def _take_to(self, end: int | None) -> Iterator[RecordSelection]:
        are_many = len(self._cursors) > _OPEN_MAX
        for index, cursor in enumerate(self._cursors):
            for starts, sizes, numbers, wrong in cursor.take_to(end):
                queue_of = np.full(len(starts), index, dtype=np.int64)
                choice = RecordSelection(starts, sizes, numbers, self._queues, queue_of)
                for number in wrong:
                    self._note_at(index, number, NO_PLACE)
                yield choice
            if are_many:
                cursor.close()

    def _join(self, choices: Sequence[RecordSelection]) -> RecordSelection:
        """Return all records as one selection, in the order of the log."""
        nothing = np.zeros(0, dtype=np.int64)
        columns = [
            np.concatenate([nothing, *(getattr(choice, name) for choice in choices)])
            for name in ("starts", "sizes", "numbers", "queue_of")
        ]
        order = np.argsort(columns[0], kind="stable")
        starts, sizes, numbers, queue_of = (column[order] for column in columns)
        return RecordSelection(starts, sizes, numbers, self._queues, queue_of)

    def _note(self, waiting: RecordSelection, row: int, reason: str) -> None:
        assert waiting.numbers is not None, "these records have units"
        assert waiting.queue_of is not None, "these records have units"
        self._note_at(int(waiting.queue_of[row]), int(waiting.numbers[row]), reason)

    def _note_at(self, index: int, number: int, reason: str) -> None:
        self.damaged += 1
        if not self._spec.skips_damaged:
            queue = self._part.ranges[index]
            raise MessageDamaged(queue.topic, queue.queue_id, number, reason)


class _Cursor:
    """Cursor that moves once through the units of a range."""

    def __init__(
        self, directory: StoreDirectory, scan_range: ScanRange, spec: ScanSpec, stack: ExitStack
    ) -> None:
        self._source = directory.source()
        self._scan_range = scan_range
        self._codes = spec.tag_codes
        self._units = directory.unit_files(*scan_range)
        self._ext = None
        if self._codes is not None:
            self._ext = directory.ext_source(scan_range.topic, scan_range.queue_id)
        stack.callback(self._units.close)
        self._next = scan_range.begin

    def take_to(self, end: int | None) -> Iterator[tuple[Ints, Ints, Ints, Sequence[int]]]:
        """Yield starts, sizes and queue offsets of records before `end`, and those of wrong units.

        Args:
            end: Log offset. None = the end of the range.

        Raises:
            RangeGone: A file of units was deleted.
            OSError: The disk failed.
        """
        while self._next < self._scan_range.end:
            count = min(_PIECE_UNITS, self._scan_range.end - self._next)
            units = self._units.units(QueueOffset(self._next), count)
            if not len(units):
                topic, queue_id, _, last = self._scan_range
                raise RangeGone(topic, queue_id, self._next, last)
            read = len(units)
            if end is not None:
                # A unit that points behind the log's end is damaged, and must not stop the others.
                behind = (units["offset"] >= end) & (units["offset"] < self._source.end)
                behind &= units["size"] != PADDING_SIZE
                units = units[: int(behind.argmax())] if behind.any() else units
            if len(units):
                codes = None
                if self._codes is not None and self._ext is not None:
                    codes = self._ext.tag_codes(units)
                chosen = select(units, self._source.start, self._source.end, self._codes, codes)
                rows = np.arange(len(units)) if chosen.rows is None else chosen.rows
                # No record of a planned range lies before the log: such units are wrong, too.
                before = rows_before_log(units, chosen, self._source)
                wrong = [self._next + row for row in sorted((*chosen.wrong, *before))]
                first = self._next
                self._next += len(units)
                yield chosen.starts, chosen.sizes, first + rows, wrong
            if len(units) < read:
                return

    def close(self) -> None:
        """Close the file of units; `take_to` opens it again."""
        self._units.close()
