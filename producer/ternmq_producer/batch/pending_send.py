"""Pending sends: messages on their way, one or many, and the sinks of their answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.byte_column import ByteColumn
from ternmq_model.queue import MessageQueue
from ternmq_model.unique_key_columns import NO_UNIQUE_KEYS, KeyColumn
from ternmq_producer.batch.bulk import BulkSlots
from ternmq_producer.batch.result_sinks import ResultSink, SinkList

RECORD_EXTRA_BYTES: Final = 256
"""Estimate of a record's bytes beside body, topic and the message's own properties, before a broker
returns its additions: a header of 115, UNIQ_KEY of 66, the broker's properties."""


SendRow = tuple[
    ResultSink, bytes, bytes, bytes, MessageQueue, bool, int, int, int, int, int
]  # fmt: skip
"""Positional arguments of the `PendingSend` of a new message, up to `sys_flag`. Many messages
without an order become a `PendingBatch`, with no object for each that the garbage collector would
visit until the answer."""

ROW_SINK: Final = 0
ROW_TOPIC: Final = 1
ROW_IS_ORDERED: Final = 5
ROW_BYTES: Final = 6
ROW_DEADLINE: Final = 8
"""Places of the sink, the topic, `is_ordered`, `record_bytes` and `deadline_ms` in a `SendRow`."""


@dataclass(slots=True, eq=False)
class PendingSend:
    """Message on its way to a broker. Owned by the link at which it waits.

    Made with positional arguments: keywords would cost a fifth more for every single send.
    """

    sink: ResultSink
    """Sink of the answer."""

    topic: bytes
    """Name of the topic, encoded."""

    body: bytes
    """Body, compressed where `sys_flag` has the bits."""

    properties: bytes
    """Properties, encoded."""

    queue: MessageQueue
    """Destination."""

    is_ordered: bool
    """True when the caller or a key chose the queue: the message stays there, in order."""

    record_bytes: int
    """Upper bound of the record's size, which the buffer is charged with."""

    started_ms: int
    """Time of the send, monotonic: the one clock that is read for each message."""

    deadline_ms: int
    """Time at which the send fails, monotonic."""

    flag: int = 0
    """Number of the application."""

    sys_flag: int = 0
    """Compression bits."""

    unique_key: bytes = b""
    """Unique key, assigned with the first batch and retained. Empty before."""

    attempts: int = 0
    """Number of batches that the message went into."""

    maybe_stored: bool = False
    """True after the message was written to a stream without an answer, or after an answer that
    left in doubt whether the message is stored."""

    def __len__(self) -> int:
        return 1


