"""Size of the records in a range of a queue: added up from the queue's units.

A range may be long, so it is measured in goes, each bounded and in any thread.
"""

from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np

from ternmq_model.offsets import UNIT_BYTES, QueueOffset
from ternmq_store.disk.filesystem import FileSystem
from ternmq_store.queues.consume_queue import ConsumeQueue
from ternmq_store.queues.unit_files import UnitFiles
from ternmq_store.queues.units import PADDING_SIZE

_PIECE_UNITS: Final = 1 << 16
_GO_PIECES: Final = 8
"""Half a million messages in one go: some milliseconds."""


class QueueRangeSize:
    """One range and what is known of its size. Run by one thread at a time.

    Attributes:
        end: Behind the last message that was counted.
        bytes: Length of the records up to there.
        is_done: Nothing is left to count.
    """

    def __init__(
        self,
        files: FileSystem,
        folder: Path,
        file_bytes: int,
        begin: QueueOffset,
        end: QueueOffset,
        bytes_max: int,
    ) -> None:
        self._units = UnitFiles(files, folder, file_bytes, begin, end)
        self._file_units = file_bytes // UNIT_BYTES
        self._limit = end
        self._bytes_max = bytes_max
        self.end = begin
        self.bytes = 0
        self.is_done = begin >= end

    def run(self) -> None:
        """Count on, for one go.

        Raises:
            OSError: The disk failed.
        """
        with closing(self._units):
            for _ in range(_GO_PIECES):
                if self.is_done:
                    return
                self._count_piece()

    def _count_piece(self) -> None:
        left_in_file = self._file_units - self.end % self._file_units
        count = min(_PIECE_UNITS, self._limit - self.end, left_in_file)
        sizes = self._units.units(self.end, count)["size"].astype(np.int64)
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
        self.is_done |= self.end >= self._limit


def plan_range_size(
    files: FileSystem,
    queue: ConsumeQueue | None,
    begin: QueueOffset,
    end: QueueOffset,
    *,
    bytes_max: int,
) -> QueueRangeSize:
    """Return what measures a range of a queue as it is now. For the store's thread.

    Args:
        files: The disk.
        queue: A queue; None = one that was never written to.
        begin: The first message; what the queue does not keep any more counts nothing.
        end: Behind the last one; the queue's end at most.
        bytes_max: The range ends with the message that reaches so many bytes; 0 = no limit.
    """
    if queue is None:
        return QueueRangeSize(files, Path(), UNIT_BYTES, begin, begin, bytes_max)
    last = min(end, queue.end)
    first = max(begin, min(queue.min_offset, last))
    folder, file_bytes = queue.files.folder, queue.files.file_bytes
    return QueueRangeSize(files, folder, file_bytes, first, last, bytes_max)
