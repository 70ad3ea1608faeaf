"""Unfinished messages of a columns listener: checked records without an object for each."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from ternmq_consumer.process_queue.process_queue import MessageSeries
from ternmq_model.columns.batches import join_batches
from ternmq_model.columns.pulled_batch import columns_of_records, tagged_records, valid_records
from ternmq_model.columns.record_validation import ValidRecords
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class MessageRows(MessageSeries[StoredMessage]):
    """Messages of one queue as rows of their replies. A `StoredMessage` is made when it is read.

    Args:
        queue: Queue of the messages.
        pieces: Checked records, in the order of their offsets.
    """

    queue: MessageQueue
    pieces: Sequence[ValidRecords]

    def __len__(self) -> int:
        return sum(len(piece.rows) for piece in self.pieces)

    @overload
    def __getitem__(self, index: int) -> StoredMessage: ...
    @overload
    def __getitem__(self, index: slice) -> "MessageRows": ...
    def __getitem__(self, index: int | slice) -> "StoredMessage | MessageRows":
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self))
            assert step == 1, "rows stay in order"
            return MessageRows(self.queue, list(self._cut(begin, end)))
        at = index + len(self) if index < 0 else index
        for piece in self.pieces:
            if 0 <= at < len(piece.rows):
                start = int(piece.layout.starts[at])
                offset = QueueOffset(int(piece.layout.headers["queue_offset"][at]))
                return StoredMessage.at(bytes(piece.view), start, self.queue, offset)
            at -= len(piece.rows)
        raise IndexError(index)

    def _cut(self, begin: int, end: int) -> Iterable[ValidRecords]:
        """Yield the records of the rows from `begin` to `end`."""
        for piece in self.pieces:
            count = len(piece.rows)
            if begin <= 0 and end >= count:
                yield piece
            elif begin < count and end > 0:
                yield piece.only(np.arange(max(begin, 0), min(end, count)))
            begin, end = begin - count, end - count
            if end <= 0:
                return

    @property
    def record_bytes(self) -> int:
        """Length of all records."""
        return sum(int((each.layout.ends - each.layout.starts).sum()) for each in self.pieces)

    def join(self, other: MessageSeries[StoredMessage]) -> "MessageRows":
        """Return these messages and those of `other`, which follow."""
        assert isinstance(other, MessageRows), "a queue has messages of one kind"
        return MessageRows(self.queue, [*self.pieces, *other.pieces])

    def tagged(self, tags: Collection[str]) -> "MessageRows":
        """Return the messages with one of `tags`."""
        pieces = [tagged_records(piece, tags) for piece in self.pieces]
        return MessageRows(self.queue, [piece for piece in pieces if len(piece.rows)])


def decode_rows(records: bytes, sizes: NDArray[np.int32], queue: MessageQueue) -> MessageRows:
    """Return the messages of contiguous records, at least one.

    Raises:
        CorruptRecord: A record is corrupt. No message of the batch is returned.
    """
    return MessageRows(queue, [valid_records(records, sizes)])


def columns_of(messages: Sequence[StoredMessage]) -> "pa.RecordBatch":
    """Return messages of one queue, at least one, as rows with all columns.

    The rows of redelivered messages have their original topic and the number of attempts.

    Raises:
        MissingPackage: A compressed body needs the extra `compression`.
    """
    if isinstance(messages, MessageRows):
        broker_name = messages.queue.broker_name
        return join_batches([columns_of_records(each, broker_name) for each in messages.pieces])
    records = [each.record for each in messages]
    sizes = np.fromiter(map(len, records), dtype=np.int32, count=len(records))
    found = valid_records(b"".join(records), sizes)
    return columns_of_records(
        found,
        messages[0].queue.broker_name,
        topics=[each.topic for each in messages],
        reconsume_times=[each.reconsume_times for each in messages],
    )
