"""Pending sends: messages on their way, one or many, and the sinks of their answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, Protocol

from ternmq_model.errors import TernError
from ternmq_model.message import SendResult
from ternmq_model.queue import MessageQueue
from ternmq_model.unique_key_columns import NO_UNIQUE_KEYS, KeyColumn
from ternmq_producer.batch.bulk import BulkSlot, BulkSlots

RECORD_EXTRA_BYTES: Final = 256
"""Estimate of a record's bytes beside body, topic and the message's own properties, before a broker
returns its additions: a header of 115, UNIQ_KEY of 66, the broker's properties."""


class ResultSink(Protocol):
    """Sink of an answer: a future, or a slot in the results of many messages."""

    def done(self) -> bool:
        """Return whether no caller waits any more: answered, timed out, or cancelled."""
        ...

    def set_result(self, result: SendResult, /) -> None:
        """Answer: stored."""
        ...

    def set_exception(self, error: TernError, /) -> None:
        """Answer: not stored, or not known to be."""
        ...


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

    Either a part of a `send_many`, in any queues and without an order, which may be split and is
    tried again message by message; or an atomic batch, in one queue, which stays together and
    travels alone.
    """

    sink: BulkSlots
    """Sink of the answers."""

    topic: bytes
    """Name of the topic, encoded."""

    bodies: list[bytes]
    """Bodies, compressed where `sys_flags` has the bits."""

    properties: list[bytes]
    """Properties of each message, encoded."""

    flags: list[int]
    """Number of the application of each message."""

    queues: list[MessageQueue]
    """Destination of each message."""

    sizes: list[int]
    """Upper bound of each record's size."""

    started_ms: int
    """Time of the send, monotonic."""

    deadline_ms: int
    """Time at which the send fails, monotonic."""

    sys_flags: list[int] | None = None
    """Compression bits of each message. None = no body is compressed."""

    is_atomic: bool = False
    """True for messages that are stored together or not at all."""

    is_ordered: bool = False
    """True for an atomic batch that stays in its queue, in order."""

    unique_keys: KeyColumn = field(default_factory=lambda: NO_UNIQUE_KEYS)
    """Unique keys, assigned with the first transport batch and retained."""

    attempts: int = 0
    """Number of transport batches that the messages went into."""

    maybe_stored: bool = False
    """See `PendingSend`."""

    record_bytes: int = field(init=False)
    """Sum of `sizes`."""

    queue_ids: list[int] = field(init=False)
    """Queue id of each message."""

    def __post_init__(self) -> None:
        self.record_bytes = sum(self.sizes)
        self.queue_ids = [queue.queue_id for queue in self.queues]

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

    def by_broker(self, turns: Sequence[MessageQueue]) -> "list[tuple[str, PendingBatch]]":
        """Return the names of the brokers of `turns`, each with a batch of that broker's messages.

        Args:
            turns: Queues that occur in `queues`.
        """
        names = dict.fromkeys(queue.broker_name for queue in turns)
        if len(names) == 1:
            return [(self.queue.broker_name, self)]
        return [
            (name, self.rows([i for i, each in enumerate(self.queues) if each.broker_name == name]))
            for name in names
        ]

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
        """Return the messages one by one, in order, as a `send_many` retries them."""
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
            if self.unique_keys is not NO_UNIQUE_KEYS:
                one.unique_key = bytes(self.unique_keys[index])
            one.attempts = self.attempts
            singles.append(one)
        return singles


Pending = PendingSend | PendingBatch
"""Unit that waits for a batch and is answered, expires and is retried as one."""
