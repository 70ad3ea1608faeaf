"""Scan of a range of one queue from the directory of its store.

Source: RocketMQ `DefaultMessageStore.getMessage`.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

import numpy as np

from ternmq_model.errors import MessageDamaged, RangeGone, StoreError
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_store.disk.layout import base_of, deletions_path
from ternmq_store.dispatch.topic_deletions import load_deletions
from ternmq_store.query.time_search import BoundaryType, TimeSearch
from ternmq_store.queues.units import PADDING_SIZE, Unit, Units, unit_of
from ternmq_store.read.log_source import LogSource
from ternmq_store.read.message_selection import Selection, select
from ternmq_store.read.unit_search import QueueSource, UnitSearch
from ternmq_store.scan.directory import StoreDirectory
from ternmq_store.scan.log_rows import LogRows, RecordSelection
from ternmq_store.scan.scan_spec import ScanRange, ScanSpec, ScanStep

if TYPE_CHECKING:
    import pyarrow as pa

FILTER_UNITS: Final = 32_768
"""Units inspected in one step of a scan with a filter."""

NO_PLACE: Final = "its unit points to no place of the log"


def scan_queue(
    directory: StoreDirectory,
    scan_range: ScanRange,
    spec: ScanSpec,
    *,
    log_end: int | None = None,
) -> Iterator[ScanStep]:
    """Yield the matching messages of a range, in the order of the queue, a batch a step.

    Args:
        directory: Directory of the store.
        scan_range: Range up to the present end of the queue at most.
        spec: Filter and columns.
        log_end: Log offset up to which records are read. None = the end of the log's last file.

    Raises:
        MessageDamaged: A message is damaged, and `spec` does not skip such. No row of that step is
            yielded.
        RangeGone: Retention removed messages of the range that are not read yet.
        UsageError: `spec` names an unknown column.
        MissingPackage: A body is compressed in a way that needs the extra `compression`.
        StoreError: Files of the store are missing.
        OSError: The disk failed.
    """
    spec = spec.checked()
    with ExitStack() as stack:
        scan = _QueueScan(directory, scan_range, spec, stack)
        yield from scan.run(directory.source(log_end), log_end)


def _narrowed_by_time(
    directory: StoreDirectory, scan_range: ScanRange, spec: ScanSpec, source: LogSource
) -> ScanRange:
    """Return the part of a range that was stored in the times of `spec`, by a binary search.

    Raises:
        OSError: The disk failed.
    """

    def first_since(begin: int, at_ms: int, *, is_end: bool) -> int:
        topic, queue_id, _, end = scan_range
        units = directory.unit_files(topic, queue_id, begin, end)
        return TimeSearch(units, source, at_ms, BoundaryType.LOWER, is_end=is_end).run()

    begin, end = scan_range.begin, scan_range.end
    if spec.stored_from_ms and begin < end:
        begin = first_since(begin, spec.stored_from_ms, is_end=False)
    if spec.stored_before_ms and begin < end:
        end = first_since(begin, spec.stored_before_ms, is_end=True)
    return scan_range._replace(begin=begin, end=end)


def rows_before_log(units: Units, chosen: Selection, source: LogSource) -> Sequence[int]:
    """Return the rows of units that point before the log, besides those known as wrong."""
    is_before = (units["offset"] < source.start) & (units["size"] != PADDING_SIZE)
    is_before[list(chosen.wrong)] = False
    rows: list[int] = np.flatnonzero(is_before).tolist()
    return rows


class _QueueScan:
    """One scan of one queue."""

    def __init__(
        self,
        directory: StoreDirectory,
        scan_range: ScanRange,
        spec: ScanSpec,
        stack: ExitStack,
    ) -> None:
        self._directory = directory
        self._scan_range = scan_range
        self._spec = spec
        self._queues = [(scan_range.topic.encode(), scan_range.queue_id)]
        self._ext = directory.ext_source(scan_range.topic, scan_range.queue_id)
        self._units = directory.unit_files(*scan_range)
        stack.callback(self._units.close)
        stack.callback(self._close)
        self._rows: LogRows | None = None
        self._damaged = 0
        self._stack = stack
        self._search: UnitSearch | None = None
        self._repaired: dict[QueueOffset, Unit] = {}

    def _close(self) -> None:
        if self._rows is not None:
            self._rows.close()

    def run(self, source: LogSource, log_end: int | None) -> Iterator[ScanStep]:
        """Yield the steps of the scan."""
        scan_range = self._scan_range
        self._refuse_gone(scan_range.begin)
        inside = _narrowed_by_time(self._directory, scan_range, self._spec, source)
        offset = inside.begin
        while offset < inside.end:
            units = self._next_units(offset, inside.end).copy()
            while True:
                chosen = self._select(units, offset, source)
                found, batch, damaged = 0, None, dict.fromkeys(chosen.wrong, NO_PLACE)
                if len(chosen.starts):
                    found, batch = self._take(chosen, offset, log_end, damaged)
                scanned = chosen.scanned(found, len(units))
                damaged = {row: why for row, why in sorted(damaged.items()) if row < scanned}
                if not self._repair(units, offset, damaged, source):
                    break
            for row, reason in damaged.items():
                self._note(offset + row, reason)
            offset += scanned
            yield ScanStep(batch, offset, self._damaged)
        if inside.end < scan_range.end or inside.begin >= inside.end:
            yield ScanStep(None, scan_range.end, self._damaged)

    def _next_units(self, offset: int, end: int) -> Units:
        has_filter = self._spec.tag_codes is not None
        count = FILTER_UNITS if has_filter else self._spec.batch_rows_max
        units = self._units.units(QueueOffset(offset), min(count, end - offset))
        if not len(units):
            self._refuse_gone(offset)
            raise StoreError(
                f"topic {self._scan_range.topic!r} queue {self._scan_range.queue_id}: "
                f"the file with the unit of message {offset} is missing"
            )
        return units

    def _select(self, units: Units, offset: int, source: LogSource) -> Selection:
        codes = None
        if self._spec.tag_codes is not None and self._ext is not None:
            codes = self._ext.tag_codes(units)
        chosen = select(units, source.start, source.end, self._spec.tag_codes, codes)
        if not (before := rows_before_log(units, chosen, source)):
            return chosen
        self._refuse_gone(offset + before[0])
        # The queue still has messages before these, so their units are damaged.
        return chosen._replace(wrong=sorted((*chosen.wrong, *before)))

    def _repair(self, units: Units, offset: int, rows: Collection[int], source: LogSource) -> bool:
        """Repair the units of damaged messages, in memory alone; return whether any changed.

        The broker repairs its files.
        """
        is_changed = False
        for row in rows:
            if self._search is None:
                self._search = self._new_search(source)
            number, was = QueueOffset(offset + row), unit_of(units, row)
            found = self._search.find_all(number, was)
            self._repaired.update((repair.offset, repair.unit) for repair in found)
            unit = self._repaired.get(number, was)
            units[row] = tuple(unit)
            is_changed |= unit != was
        return is_changed

    def _new_search(self, source: LogSource) -> UnitSearch:
        (topic, queue_id, _, end), directory = self._scan_range, self._directory
        path = deletions_path(directory.root)
        floors = load_deletions(directory.files, path, lambda _: None)  # the broker logs it
        floor = floors.get(topic, PhysicalOffset(0))
        files = self._stack.enter_context(closing(directory.unit_files(topic, queue_id, 0, end)))
        return UnitSearch(source, QueueSource(topic, queue_id, files, floor, self._ext, ()))

    def _take(
        self, chosen: Selection, offset: int, log_end: int | None, damaged: dict[int, str]
    ) -> tuple[int, "pa.RecordBatch | None"]:
        """Inspect the first selected messages; return their count, and the matching rows.

        Args:
            chosen: At least one message.
            offset: Queue offset of the first unit.
            log_end: Log offset up to which records are read.
            damaged: Receives the reasons of damaged messages, by the row of their unit.
        """
        numbers = offset + (np.arange(len(chosen.starts)) if chosen.rows is None else chosen.rows)
        base = base_of(int(chosen.starts[0]), self._directory.log_file_bytes)
        if self._rows is None or self._rows.base != base:
            self._close()
            self._rows = None
            try:
                self._rows = LogRows(self._directory, self._spec, base=base, log_end=log_end)
            except FileNotFoundError:
                raise self._gone(int(numbers[0])) from None
        outside = (chosen.starts < base) | (chosen.starts >= self._rows.end)
        count = int(outside.argmax()) if outside.any() else len(chosen.starts)
        choice = RecordSelection(chosen.starts, chosen.sizes, numbers, self._queues, None).part(
            0, count
        )
        found = self._rows.take(choice)
        if found.inspected < count:
            self._rows.will_need(int(choice.starts[found.inspected]))
        for damage in found.damaged:
            damaged[int(numbers[damage.row]) - offset] = damage.error.reason
        return found.inspected, found.batch

    def _note(self, offset: int, reason: str) -> None:
        self._damaged += 1
        if not self._spec.skips_damaged:
            raise MessageDamaged(self._scan_range.topic, self._scan_range.queue_id, offset, reason)

    def _refuse_gone(self, offset: int) -> None:
        """Refuse to continue if the queue starts behind `offset` by now."""
        topic, queue_id, _, end = self._scan_range
        if offset < end and self._directory.first_message(topic, queue_id, end) > offset:
            raise self._gone(offset)

    def _gone(self, offset: int) -> RangeGone:
        topic, queue_id, _, end = self._scan_range
        first = self._directory.first_message(topic, queue_id, end)
        return RangeGone(topic, queue_id, offset, max(first, offset + 1))
