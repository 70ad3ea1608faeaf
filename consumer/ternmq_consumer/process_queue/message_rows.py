"""Unfinished messages of a columns listener: checked records without an object for each."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from ternmq_consumer.process_queue.process_queue import MessageSeries
from ternmq_model.columns.batches import BATCH_BYTES_MAX, join_batches
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


class HandoutRows:
    """Rows of the first messages of a hand-out. They are read at the first use.

    Args:
        messages: Messages of one queue, at least one.
        bytes_max: Limit of records and decompressed bodies of the rows; None = that of `poll`. The
            first message may exceed it.

    Attributes:
        messages: Messages of the rows; before the first use all given ones.
    """

    def __init__(self, messages: Sequence[StoredMessage], bytes_max: int | None = None) -> None:
        self.messages = messages
        self._bytes_max = BATCH_BYTES_MAX if bytes_max is None else bytes_max
        self._batch: pa.RecordBatch | None = None

    def read(self) -> "pa.RecordBatch":
        """Return the rows. See `columns_of`."""
        if self._batch is None:
            self._batch = columns_of(self.messages, self._bytes_max)
            self.messages = self.messages[: self._batch.num_rows]
        return self._batch


def columns_of(messages: Sequence[StoredMessage], bytes_max: int) -> "pa.RecordBatch":
    """Return the first messages of one queue, at least one, as rows with all columns.

    The rows of redelivered messages have their original topic and the number of attempts.

    Args:
        messages: Messages of one queue, at least one.
        bytes_max: Limit of records and decompressed bodies; the first message may exceed it.

    Raises:
        MissingPackage: A compressed body needs the extra `compression`.
    """
    if isinstance(messages, MessageRows):
        return _columns_of_rows(messages, bytes_max)
    records = [each.record for each in messages]
    sizes = np.fromiter(map(len, records), dtype=np.int32, count=len(records))
    found = valid_records(b"".join(records), sizes)
    return columns_of_records(
        found,
        messages[0].queue.broker_name,
        bytes_max=bytes_max,
        topics=[each.topic for each in messages],
        reconsume_times=[each.reconsume_times for each in messages],
    )


def _columns_of_rows(messages: MessageRows, bytes_max: int) -> "pa.RecordBatch":
    batches: list[pa.RecordBatch] = []
    for piece in messages.pieces:
        batch = columns_of_records(piece, messages.queue.broker_name, bytes_max=bytes_max)
        if batches and batch.nbytes > bytes_max:
            break
        batches.append(batch)
        bytes_max -= batch.nbytes
        if batch.num_rows < len(piece.rows):
            break
    return join_batches(batches)