@dataclass(slots=True, eq=False)
class PendingBatch:
    """Messages of one topic on their way to brokers, as columns.

    `by_broker` divides a batch for several brokers. A batch for one broker is owned by the link at
    which it waits.

    Either a part of a `send_many` or `send_columns`, which may be split and is tried again message
    by message: in any queues and without an order, or in one queue and in order. Or messages that
    were sent one by one, of one transport batch. Or an atomic batch, in one queue, which stays
    together and travels alone.
    """

    sink: BulkSlots | SinkList
    """Sink of the answers."""

    topic: bytes
    """Name of the topic, encoded."""

    bodies: ByteColumn
    """Bodies, compressed where `sys_flags` has the bits."""

    properties: ByteColumn
    """Properties of each message, encoded."""

    flags: Ints | int
    """Number of the application of all messages, or of each one."""

    queues: Sequence[MessageQueue]
    """Destinations."""

    queue_indices: Ints
    """Index in `queues` of each message's destination."""

    sizes: Ints
    """Upper bound of each record's size."""

    started_ms: Ints | int
    """Time of the send of all messages, or of each one, monotonic."""

    deadline_ms: int
    """Time at which the first message fails, monotonic."""

    sys_flags: Ints | int = 0
    """Compression bits of all messages, or of each one."""

    is_atomic: bool = False
    """True for messages that are stored together or not at all."""

    is_ordered: bool = False
    """True for messages that stay in their queue, in order."""

    unique_keys: KeyColumn = field(default_factory=lambda: NO_UNIQUE_KEYS)
    """Unique keys, assigned with the first transport batch and retained."""

    deadlines_ms: Sequence[int] | None = None
    """Time at which each message fails, monotonic. None = all fail at `deadline_ms`."""

    attempts: int = 0
    """Number of transport batches that the messages went into."""

    maybe_stored: bool = False
    """See `PendingSend`."""

    record_bytes: int = field(init=False)
    """Sum of `sizes`."""

    def __post_init__(self) -> None:
        self.record_bytes = int(self.sizes.sum())

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def queue(self) -> MessageQueue:
        """Queue of the first message, and of all messages of an ordered or atomic batch."""
        return self.queues[int(self.queue_indices[0])]

    @queue.setter
    def queue(self, queue: MessageQueue) -> None:
        """Send every message to `queue`."""
        self.queues = (queue,)
        self.queue_indices = np.zeros(len(self), dtype=np.int64)

    @property
    def queue_ids(self) -> Ints:
        """Queue id of each message."""
        return np.array([queue.queue_id for queue in self.queues])[self.queue_indices]

    def split(self, bytes_max: int) -> "tuple[PendingBatch, PendingBatch | None]":
        """Return the messages that fit into `bytes_max`, at least one, and the rest."""
        if self.record_bytes <= bytes_max:
            return self, None
        count = max(1, int(np.searchsorted(np.cumsum(self.sizes), bytes_max, side="right")))
        if count == len(self):
            return self, None
        return self.rows(slice(count)), self.rows(slice(count, len(self)))

    def by_broker(self) -> "list[tuple[str, PendingBatch]]":
        """Return the names of the queues' brokers, each with a batch of that broker's messages."""
        names = dict.fromkeys(queue.broker_name for queue in self.queues)
        if len(names) == 1:
            return [(self.queue.broker_name, self)]
        batches: list[tuple[str, PendingBatch]] = []
        for name in names:
            is_there = np.array([queue.broker_name == name for queue in self.queues])
            rows = np.flatnonzero(is_there[self.queue_indices])
            if len(rows):
                batches.append((name, self.rows(rows)))
        return batches

    def rows(self, rows: Ints | slice, *, is_ordered: bool = False) -> "PendingBatch":
        """Return a batch of some messages, in the order of `rows`."""

        def pick(column: Ints | int) -> Ints | int:
            return column if isinstance(column, int) else column[rows]

        return PendingBatch(
            self.sink.take(rows),
            self.topic,
            self.bodies.take(rows),
            self.properties.take(rows),
            pick(self.flags),
            self.queues,
            self.queue_indices[rows],
            self.sizes[rows],
            pick(self.started_ms),
            self.deadline_ms,
            pick(self.sys_flags),
            deadlines_ms=None
            if self.deadlines_ms is None
            else np.array(self.deadlines_ms)[rows].tolist(),
            is_ordered=is_ordered or self.is_ordered,
        )

    def singles(self) -> list[PendingSend]:
        """Return the messages one by one, in order, as they are retried."""

        def listed(column: Ints | int) -> list[int]:
            rows: list[int] = np.broadcast_to(column, len(self)).tolist()
            return rows

        has_keys = self.unique_keys is not NO_UNIQUE_KEYS
        return [
            PendingSend(*row)
            for row in zip(
                self.sink.slots(),
                repeat(self.topic),
                map(self.bodies.row, range(len(self))),
                map(self.properties.row, range(len(self))),
                [self.queues[index] for index in self.queue_indices.tolist()],
                repeat(self.is_ordered),
                self.sizes.tolist(),
                listed(self.started_ms),
                repeat(self.deadline_ms) if self.deadlines_ms is None else self.deadlines_ms,
                listed(self.flags),
                listed(self.sys_flags),
                self.unique_keys.tolist() if has_keys else repeat(b""),
                repeat(self.attempts),
                strict=False,
            )
        ]

    @classmethod
    def of_rows(cls, rows: Sequence[SendRow]) -> "PendingBatch":
        """Return the messages of `rows`, at least one, all of one topic."""
        (
            sinks,
            topics,
            bodies,
            properties,
            queues,
            _,
            sizes,
            started,
            deadlines,
            flags,
            sys_flags,
        ) = zip(*rows, strict=True)
        return cls(
            SinkList(sinks),
            topics[0],
            ByteColumn.listed(list(bodies)),
            ByteColumn.listed(list(properties)),
            np.array(flags) if any(flags) else 0,
            queues,
            np.arange(len(rows)),
            np.array(sizes),
            np.array(started),
            min(deadlines),
            np.array(sys_flags) if any(sys_flags) else 0,
            deadlines_ms=deadlines,
        )


Pending = PendingSend | PendingBatch
"""Unit that waits for a batch and is answered, expires and is retried as one."""
