"""Answers to many messages of one call, in columns, with one waiter."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from ternmq_model.arrays import Ints
from ternmq_model.errors import TernError
from ternmq_model.message import SendManyFailed, SendResult, SendStatus
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.unique_key_columns import KeyColumn
from ternmq_producer.batch.send_errors import renewed

if TYPE_CHECKING:
    import asyncio


class Bulk:
    """Answers to one call with many messages, in their order. Owned by the call.

    Args:
        count: Number of messages.
        done: Future that is set once each message has its answer.
    """

    def __init__(self, count: int, done: "asyncio.Future[None]") -> None:
        self._unanswered = count
        self._done = done
        self._answered = np.zeros(count, dtype=np.bool_)
        self.queue_offsets = np.full(count, -1, dtype=np.int64)
        self.physical_offsets = np.full(count, -1, dtype=np.int64)
        self.statuses = np.zeros(count, dtype=np.uint8)
        self.unique_keys: KeyColumn = np.zeros(count, dtype="S1")
        self._index_by_place: dict[tuple[MessageQueue, bytes], int] = {}
        self.place_indices = np.full(count, -1, dtype=np.int64)
        """Index in `places` of each message's queue; -1 = not stored."""
        self.errors: dict[int, TernError] = {}

    def __len__(self) -> int:
        return len(self.statuses)

    @property
    def places(self) -> Sequence[tuple[MessageQueue, bytes]]:
        """Queues of messages, each with the address of its broker."""
        return list(self._index_by_place)

    @property
    def unanswered(self) -> int:
        """Number of messages without an answer yet."""
        return self._unanswered

    def abandon(self) -> None:
        """Record that the caller no longer waits."""
        self._unanswered = 0

    @property
    def is_abandoned(self) -> bool:
        """True after the last answer, and after `abandon`."""
        return self._unanswered <= 0

    def is_answered(self, index: int) -> bool:
        """Return whether message `index` has its answer, or the caller waits no more."""
        return bool(self._answered[index]) or self._unanswered <= 0

    def put_many(
        self,
        positions: Ints,
        status: int,
        unique_keys: KeyColumn,
        queues: Sequence[MessageQueue],
        queue_indices: Ints,
        queue_offsets: Ints,
        physical_offsets: Ints,
        store_host: bytes,
    ) -> None:
        """Answer the messages at `positions` as stored."""
        places = np.array([self._place_of(queue, store_host) for queue in queues])
        self._widen(unique_keys.dtype.itemsize)
        self.queue_offsets[positions] = queue_offsets
        self.physical_offsets[positions] = physical_offsets
        self.statuses[positions] = status
        self.unique_keys[positions] = unique_keys
        self.place_indices[positions] = places[queue_indices]
        self._answered[positions] = True
        self._count_down(len(positions))

    def put(self, index: int, answer: SendResult | TernError) -> None:
        """Answer message `index`, unless it has an answer."""
        if self.is_answered(index):
            return
        self._answered[index] = True
        if isinstance(answer, SendResult):
            unique_key = answer.message_id.encode()
            self._widen(len(unique_key))
            self.statuses[index] = answer.status.value
            self.unique_keys[index] = unique_key
            self.place_indices[index] = self._place_of(answer.queue, answer.store_host)
            self.queue_offsets[index] = answer.queue_offset
            self.physical_offsets[index] = answer.physical_offset
        else:
            self.errors[index] = answer
        self._count_down(1)

    def _place_of(self, queue: MessageQueue, store_host: bytes) -> int:
        """Return the index in `places` of a queue."""
        return self._index_by_place.setdefault((queue, store_host), len(self._index_by_place))

    def _widen(self, key_bytes: int) -> None:
        """Make room for unique keys of this length, which the first answer shows."""
        if key_bytes > self.unique_keys.dtype.itemsize:
            self.unique_keys = self.unique_keys.astype(f"S{key_bytes}")

    def results(self) -> "SendResults":
        """Return the answers.

        Raises:
            SendManyFailed: Some answers are errors.
        """
        results = SendResults(self)
        if self.errors:
            raise SendManyFailed(
                [self.errors.get(index) or results[index] for index in range(len(self))]
            )
        return results

    def _count_down(self, count: int) -> None:
        self._unanswered -= count
        if not self._unanswered and not self._done.done():
            self._done.set_result(None)


