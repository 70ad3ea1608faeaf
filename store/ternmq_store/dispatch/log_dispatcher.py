"""Dispatcher: it follows the log and adds each record to its consume queue and to the index.

Units and keys come from the dispatch request of the append. Without a request (after a restart, or
when too many are waiting) the dispatcher reads the log. Both give the same bytes.

Source: RocketMQ `ReputMessageService`, `CommitLogDispatcherBuildConsumeQueue`,
`CommitLogDispatcherBuildIndex`.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.errors import CorruptRecord
from ternmq_model.index_keys import KeyRows, find_keys
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.format import FLAG_PREPARED
from ternmq_model.record.scanner import LogChunk, Verify
from ternmq_store.dispatch.dispatch_request import (
    BitMaps,
    KeyRun,
    Requests,
    SingleRequest,
    UnitRun,
    join_keys,
    unit_runs,
)
from ternmq_store.log.checksum_ranges import VerifyRange, check_bodies
from ternmq_store.log.commit_log import CommitLog
from ternmq_store.log.quarantine import Quarantine
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.consume_queues import ConsumeQueues
from ternmq_store.queues.units import Unit, Units, as_units

logger = logging.getLogger(__name__)

REQUESTED_RECORDS_MAX: Final = 1 << 19
"""Most records of waiting requests, about 100 bytes each. For more records the log is read."""

_REQUEST_RECORDS: Final = 16
"""Cost of a request, in records."""

_SCAN_RECORDS: Final = 4096

Moved = dict[ConsumeQueue, list[Units | Unit]]
"""New units of each queue."""


class KeyIndex(Protocol):
    """Index of the dispatcher."""

    def put(self, keys: KeyRows, offsets: Ints, stored_at_ms: Ints, end: PhysicalOffset) -> None:
        """Add keys of records that are not indexed yet."""

    def put_one(
        self, hashes: Sequence[int], offset: PhysicalOffset, stored_at_ms: int, end: PhysicalOffset
    ) -> None:
        """Add the keys of one record, as `put` does."""


class Arrival(NamedTuple):
    """New readable messages of a queue, up to `max_offset` (exclusive)."""

    topic: str
    queue_id: int
    max_offset: QueueOffset
    tag_codes: Ints | tuple[int]
    """Tag codes of the new messages' units."""


class DispatchResult(NamedTuple):
    """Result of one step of the dispatcher."""

    arrivals: Sequence[Arrival]
    more: bool
    """True if more can be dispatched at once."""


class UndispatchedRange(NamedTuple):
    """Range of the log that is not dispatched to queues and index yet."""

    start: PhysicalOffset
    end: PhysicalOffset
    keys: KeyRows | None
    """Keys of the records; None = the range must be read."""

    offsets: Ints
    """Log offsets of the records, if `keys` are known."""


