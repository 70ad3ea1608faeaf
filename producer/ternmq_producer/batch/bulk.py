"""Many messages sent by one call: columns instead of objects, and one waiter for all answers."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from ternmq_model.errors import TernError
from ternmq_model.message import Message, SendManyFailed, SendResult, SendStatus
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_producer.batch.pending_send import PendingSend

if TYPE_CHECKING:
    import asyncio


class Bulk:
    """The answers to one `send_many`, in the order of its messages. Owned by the call.

    Args:
        count: How many messages there are.
        done: Set once each of them is answered.
    """

    def __init__(self, count: int, done: "asyncio.Future[None]") -> None:
        self._left = count
        self._done = done
        self._answered = bytearray(count)
        self.queue_offsets = np.full(count, -1, dtype=np.int64)
        self.physical_offsets = np.full(count, -1, dtype=np.int64)
        self.statuses = bytearray(count)
        self.unique_keys: list[bytes] = [b""] * count
        self.queues: list[MessageQueue | None] = [None] * count
        self.store_hosts: list[bytes] = [b""] * count
        self.errors: dict[int, TernError] = {}

    def __len__(self) -> int:
        return len(self.statuses)

    @property
    def left(self) -> int:
        """Number of messages without an answer yet."""
        return self._left

    def abandon(self) -> None:
        """Nobody waits any more."""
        self._left = 0

    @property
    def is_abandoned(self) -> bool:
        """Tell whether nobody waits for an answer: all are there, or the waiter left."""
        return self._left <= 0

    def is_answered(self, index: int) -> bool:
        """Tell whether message `index` has its answer."""
        return bool(self._answered[index]) or self._left <= 0

    def put_many(
        self,
        part: "BulkSlice",
        queue_offsets: NDArray[np.int64],
        physical_offsets: NDArray[np.int64],
        status: int,
        store_host: bytes,
    ) -> None:
        """Answer every message of `part`: stored."""
        positions = part.positions
        count = len(positions)
        if isinstance(positions, range) and positions.step == 1:
            place = slice(positions.start, positions.stop)
            self.queue_offsets[place] = queue_offsets
            self.physical_offsets[place] = physical_offsets
            self.statuses[place] = bytes((status,)) * count
            self._answered[place] = b"\x01" * count
            self.unique_keys[place] = part.unique_keys
            self.queues[place] = part.queues
            self.store_hosts[place] = [store_host] * count
        else:
            self.queue_offsets[positions] = queue_offsets
            self.physical_offsets[positions] = physical_offsets
            for index, key, queue in zip(positions, part.unique_keys, part.queues, strict=True):
                self.statuses[index] = status
                self._answered[index] = 1
                self.unique_keys[index] = key
                self.queues[index] = queue
                self.store_hosts[index] = store_host
        self._count_down(count)

    def put(self, index: int, answer: SendResult | BaseException) -> None:
        """Answer message `index`, unless it has been."""
        if self.is_answered(index):
            return
        self._answered[index] = 1
        if isinstance(answer, SendResult):
            self.statuses[index] = answer.status.value
            self.unique_keys[index] = answer.message_id.encode()
            self.queues[index] = answer.queue
            self.queue_offsets[index] = answer.queue_offset
            self.physical_offsets[index] = answer.physical_offset
            self.store_hosts[index] = answer.store_host
        else:
            assert isinstance(answer, TernError), "messages fail with our own errors"
            self.errors[index] = answer
        self._count_down(1)

    def results(self) -> "SendResults":
        """Return the answers.

        Raises:
            SendManyFailed: Some are errors.
        """
        results = SendResults(self)
        if self.errors:
            raise SendManyFailed(
                [self.errors.get(index) or results[index] for index in range(len(self))]
            )
        return results

    def _count_down(self, count: int) -> None:
        self._left -= count
        if not self._left and not self._done.done():
            self._done.set_result(None)


class SendResults(Sequence[SendResult]):
    """Results of many messages, in their order. Each is made when it is asked for."""

    __slots__ = ("_bulk",)

    def __init__(self, bulk: Bulk) -> None:
        self._bulk = bulk

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
        queue = bulk.queues[index]
        assert queue is not None, "results of failed messages are given by SendManyFailed"
        return SendResult(
            SendStatus(bulk.statuses[index]),
            bulk.unique_keys[index].decode(),
            queue,
            QueueOffset(int(bulk.queue_offsets[index])),
            PhysicalOffset(int(bulk.physical_offsets[index])),
            bulk.store_hosts[index],
        )

    def __repr__(self) -> str:
        counts = Counter(SendStatus(status).name for status in self._bulk.statuses)
        told = ", ".join(f"{name}: {count}" for name, count in counts.items())
        return f"SendResults({told or 'none'})"

    @property
    def queue_offsets(self) -> NDArray[np.int64]:
        """The queue offsets alone, without a result for each."""
        return self._bulk.queue_offsets

    @property
    def physical_offsets(self) -> NDArray[np.int64]:
        """The log offsets alone."""
        return self._bulk.physical_offsets

    @property
    def unique_keys(self) -> Sequence[bytes]:
        """The message ids alone, as they lie on disk."""
        return self._bulk.unique_keys

    @property
    def statuses(self) -> bytes:
        """The values of each one's `SendStatus`."""
        return bytes(self._bulk.statuses)

    @property
    def queues(self) -> Sequence[MessageQueue]:
        """The queues alone."""
        return [queue for queue in self._bulk.queues if queue is not None]


