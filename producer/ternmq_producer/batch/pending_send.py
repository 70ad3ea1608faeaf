"""Pending sends: messages on their way, one or many, and the sinks of their answers."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final, Protocol

from ternmq_model.message import SendResult
from ternmq_model.queue import MessageQueue
from ternmq_producer.batch.bulk import BulkSlot, BulkSlots

RECORD_EXTRA_BYTES: Final = 256
"""Most bytes of a record beside body, topic and the message's own properties, as far as known
before a broker tells what it adds: a header of 115, UNIQ_KEY of 66, the broker's properties."""


class ResultSink(Protocol):
    """Sink of an answer: a future, or a place in the results of many messages."""

    def done(self) -> bool:
        """Return whether nobody waits any more: answered, timed out, or cancelled."""
        ...

    def set_result(self, result: SendResult, /) -> None:
        """Answer: stored."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """Answer: not stored, or nobody knows."""
        ...


class PendingSend:
    """A message on its way to a broker. Owned by the link it waits at.

    A plain class with positional arguments: one is made for every single send.

    Attributes:
        sink: Sink of the answer.
        topic: Name of the topic, encoded.
        body: Compressed where `sys_flag` says so.
        properties: Encoded.
        queue: Destination.
        is_ordered: The caller or a key chose the queue: the message stays there, in order.
        record_bytes: Upper bound of the record's size; the buffer is charged so much.
        started_ms: Time of the send, monotonic: the one clock that is read for each message.
        deadline_ms: Time at which the send fails, monotonic.
        flag: The application's number.
        sys_flag: Compression bits.
        unique_key: Assigned with the first batch, and retained. Empty before.
        attempts: Number of batches that the message went into.
        maybe_stored: The message was written to a stream whose answer never came, or the answer
            left in doubt whether it is stored.
    """

    __slots__ = (
        "attempts",
        "body",
        "deadline_ms",
        "flag",
        "is_ordered",
        "maybe_stored",
        "properties",
        "queue",
        "record_bytes",
        "sink",
        "started_ms",
        "sys_flag",
        "topic",
        "unique_key",
    )

    def __init__(
        self,
        sink: ResultSink,
        topic: bytes,
        body: bytes,
        properties: bytes,
        queue: MessageQueue,
        is_ordered: bool,
        record_bytes: int,
        started_ms: int,
        deadline_ms: int,
        flag: int = 0,
        sys_flag: int = 0,
    ) -> None:
        self.sink = sink
        self.topic = topic
        self.body = body
        self.properties = properties
        self.queue = queue
        self.is_ordered = is_ordered
        self.record_bytes = record_bytes
        self.started_ms = started_ms
        self.deadline_ms = deadline_ms
        self.flag = flag
        self.sys_flag = sys_flag
        self.unique_key = b""
        self.attempts = 0
        self.maybe_stored = False

    def __len__(self) -> int:
        return 1


class PendingBatch:
    """Messages of one topic on their way to one broker, as columns. Owned by the link it waits at.

    Either a part of a `send_many`, in any queues and without an order, which may be split and is
    tried again message by message; or an atomic batch, in one queue, which stays together and
    travels alone.

    Attributes:
        sink: Sink of the answers.
        topic: Name of the topic, encoded.
        bodies: Compressed where `sys_flags` says so.
        properties: Encoded, of each message.
        flags: The application's number of each message.
        queues: Destination of each message.
        sizes: Upper bound of each record's size.
        started_ms: Time of the send, monotonic.
        deadline_ms: Time at which the send fails, monotonic.
        sys_flags: Compression bits of each message. None = no body is compressed.
        is_atomic: The messages are stored together or not at all.
        is_ordered: The batch, which is atomic, stays in its queue, in order.
        record_bytes: Sum of `sizes`.
        queue_ids: Queue id of each message.
        unique_keys: Assigned with the first transport batch, and retained. Empty before.
        attempts: Number of transport batches that the messages went into.
        maybe_stored: See `PendingSend`.
    """

    __slots__ = (
        "attempts",
        "bodies",
        "deadline_ms",
        "flags",
        "is_atomic",
        "is_ordered",
        "maybe_stored",
        "properties",
        "queue_ids",
        "queues",
        "record_bytes",
        "sink",
        "sizes",
        "started_ms",
        "sys_flags",
        "topic",
        "unique_keys",
    )

    def __init__(
        self,
        sink: BulkSlots,
        topic: bytes,
        bodies: list[bytes],
        properties: list[bytes],
        flags: list[int],
        queues: list[MessageQueue],
        sizes: list[int],
        started_ms: int,
        deadline_ms: int,
        *,
        sys_flags: list[int] | None = None,
        is_atomic: bool = False,
        is_ordered: bool = False,
    ) -> None:
        self.sink = sink
        self.topic = topic
        self.bodies = bodies
        self.properties = properties
        self.flags = flags
        self.queues = queues
        self.sizes = sizes
        self.started_ms = started_ms
        self.deadline_ms = deadline_ms
        self.sys_flags = sys_flags
        self.is_atomic = is_atomic
        self.is_ordered = is_ordered
        self.record_bytes = sum(sizes)
        self.queue_ids = [queue.queue_id for queue in queues]
        self.unique_keys: list[bytes] = []
        self.attempts = 0
        self.maybe_stored = False

    def __len__(self) -> int:
        return len(self.bodies)

    @property
    def queue(self) -> MessageQueue:
        """Queue of the first message, and of all messages of an atomic batch."""
        return self.queues[0]

    @queue.setter
    def queue(self, queue: MessageQueue) -> None:
        """Send every message to `queue`."""
        self.queues = [queue] * len(self)
        self.queue_ids = [queue.queue_id] * len(self)

    def split(self, bytes_max: int) -> "tuple[PendingBatch, PendingBatch | None]":
        """Return the messages that fit into `bytes_max`, at least one, and the rest."""
        if self.record_bytes <= bytes_max:
            return self, None
        fitting = sum(1 for total in accumulate(self.sizes) if total <= bytes_max)
        count = max(1, fitting)
        if count == len(self):
            return self, None
        return self.rows(range(count)), self.rows(range(count, len(self)))

    def rows(self, indices: Sequence[int]) -> "PendingBatch":
        """Return a batch of some messages, in the order of `indices`."""

        def pick(column: Sequence[Any]) -> Any:
            if isinstance(indices, range):
                return column[indices.start : indices.stop]
            return [column[index] for index in indices]

        return PendingBatch(
            BulkSlots(self.sink.bulk, pick(self.sink.positions)),
            self.topic,
            pick(self.bodies),
            pick(self.properties),
            pick(self.flags),
            pick(self.queues),
            pick(self.sizes),
            self.started_ms,
            self.deadline_ms,
            sys_flags=None if self.sys_flags is None else pick(self.sys_flags),
        )

    def singles(self) -> list[PendingSend]:
        """Return the messages one by one, in order: those of a `send_many` are retried so."""
        singles: list[PendingSend] = []
        for index, position in enumerate(self.sink.positions):
            one = PendingSend(
                BulkSlot(self.sink.bulk, position),
                self.topic,
                self.bodies[index],
                self.properties[index],
                self.queues[index],
                False,
                self.sizes[index],
                self.started_ms,
                self.deadline_ms,
                self.flags[index],
                0 if self.sys_flags is None else self.sys_flags[index],
            )
            if self.unique_keys:
                one.unique_key = self.unique_keys[index]
            one.attempts = self.attempts
            singles.append(one)
        return singles


Pending = PendingSend | PendingBatch
"""Unit that waits for a batch and is answered, expires and is retried as one."""