class LogDispatcher:
    """Dispatcher of records to the consume queues and the index, in the order of the log.

    Owned by `MessageStore`, on the store's thread.

    Attributes:
        offset: Log offset below which all records are dispatched.
        stored_at_ms: Store time of the newest record dispatched.
        index: Index of the records' keys; None = no index.
        dropped: Log offset of each deleted topic before which its records no longer count.
        pads: True = a queue is padded up to a message without a predecessor; False = the message is
            left out.
        gaps: Number of runs with messages that were left out because of a gap.
        scanned: Number of records that were read from the log because there was no request.
        stopped_by: Error of the bytes at `offset` that ended a scan; None = none.
        check_at: Function that returns the verification of a log that may be damaged.
        quarantine: Damaged ranges of the log. A scan skips them.
        bit_maps: Function of the filter bit maps; None = no extension units.
        is_dispatching: True = a scan adds its records to queues and index.
        doubts: True = a scan checks trusted records too, since another store wrote them.
    """

    def __init__(
        self, log: CommitLog, queues: ConsumeQueues, index: KeyIndex | None = None
    ) -> None:
        self.log = log
        self._queues = queues
        self.index = index
        self._requests: deque[Requests] = deque()
        self._requested = 0
        self.dropped: dict[str, PhysicalOffset] = {}
        self.pads = True
        self.gaps = 0
        self.offset = PhysicalOffset(0)
        self.stored_at_ms = 0
        self.scanned = 0
        self.stopped_by: CorruptRecord | None = None
        self.check_at: Callable[[PhysicalOffset], VerifyRange] = check_bodies
        self.quarantine = Quarantine()
        self.bit_maps: BitMaps | None = None
        self.is_dispatching = True
        self.doubts = False

    def add(self, request: Requests) -> None:
        """Queue the request of records that were just appended.

        Beyond the limit of requests there is none: then the records are read from the log.
        """
        if self._requested < REQUESTED_RECORDS_MAX:
            self._requests.append(request)
            self._requested += request.records + _REQUEST_RECORDS

    def _forget_request(self) -> None:
        self._requested -= self._requests.popleft().records + _REQUEST_RECORDS

    def go_back(self, offset: PhysicalOffset) -> None:
        """Dispatch again from `offset` on. Queues and index skip records that they have."""
        self.offset = max(min(self.offset, offset), self.log.start)

    def undispatched(self, end: PhysicalOffset) -> Sequence[UndispatchedRange]:
        """Return the undispatched ranges of the log up to `end`, with their keys if known."""
        found: list[UndispatchedRange] = []
        at = self.offset
        for request in (*self._requests, None):
            start = end if request is None else min(request.start, end)
            if at < start:
                found.append(UndispatchedRange(at, start, None, np.zeros(0, dtype=np.int64)))
            if request is not None and at <= request.start < end:
                run = request.keys
                offsets = np.zeros(0, dtype=np.int64) if run is None else run.offsets
                keys = None if run is None else run.keys
                found.append(UndispatchedRange(request.start, request.end, keys, offsets))
                at = request.end
        return found

    def step(self, limit: PhysicalOffset, *, messages_max: int) -> DispatchResult:
        """Dispatch up to `limit`, at most about `messages_max` records.

        Raises:
            OSError: There is no space for units or keys. The step may be repeated.
        """
        moved: Moved = {}
        count = 0
        while self.offset < limit and count < messages_max and self.stopped_by is None:
            while self._requests and self._requests[0].start < self.offset:
                self._forget_request()
            requests = self._next_requests(limit, messages_max - count)
            if requests:
                count += self._follow(requests, moved)
                continue
            request = self._requests[0] if self._requests else None
            end = limit if request is None or request.start == self.offset else request.start
            before = self.offset
            count += self.scan(end, moved, records_max=messages_max - count)
            if self.offset == before:
                break
        return DispatchResult(_arrivals(moved), self.offset < limit and count >= messages_max)

    def _next_requests(self, limit: PhysicalOffset, records_max: int) -> Sequence[Requests]:
        """Return successive requests from `offset` on."""
        requests: list[Requests] = []
        offset, records = self.offset, 0
        for request in self._requests:
            if request.start != offset or request.end > limit or records >= records_max:
                break
            requests.append(request)
            offset, records = request.end, records + request.records
        return requests

    def _follow(self, requests: Sequence[Requests], moved: Moved) -> int:
        first = requests[0]
        if len(requests) == 1 and isinstance(first, SingleRequest) and first.is_plain:
            self._follow_one(first, moved)
            return 1
        for request in requests:
            for run in request.units:
                if self.dropped and request.start < self.dropped.get(run.queue.topic, 0):
                    continue
                if run.offsets[0] == run.queue.end:  # what an append gave follows each other
                    run.queue.append(run.units, run.ext)
                    moved.setdefault(run.queue, []).append(run.units)
                else:
                    self._put(run, moved)
        end = requests[-1].end
        self._put_keys([keys for request in requests if (keys := request.keys) is not None], end)
        for _ in requests:
            self._forget_request()
        self.offset, self.stored_at_ms = end, requests[-1].stored_at_ms
        return sum(request.records for request in requests)

    def _follow_one(self, request: SingleRequest, moved: Moved) -> None:
        """Dispatch one record in scalars."""
        queue, unit, stored_at_ms = request.queue, request.unit, request.stored_at_ms
        if request.start >= self.dropped.get(queue.topic, 0):
            queue.append_one(unit)
            moved.setdefault(queue, []).append(unit)
        if self.index is not None and request.words is not None:
            self.index.put_one(request.hashes(), unit.offset, stored_at_ms, request.end)
        self._forget_request()
        self.offset, self.stored_at_ms = request.end, stored_at_ms

    def _put(self, run: UnitRun, moved: Moved) -> None:
        is_next = run.queue.put(run.offsets, run.units, run.ext, pads=self.pads)
        self.gaps += not (is_next or self.pads)
        moved.setdefault(run.queue, []).append(run.units)

    def _put_keys(self, runs: Sequence[KeyRun], end: PhysicalOffset) -> None:
        if self.index is not None and runs:
            keys, offsets, stored_at_ms = join_keys(runs)
            self.index.put(keys, offsets, stored_at_ms, end)

    def scan(
        self,
        limit: PhysicalOffset,
        moved: Moved,
        *,
        records_max: int = _SCAN_RECORDS,
        is_trusted: bool = True,
    ) -> int:
        """Read records of one file of the log and dispatch them.

        Args:
            limit: End of the dispatch. A record that ends later is not read.
            moved: Mapping to which the scan adds the new units of queues.
            records_max: Most records to read.
            is_trusted: True = the records are known to be whole. False = they are checked, and
                `stopped_by` gets the error of the first bad one.

        Returns:
            Number of dispatched records.

        Raises:
            OSError: There is no space for units or keys. `offset` has not moved.
        """
        damaged_to = self.quarantine.end_at(self.offset)
        if damaged_to is not None:
            self.offset = damaged_to if damaged_to <= limit else self.offset
            return 0
        if not self.log.files.has(self.offset):
            self.stopped_by = CorruptRecord(self.offset, "there is no file")
            return 0
        found = self._read(limit, min(records_max, _SCAN_RECORDS), is_trusted=is_trusted)
        file = self.log.files.at(self.offset)
        count, stored_at_ms = 0, self.stored_at_ms
        end = PhysicalOffset(file.base + found.end)
        if found.batch is not None:
            count = len(found.batch)
            stored_at_ms = int(found.batch.headers["stored_at_ms"][-1])
            if self.is_dispatching:
                self._dispatch(found.batch, end, moved)
        if found.is_blank and file.end > limit:
            pass  # it covers what may not be passed yet
        elif found.is_blank and not is_trusted and not self.log.files.has(file.end):
            self.stopped_by = CorruptRecord(end, "no file follows the blank record")
        elif found.is_blank:
            end = PhysicalOffset(file.end)
        else:
            self.stopped_by = found.error
        self.offset, self.stored_at_ms = end, stored_at_ms
        self.scanned += count
        return count

    def _read(self, limit: PhysicalOffset, records_max: int, *, is_trusted: bool) -> LogChunk:
        offset, damage = self.offset, self.quarantine.ranges
        file = self.log.files.at(offset)
        is_known = is_trusted and not self.doubts
        verify, until = VerifyRange(Verify.NOTHING, None) if is_known else self.check_at(offset)
        last = min(limit, file.end)
        stops = [each.start for each in damage if offset < each.start < last][:1]
        if until is not None and until < last:
            stops.append(until)
        # A stop should be the begin of a record. Another stop must not end the scan.
        for end, count in ((min([last, *stops]), records_max), (last, 1)):
            found = self.log.scan(offset, end, records_max=count, verify=verify)
            if not stops or found.batch is not None or found.is_blank or found.error is not None:
                break
        return found

    def _dispatch(self, batch: RecordBatch, end: PhysicalOffset, moved: Moved) -> None:
        """Add records read from the log to queues and index."""
        headers = batch.headers
        offsets = headers["physical_offset"].astype(np.int64)
        stored_at_ms = headers["stored_at_ms"].astype(np.int64)
        is_message = (headers["sys_flag"] & FLAG_PREPARED) == 0  # rolled back has that bit too
        rows_of: list[tuple[ConsumeQueue, Ints]] = []
        placed = 0
        for topic, queue_id, rows in batch.queues:
            placed += len(rows)
            kept = is_message[rows] & (offsets[rows] >= self.dropped.get(topic, 0))
            own = rows if kept.all() else rows[kept]
            if len(own):
                rows_of.append((self._queues.of(topic, queue_id), own))
        if placed < len(batch):
            logger.warning(
                "records without a queue skipped count=%d from=%d to=%d",
                len(batch) - placed,
                offsets[0],
                end,
            )
        runs = unit_runs(
            batch,
            rows_of,
            offsets=offsets,
            queue_offsets=headers["queue_offset"].astype(np.int64),
            stored_at_ms=stored_at_ms,
            bit_maps=self.bit_maps,
        )
        for run in runs:
            self._put(run, moved)
        if self.index is not None:
            self._put_keys([KeyRun(find_keys(batch), offsets, stored_at_ms)], end)


def _arrivals(moved: Moved) -> Sequence[Arrival]:
    return [
        Arrival(queue.topic, queue.queue_id, queue.end, _tag_codes(runs))
        for queue, runs in moved.items()
    ]


def _tag_codes(runs: Sequence[Units | Unit]) -> Ints | tuple[int]:
    first = runs[0]
    if len(runs) == 1 and isinstance(first, Unit):
        return (first.tag_code,)
    units = [as_units(run) if isinstance(run, Unit) else run for run in runs]
    return (units[0] if len(units) == 1 else np.concatenate(units))["tag_code"]
