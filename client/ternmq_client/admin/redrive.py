"""Dead letters, and the messages that a redrive sends for them. Pure."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from ternmq_model import properties as names
from ternmq_model.errors import UsageError
from ternmq_model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from ternmq_model.record.format import FLAG_COMPRESSION_MASK
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import messages_pb2 as messages

_KEY_DIGITS: Final = 32
_BROKERS: Final = frozenset({names.REGION, names.TRACE_ON, names.CLUSTER, names.WAIT})
SPENT: Final = (
    names.BROKERS_OWN
    | _BROKERS
    | {
        names.UNIQUE_KEY,
        names.DELAY,
        names.RETRY_TOPIC,
        names.ORIGIN_MESSAGE_ID,
        names.DLQ_ORIGIN_TOPIC,
        names.DLQ_ORIGIN_MESSAGE_ID,
        names.RECONSUME_TIME,
        names.MAX_RECONSUME_TIMES,
        names.TRANSACTION_PREPARED,
    }
)
"""Properties that a redrive drops, because brokers and clients set them for the new message. Those
that begin with `TIMER_PREFIX` are dropped too."""

ORIGIN_TOPICS: Final = (names.DLQ_ORIGIN_TOPIC, names.RETRY_TOPIC)
"""Properties with the topic that a letter was sent to first, in the order of precedence."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message that its consumer group failed to consume."""

    message: StoredMessage
    """Message in the topic of dead letters."""

    is_handled: bool
    """True after the letter was redriven or dropped with those before it."""

    @property
    def group(self) -> str:
        """Name of the consumer group."""
        return self.message.topic.removeprefix(DEAD_LETTER_PREFIX)

    @property
    def origin_topic(self) -> str:
        """Topic that the message was sent to first; empty when no property has it."""
        properties = self.message.properties
        return next((properties[name] for name in ORIGIN_TOPICS if properties.get(name)), "")

    @property
    def origin_message_id(self) -> str:
        """Id of the message that became the dead letter."""
        origin = self.message.properties.get(names.DLQ_ORIGIN_MESSAGE_ID)
        return origin or self.message.message_id

    def is_any_of(self, message_ids: Collection[str]) -> bool:
        """Return whether `message_ids` has an id of the letter or of its original message."""
        message = self.message
        first = message.properties.get(names.ORIGIN_MESSAGE_ID, "")
        own = {self.origin_message_id, message.message_id, message.offset_message_id, first}
        return not own.isdisjoint(message_ids)


def redrive_key(letter: DeadLetter) -> str:
    """Return the unique key of a letter's new message, derived from the letter's queue offset.

    A repeated redrive gets the same key, so the message of an interrupted run is found by it.
    """
    message = letter.message
    queue = message.queue
    source = (queue.topic, queue.broker_name, queue.queue_id, message.queue_offset)
    text = " ".join(map(str, (*source, message.stored_at_ms)))
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS].upper()


def target_topic(letter: DeadLetter, *, to_group: bool) -> str:
    """Return the topic of a letter's new message: the original topic, or the group's retry topic.

    Raises:
        UsageError: The letter has no original topic.
    """
    if not letter.origin_topic:
        raise UsageError(f"dead letter {letter.message.message_id} has no original topic")
    return RETRY_PREFIX + letter.group if to_group else letter.origin_topic


def redrive_request(letter: DeadLetter, *, to_group: bool) -> messages.SendRequest:
    """Return the request that sends a letter's message again, with no tries counted.

    Args:
        letter: Dead letter to send.
        to_group: Send the message to the group alone.

    Raises:
        UsageError: The letter has no original topic.
    """
    message = letter.message
    properties = {
        name: value
        for name, value in message.properties.items()
        if name not in SPENT and not name.startswith(names.TIMER_PREFIX)
    }
    properties[names.UNIQUE_KEY] = redrive_key(letter)
    if to_group:
        properties[names.RETRY_TOPIC] = letter.origin_topic
        properties[names.ORIGIN_MESSAGE_ID] = letter.origin_message_id
    return messages.SendRequest(
        topic=target_topic(letter, to_group=to_group),
        queue_id=-1,
        body=message.stored_body,
        properties=properties,
        flag=message.flag,
        sys_flag=message.sys_flag & FLAG_COMPRESSION_MASK,
        born_at_ms=message.born_at_ms,
        auto_create=messages.AutoCreate(),
    )
