"""Atomic batches: messages of one topic and queue, stored together or not at all."""

from collections.abc import Sequence

from ternmq_model.arguments import is_kind
from ternmq_model.errors import IllegalMessage
from ternmq_model.message import Message
from ternmq_model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ternmq_model.record.format import ATOMIC_BATCH_BYTES_MAX, OVERHEAD_BYTES


def check_messages(messages: Sequence[Message]) -> None:
    """Refuse values that are no sequence of messages, for callers without a type checker.

    Raises:
        IllegalMessage: `messages` is no sequence, or has another value than messages.
    """
    if not is_kind(messages, Sequence) or is_kind(messages, str, bytes):
        raise IllegalMessage(f"{messages!r} is no list of messages")
    if not all(issubclass(kind, Message) for kind in {*map(type, messages)}):
        for message in messages:
            if not is_kind(message, Message):
                raise IllegalMessage(f"{message!r} is no message: write Message(topic, body)")


def check_batch(messages: Sequence[Message]) -> None:
    """Refuse messages that cannot be one batch.

    Raises:
        IllegalMessage: The sequence is empty, has several topics or sharding keys, a delayed
            message or a topic that allows no batches, or is too long.

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
    """Raise `IllegalMessage` for a batch whose records are too long together."""
    if record_bytes > ATOMIC_BATCH_BYTES_MAX:
        raise IllegalMessage(
            f"batch for {topic!r}: has {record_bytes} bytes in store format, "
            f"at most {ATOMIC_BATCH_BYTES_MAX} fit"
        )