class BulkSlot:
    """One message's place in the answers: the sink of one that left the fast path."""

    __slots__ = ("_bulk", "_index")

    def __init__(self, bulk: Bulk, index: int) -> None:
        self._bulk = bulk
        self._index = index

    def done(self) -> bool:
        """Tell whether the message has its answer, or nobody waits for it."""
        return self._bulk.is_answered(self._index)

    def set_result(self, result: SendResult, /) -> None:
        """Answer: stored."""
        self._bulk.put(self._index, result)

    def set_exception(self, error: BaseException, /) -> None:
        """Answer: not stored, or nobody knows."""
        self._bulk.put(self._index, error)


class BulkSlice:
    """Some messages of one `send_many` that go to one broker: one topic, any queues, no order.

    All columns have one length. Owned by the link it waits at.
    """

    __slots__ = (
        "bodies",
        "bulk",
        "bytes_total",
        "deadline_ms",
        "flags",
        "is_over",
        "positions",
        "properties",
        "queue_ids",
        "queues",
        "record_bytes",
        "started_ms",
        "sys_flags",
        "topic",
        "unique_keys",
    )

    def __init__(
        self,
        bulk: Bulk,
        topic: bytes,
        positions: Sequence[int],
        bodies: list[bytes],
        properties: list[bytes],
        flags: list[int],
        queues: list[MessageQueue],
        record_bytes: list[int],
        started_ms: int,
        deadline_ms: int,
        sys_flags: list[int] | None = None,
    ) -> None:
        self.bulk = bulk
        self.topic = topic
        self.positions = positions
        self.bodies = bodies
        self.properties = properties
        self.flags = flags
        self.sys_flags = sys_flags
        """Compression bits; None = none is compressed."""

        self.queues = queues
        self.queue_ids = [queue.queue_id for queue in queues]
        self.record_bytes = record_bytes
        self.bytes_total = sum(record_bytes)
        self.started_ms = started_ms
        self.deadline_ms = deadline_ms
        self.unique_keys: list[bytes] = []
        """Given when it goes into a batch."""

        self.is_over = False
        """Its messages have their answers; a reply that still comes is too late."""

    def __len__(self) -> int:
        return len(self.bodies)

    def split(self, bytes_max: int) -> "tuple[BulkSlice, BulkSlice | None]":
        """Return what fits into `bytes_max`, at least one message, and the rest."""
        if self.bytes_total <= bytes_max:
            return self, None
        fitting = sum(1 for total in accumulate(self.record_bytes) if total <= bytes_max)
        count = max(1, fitting)
        if count == len(self):
            return self, None
        return self._part(slice(0, count)), self._part(slice(count, None))

    def to_pending(self) -> list[PendingSend]:
        """Return its messages one by one, in order, for the roads that are not fast."""
        pending: list[PendingSend] = []
        for index, position in enumerate(self.positions):
            one = PendingSend(
                BulkSlot(self.bulk, position),
                Message("", self.bodies[index], flag=self.flags[index]),
                self.topic,
                self.properties[index],
                self.queues[index],
                False,
                self.record_bytes[index],
                self.started_ms,
                self.deadline_ms,
            )
            if self.sys_flags is not None:
                one.sys_flag = self.sys_flags[index]
            if self.unique_keys:
                one.unique_key = self.unique_keys[index]
            pending.append(one)
        return pending

    def expire(self, make_error: Callable[[], TernError]) -> None:
        """Answer its messages with errors: their time is over."""
        self.is_over = True
        if not self.bulk.is_abandoned:
            for position in self.positions:
                self.bulk.put(position, make_error())

    def _part(self, part: slice) -> "BulkSlice":
        return BulkSlice(
            self.bulk,
            self.topic,
            self.positions[part],
            self.bodies[part],
            self.properties[part],
            self.flags[part],
            self.queues[part],
            self.record_bytes[part],
            self.started_ms,
            self.deadline_ms,
            None if self.sys_flags is None else self.sys_flags[part],
        )
