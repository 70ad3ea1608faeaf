"""Search of the log for records of transactions.

The prepared offset of a header is not indexed, so the search reads a range of the log, piece by
piece, in any thread. It skips damage like recovery.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.batch import RecordBatch
from ternmq_model.record.format import (
    FLAG_COMMIT,
    FLAG_TRANSACTION_MASK,
)
from ternmq_model.record.scanner import SCAN_BYTES_MAX, Verify
from ternmq_store.read.log_source import LogSource


class PreparedRecord(NamedTuple):
    """Record of a transaction."""

    prepared_offset: PhysicalOffset
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: PhysicalOffset
    end: PhysicalOffset


class PreparedSearch:
    """Search of the log for records of transactions. `step` runs in one thread at a time.

    Args:
        source: Log to search, up to the dispatched end.
        start: Log offset of a record.
        transactions: Prepared offsets to find.
        skipped_topic: Topic whose records are ignored.

    Attributes:
        at: Log offset behind the last searched record.
        found: Found records, in the order of the log.
    """

    def __init__(
        self,
        source: LogSource,
        start: PhysicalOffset,
        transactions: Iterable[PhysicalOffset],
        *,
        skipped_topic: str,
    ) -> None:
        self.at = max(start, source.start)
        self.found: list[PreparedRecord] = []
        self._source = source
        self._wanted = np.sort(np.fromiter(transactions, dtype=np.int64))
        self._skipped_topic = skipped_topic

    def step(self) -> bool:
        """Read one piece. Return whether there is more.

        Raises:
            OSError: The disk failed.
        """
        source = self._source
        if self.at >= source.end:
            return False
        try:
            step = source.step(
                self.at, source.end, verify=Verify.NOTHING, search_bytes=SCAN_BYTES_MAX
            )
        except FileNotFoundError:  # retention was faster
            self.at = PhysicalOffset(self.at - self.at % source.file_bytes + source.file_bytes)
            return True
        if step.batch is not None:
            self._take(step.batch)
        self.at = step.end
        return self.at < source.end

    def _take(self, batch: RecordBatch) -> None:
        headers = batch.headers
        prepared = headers["prepared_offset"].astype(np.int64)
        is_message = headers["sys_flag"] & FLAG_TRANSACTION_MASK == FLAG_COMMIT
        matched = is_message | (prepared > 0)
        if not len(self._wanted) or not matched.any():
            return
        # `isin` would sort the transactions, up to a million, for each piece.
        rows = np.flatnonzero(matched)
        places = np.searchsorted(self._wanted, prepared[rows])
        places[places == len(self._wanted)] = 0
        matched[rows] = self._wanted[places] == prepared[rows]
        if not matched.any():
            return
        for queue in batch.queues:
            if queue.topic == self._skipped_topic:
                continue
            for row in queue.rows[matched[queue.rows]].tolist():
                start = int(headers["physical_offset"][row])
                self.found.append(
                    PreparedRecord(
                        PhysicalOffset(int(prepared[row])),
                        queue.topic,
                        queue.queue_id,
                        int(headers["queue_offset"][row]),
                        PhysicalOffset(start),
                        PhysicalOffset(start + int(batch.sizes[row])),
                    )
                )
