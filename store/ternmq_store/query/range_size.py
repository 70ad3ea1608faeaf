"""Size of the records in a range of a queue: the sum of the sizes in its units.

A range may be long, so the measurement has bounded steps, which any thread may run.
"""

from contextlib import closing
from typing import Final

import numpy as np

from ternmq_model.offsets import UNIT_BYTES, QueueOffset
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.unit_files import UnitFiles
from ternmq_store.queues.units import PADDING_SIZE

_PIECE_UNITS: Final = 1 << 16
_GO_PIECES: Final = 8
"""Pieces of a step: half a million messages, some milliseconds."""


class QueueRangeSize:
    """Range of a queue and its size so far. Created on the store's thread.

    Args:
        queue: Queue; None = a queue without messages.
        begin: Offset of the first message. Deleted messages have no size.
        end: Offset behind the last message, at most the queue's end.
        bytes_max: Limit; the range ends with the message that reaches it. 0 = no limit.

    Attributes:
        end: Offset behind the last counted message.
        bytes: Length of the counted records, bytes.
        is_done: True = the whole range is counted.
    """

    def __init__(
        self, queue: ConsumeQueue | None, begin: QueueOffset, end: QueueOffset, *, bytes_max: int
    ) -> None:
        self._units: UnitFiles | None = None
        self._bytes_max = bytes_max
        self.end = begin
        self.bytes = 0
        self.is_done = True
        if queue is not None:
            last = min(end, queue.end)
            self.end = max(begin, min(queue.min_offset, last))
            self._units = queue.units_between(self.end, last)
            self.is_done = self.end >= last

    def run(self) -> None:
        """Count one step. Only one thread may run it at a time.

        Raises:
            OSError: The disk failed.
        """
        if self._units is not None:
            with closing(self._units) as units:
                pieces = _GO_PIECES
                while pieces and not self.is_done:
                    self._count_piece(units)
                    pieces -= 1

    def _count_piece(self, units: UnitFiles) -> None:
        file_units = units.file_bytes // UNIT_BYTES
        count = min(_PIECE_UNITS, units.end - self.end, file_units - self.end % file_units)
        sizes = units.units(self.end, count)["size"].astype(np.int64)
        sizes[sizes == PADDING_SIZE] = 0
        total = int(sizes.sum())
        if self._bytes_max and self.bytes + total >= self._bytes_max:
            sums = np.cumsum(sizes)
            count = int(np.searchsorted(sums, self._bytes_max - self.bytes)) + 1
            self.bytes += int(sums[count - 1])
            self.is_done = True
        else:
            # Messages that retention deleted meanwhile have no size.
            self.bytes += total
        self.end = QueueOffset(self.end + count)
        self.is_done |= self.end >= units.end
