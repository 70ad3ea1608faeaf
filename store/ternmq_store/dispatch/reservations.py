"""Queue offsets and space in queues and index, reserved before records are appended."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.index_keys import KeyRows, find_keys, keys_in
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.record.batch import RecordBatch, Records, batch_of
from ternmq_model.record.format import FLAG_PREPARED
from ternmq_model.record.single import FIRST_ROW, SingleRecord
from ternmq_store.disk.resource_exhaustion import check_full
from ternmq_store.dispatch.dispatch_request import (
    BitMaps,
    DispatchRequest,
    KeyRun,
    SingleRequest,
    unit_runs,
)
from ternmq_store.index.index_files import IndexFiles
from ternmq_store.log.commit_log import Placement
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.consume_queues import ConsumeQueues
from ternmq_store.queues.units import Unit

_SET_BACK_MS: Final = 60_000
"""Greatest distance of a clock behind the newest record, ms. A larger one means a clock set back.
"""


def store_time(now_ms: int, newest_at_ms: int) -> int:
    """Return the store time of records: at least that of the newest one, except after a set-back.

    Pure. This is a second guard, since the broker's clock slows down in place of small steps back.
    """
    return newest_at_ms if now_ms < newest_at_ms <= now_ms + _SET_BACK_MS else now_ms


class BatchReservation(NamedTuple):
    """Queue offsets of a batch, its queues and its keys."""

    batch: RecordBatch
    queue_offsets: Ints
    rows_of: Sequence[tuple[ConsumeQueue, Ints]]
    keys: KeyRows | None
    """None = no index."""

    @property
    def key_count(self) -> int:
        """Number of entries in the index."""
        return 0 if self.keys is None else len(self.keys.rows)

    def request(
        self, start: PhysicalOffset, placed: Placement, stored_at_ms: int, bit_maps: BitMaps | None
    ) -> DispatchRequest:
        """Return the request to dispatch the batch, which was appended from `start` on."""
        offsets = placed.physical_offsets
        times = np.full(len(self.batch), stored_at_ms, dtype=np.int64)
        runs = unit_runs(
            self.batch,
            self.rows_of,
            offsets=offsets,
            queue_offsets=self.queue_offsets,
            stored_at_ms=times,
            bit_maps=bit_maps,
        )
        keys = None if self.keys is None else KeyRun(self.keys, offsets, times)
        return DispatchRequest(start, placed.end, stored_at_ms, len(self.batch), runs, keys)


class SingleReservation(NamedTuple):
    """Queue offset of a single record, its queue and its keys."""

    record: SingleRecord
    queue_offsets: Ints
    rows_of: tuple[tuple[ConsumeQueue, Ints]]
    keys: Sequence[str] | None
    """None = no index."""

    @property
    def key_count(self) -> int:
        """Number of entries in the index."""
        return 0 if self.keys is None else len(self.keys)

    def request(
        self, start: PhysicalOffset, placed: Placement, stored_at_ms: int, bit_maps: BitMaps | None
    ) -> SingleRequest:
        """Return the request to dispatch the record, which was appended from `start` on."""
        offset = int(placed.physical_offsets[0])
        ext = None if bit_maps is None else bit_maps(batch_of(self.record))[0]
        unit = Unit(PhysicalOffset(offset), len(self.record.data), self.record.tag_code)
        queue = self.rows_of[0][0]
        return SingleRequest(
            start, placed.end, stored_at_ms, queue, self.queue_offsets, unit, ext, self.keys
        )


class Reservations:
    """Reserves queue offsets, and space for units and keys.

    Used by `MessageStore`, on the store's thread.
    """

    def __init__(self, queues: ConsumeQueues, index: IndexFiles | None) -> None:
        self._queues = queues
        self._index = index

    def reserve(self, batch: Records) -> BatchReservation | SingleReservation:
        """Return the queue offsets of records that are about to be appended.

        Raises:
            StoreFull: A queue or the index has no space for more.
            OSError: The disk failed.
        """
        if isinstance(batch, SingleRecord):
            words = None if self._index is None else keys_in(batch.data[batch.properties_at :])
            self._reserve_keys(0 if words is None else len(words))
            first = batch.queues[0]
            queue = self._queues.of(first.topic, first.queue_id)
            self._reserve_units(queue, 1)
            offsets = FIRST_ROW + queue.next_offset
            return SingleReservation(batch, offsets, ((queue, first.rows),), words)
        keys = None if self._index is None else find_keys(batch)
        self._reserve_keys(0 if keys is None else len(keys.rows))
        return BatchReservation(batch, *self._numbers(batch), keys)

    def commit(self, reserved: BatchReservation | SingleReservation) -> None:
        """Take the reserved offsets and space, for records that were appended."""
        for queue, rows in reserved.rows_of:
            queue.next_offset = QueueOffset(queue.next_offset + len(rows))
        if self._index is not None:
            self._index.expect(reserved.key_count)

    def _reserve_keys(self, count: int) -> None:
        if self._index is None or not count:
            return
        try:
            self._index.reserve(count)
        except OSError as error:
            check_full(error, "index")
            raise

    def _reserve_units(self, queue: ConsumeQueue, count: int) -> None:
        try:
            queue.reserve(QueueOffset(queue.next_offset + count))
        except OSError as error:
            check_full(error, "consume queues")
            raise

    def _numbers(self, batch: RecordBatch) -> tuple[Ints, Sequence[tuple[ConsumeQueue, Ints]]]:
        """Return every row's queue offset, and each queue with its rows."""
        rows_of = [(self._queues.of(q.topic, q.queue_id), q.rows) for q in batch.queues]
        offsets = np.zeros(len(batch), dtype=np.int64)
        flags = batch.headers["sys_flag"] & FLAG_PREPARED
        if flags.any():  # prepared and rolled back: neither is a message of its queue
            rows_of = [(queue, rows[flags[rows] == 0]) for queue, rows in rows_of]
        for queue, rows in rows_of:
            count = len(rows)
            self._reserve_units(queue, count)
            numbers = np.arange(queue.next_offset, queue.next_offset + count, dtype=np.int64)
            if count == len(offsets):
                offsets = numbers
            else:
                offsets[rows] = numbers
        return offsets, rows_of