class SendResults(Sequence[SendResult]):
    """Results of many messages, in order. Each is created on access."""

    __slots__ = ("_bulk", "_places")

    def __init__(self, bulk: Bulk) -> None:
        self._bulk = bulk
        self._places = bulk.places

    def __len__(self) -> int:
        return len(self._bulk)

    @overload
    def __getitem__(self, index: int) -> SendResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[SendResult]: ...
    def __getitem__(self, index: int | slice) -> SendResult | list[SendResult]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        bulk = self._bulk
        place = int(bulk.place_indices[index])
        assert place >= 0, "SendManyFailed has the results beside errors"
        queue, store_host = self._places[place]
        return SendResult(
            SendStatus(int(bulk.statuses[index])),
            bulk.unique_keys[index].decode(),
            queue,
            QueueOffset(int(bulk.queue_offsets[index])),
            PhysicalOffset(int(bulk.physical_offsets[index])),
            store_host,
        )

    def __repr__(self) -> str:
        counts = Counter(SendStatus(status).name for status in self.statuses)
        text = ", ".join(f"{name}: {count}" for name, count in counts.items())
        return f"SendResults({text or 'none'})"

    @property
    def queue_offsets(self) -> NDArray[np.int64]:
        """Queue offset of each message, as an array."""
        return self._bulk.queue_offsets

    @property
    def physical_offsets(self) -> NDArray[np.int64]:
        """Offset in the broker's log of each message, as an array."""
        return self._bulk.physical_offsets

    @property
    def unique_keys(self) -> KeyColumn:
        """Unique key of each message, in the form on disk, as an array."""
        return self._bulk.unique_keys

    @property
    def statuses(self) -> bytes:
        """Value of the `SendStatus` of each message, one byte each."""
        return self._bulk.statuses.tobytes()

    @property
    def queues(self) -> Sequence[MessageQueue]:
        """Queue of each message."""
        return [self._places[place][0] for place in self._bulk.place_indices.tolist()]


class BulkSlot:
    """Slot of one message in the answers: the sink of a message that is sent by itself."""

    __slots__ = ("_bulk", "_index")

    def __init__(self, bulk: Bulk, index: int) -> None:
        self._bulk = bulk
        self._index = index

    def done(self) -> bool:
        """Return whether the message has its answer, or the caller waits no more."""
        return self._bulk.is_answered(self._index)

    def set_result(self, result: SendResult, /) -> None:
        """Answer: stored."""
        self._bulk.put(self._index, result)

    def set_exception(self, error: TernError, /) -> None:
        """Answer: not stored, or not known to be."""
        self._bulk.put(self._index, error)


class BulkSlots:
    """Slots of several messages in the answers: the sink of a `PendingBatch`."""

    __slots__ = ("_is_failed", "bulk", "positions")

    def __init__(self, bulk: Bulk, positions: Ints) -> None:
        self.bulk = bulk
        self.positions = positions
        self._is_failed = False

    def done(self) -> bool:
        """Return whether the messages have their answers, or the caller waits no more."""
        return self._is_failed or self.bulk.is_abandoned

    def slots(self) -> list[BulkSlot]:
        """Return the slot of each message."""
        return [BulkSlot(self.bulk, position) for position in self.positions.tolist()]

    def take(self, rows: Ints | slice) -> "BulkSlots":
        """Return the slots of some messages, in the order of `rows`."""
        return BulkSlots(self.bulk, self.positions[rows])

    def set_exception(self, error: TernError, /) -> None:
        """Answer every message with a copy of `error`: not stored, or not known to be."""
        self._is_failed = True
        for position in self.positions.tolist():
            self.bulk.put(position, renewed(error, may_have_happened=False))
