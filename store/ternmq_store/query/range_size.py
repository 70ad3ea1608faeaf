"""Size of the records in a range of a queue: added up from the queue's units.

A range may be long, so it is measured in goes, each bounded and in any thread.
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
"""Half a million messages in one go: some milliseconds."""


class QueueRangeSize:
    """Range of a queue, as the queue is now, and its known size. Made on the store's thread.

    Args:
        queue: The queue; None = one that was never written to.
        begin: The first message; what the queue does not keep any more counts nothing.
        end: Behind the last one; the queue's end at most.
        bytes_max: The range ends with the message that reaches so many bytes; 0 = no limit.

    Attributes:
        end: Behind the last message that was counted.
        bytes: Length of the records up to there.
        is_done: Nothing is left to count.
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
        """Count on, for one go. One thread at a time.

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
            # What retention has taken meanwhile counts nothing.
            self.bytes += total
        self.end = QueueOffset(self.end + count)
        self.is_done |= self.end >= units.end
