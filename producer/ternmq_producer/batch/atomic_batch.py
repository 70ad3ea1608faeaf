"""Atomic batches: messages of one topic and queue, stored together or not at all."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from ternmq_model.arguments import is_kind
from ternmq_model.errors import IllegalMessage
from ternmq_model.message import Message, SendResult, SendStatus
from ternmq_model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.record.format import ATOMIC_BATCH_BYTES_MAX, OVERHEAD_BYTES
from ternmq_producer.batch.pending_send import PendingSend, ResultSink

if TYPE_CHECKING:
    import asyncio


def check_messages(messages: Sequence[Message]) -> None:
    """Refuse what is no sequence of messages: whoever does not check types learns it here.

    Raises:
        IllegalMessage: It is something else.
    """
    if not is_kind(messages, Sequence) or is_kind(messages, str, bytes):
        raise IllegalMessage(f"{messages!r} is no list of messages")
    if not all(issubclass(kind, Message) for kind in {*map(type, messages)}):
        for message in messages:
            if not is_kind(message, Message):
                raise IllegalMessage(f"{message!r} is no message: write Message(topic, body)")


def check_batch(messages: Sequence[Message]) -> None:
    """Refuse messages that cannot be one batch. Each alone is checked elsewhere.

    Raises:
        IllegalMessage: There are none, or not all are of one topic that takes batches, or one is
            delayed, or they are too long together whatever is added to them.

    Source: RocketMQ `MessageBatch.generateFromList`.
    """
    if not messages:
        raise IllegalMessage("a batch has at least one message")
    topic = messages[0].topic
    if any(message.topic != topic for message in messages):
        raise IllegalMessage("a batch is for one topic")
    if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        raise IllegalMessage(f"a batch cannot go to {topic!r}")
    if any(
        message.delay_level or message.deliver_at_ms or message.deliver_after_ms
        for message in messages
    ):
        raise IllegalMessage("a delayed message cannot be in a batch")
    keys = {message.sharding_key for message in messages}
    if len(keys) > 1:
        raise IllegalMessage("a batch is for one queue: its messages have one sharding key or none")
    check_length(topic, sum(OVERHEAD_BYTES + len(topic) + len(one.body) for one in messages))


def check_length(topic: str, record_bytes: int) -> None:
    """Refuse a batch whose records are too long together.

    Raises:
        IllegalMessage: They are.
    """
    if record_bytes > ATOMIC_BATCH_BYTES_MAX:
        raise IllegalMessage(
            f"batch for {topic!r}: has {record_bytes} bytes in store format, "
            f"at most {ATOMIC_BATCH_BYTES_MAX} fit"
        )


class BatchSink:
    """Gives a batch's one answer to a future that waits for a result of each message."""

    __slots__ = ("_future",)

    def __init__(self, future: "asyncio.Future[list[SendResult]]") -> None:
        self._future = future

    def done(self) -> bool:
        """Tell whether nobody waits any more."""
        return self._future.done()

    def set_result(self, result: SendResult, /) -> None:
        """Not called: `set_results` is."""
        raise AssertionError("a batch has a result for each message")

    def set_results(self, results: list[SendResult], /) -> None:
        """Answer: stored."""
        self._future.set_result(results)

    def set_exception(self, error: BaseException, /) -> None:
        """Answer: not stored, or nobody knows."""
        self._future.set_exception(error)


class PendingBatch(PendingSend):
    """An atomic batch on its way: a pending send of many. Travels in a batch of its own."""

    __slots__ = ("bodies", "flags", "properties_of_each", "unique_keys")

    def __init__(
        self,
        sink: BatchSink,
        messages: Sequence[Message],
        topic: bytes,
        properties: list[bytes],
        queue: MessageQueue,
        is_ordered: bool,
        record_bytes: int,
        started_ms: int,
        deadline_ms: int,
    ) -> None:
        super().__init__(
            cast("ResultSink", sink),
            messages[0],
            topic,
            b"",
            queue,
            is_ordered,
            record_bytes,
            started_ms,
            deadline_ms,
        )
        self.bodies = [message.body for message in messages]
        self.flags = [message.flag for message in messages]
        self.properties_of_each = properties
        self.unique_keys: list[bytes] = []
        """Given when it first travels, and kept."""

    def __len__(self) -> int:
        return len(self.bodies)

    def answer(
        self,
        status: SendStatus,
        queue_offsets: Sequence[int],
        physical_offsets: Sequence[int],
        store_host: bytes,
    ) -> None:
        """Tell its sender where each message lies."""
        if self.sink.done():
            return
        sink: Any = self.sink
        sink.set_results(
            [
                SendResult(
                    status,
                    key.decode(),
                    self.queue,
                    QueueOffset(queue_offset),
                    PhysicalOffset(physical_offset),
                    store_host,
                )
                for key, queue_offset, physical_offset in zip(
                    self.unique_keys, queue_offsets, physical_offsets, strict=True
                )
            ]
        )
