"""Queue offsets and space in queues and index, reserved before records are appended."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.index_keys import KeyRows, find_keys
from ternmq_model.offsets import QueueOffset
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.format import FLAG_PREPARED
from ternmq_store.disk.resource_exhaustion import check_full
from ternmq_store.index.index_files import IndexFiles
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.consume_queues import ConsumeQueues

_SET_BACK_MS: Final = 60_000
"""Greatest distance of a clock behind the newest record, ms. A larger one means a clock set back.
"""


def store_time(now_ms: int, newest_at_ms: int) -> int:
    """Return the store time of records: at least that of the newest one, except after a set-back.

    Pure. This is a second guard, since the broker's clock slows down in place of small steps back.
    """
    return newest_at_ms if now_ms < newest_at_ms <= now_ms + _SET_BACK_MS else now_ms


class Reservations:
    """Queue offsets of a batch, and space for its units and keys.

    Used by `MessageStore`, on the store's thread.
    """

    def __init__(self, queues: ConsumeQueues, index: IndexFiles | None) -> None:
        self._queues = queues
        self._index = index

    def keys(self, batch: RecordBatch) -> KeyRows | None:
        """Return the batch's keys, after a reservation of space in the index; None = no index.

        Raises:
            StoreFull: The index has no space for more keys.
            OSError: The disk failed.
        """
        if self._index is None:
            return None
        keys = find_keys(batch)
        try:
            self._index.reserve(len(keys.rows))
        except OSError as error:
            check_full(error, "index")
            raise
        return keys

    def numbers(self, batch: RecordBatch) -> tuple[Ints, Sequence[tuple[ConsumeQueue, Ints]]]:
        """Return every row's queue offset, and each queue with its rows. Reserve space for units.

        Raises:
            StoreFull: A queue has no space for more units.
            OSError: The disk failed.
        """
        rows_of = [(self._queues.of(q.topic, q.queue_id), q.rows) for q in batch.queues]
        offsets = np.zeros(len(batch), dtype=np.int64)
        flags = batch.headers["sys_flag"] & FLAG_PREPARED
        if flags.any():  # prepared and rolled back: neither is a message of its queue
            rows_of = [(queue, rows[flags[rows] == 0]) for queue, rows in rows_of]
        try:
            for queue, rows in rows_of:
                count = len(rows)
                queue.reserve(QueueOffset(queue.next_offset + count))
                numbers = np.arange(queue.next_offset, queue.next_offset + count, dtype=np.int64)
                if count == len(offsets):
                    offsets = numbers
                else:
                    offsets[rows] = numbers
        except OSError as error:
            check_full(error, "consume queues")
            raise
        return offsets, rows_of
