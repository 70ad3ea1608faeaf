"""Dead letters, and the messages that a redrive makes of them. Pure."""

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
"""Properties of the life that is over: brokers and clients set them anew. So are those that begin
with `TIMER_PREFIX`."""

ORIGIN_TOPICS: Final = (names.DLQ_ORIGIN_TOPIC, names.RETRY_TOPIC)
"""Properties that tell where a letter was sent to first; the first that is there counts."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message that its group gave up."""

    message: StoredMessage
    """The message, as it lies in the topic of dead letters."""

    is_handled: bool
    """It was redriven or dropped with those before it."""

    @property
    def group(self) -> str:
        """The group that gave it up."""
        return self.message.topic.removeprefix(DEAD_LETTER_PREFIX)

    @property
    def origin_topic(self) -> str:
        """Topic that it was sent to first; empty when nothing says it."""
        told = self.message.properties
        return next((told[name] for name in ORIGIN_TOPICS if told.get(name)), "")

    @property
    def origin_message_id(self) -> str:
        """Id of the message that it was."""
        told = self.message.properties
        return told.get(names.DLQ_ORIGIN_MESSAGE_ID) or self.message.message_id

    def is_any_of(self, message_ids: Collection[str]) -> bool:
        """Tell whether it goes by one of these ids: its own, or those of its first life."""
        message = self.message
        first = message.properties.get(names.ORIGIN_MESSAGE_ID, "")
        own = {self.origin_message_id, message.message_id, message.offset_message_id, first}
        return not own.isdisjoint(message_ids)


def redrive_key(letter: DeadLetter) -> str:
    """Return the unique key of the message made of a letter: the same one whenever it is made.

    It follows from the letter's place, so that what was sent before an interruption is found.
    """
    message = letter.message
    queue = message.queue
    place = (queue.topic, queue.broker_name, queue.queue_id, message.queue_offset)
    text = " ".join(map(str, (*place, message.stored_at_ms)))
    return hashlib.sha256(text.encode()).hexdigest()[:32].upper()


def target_topic(letter: DeadLetter, *, to_group: bool) -> str:
    """Return where a letter goes again: to everybody who reads its first topic, or its group alone.

    Raises:
        UsageError: It does not say where it came from.
    """
    if not letter.origin_topic:
        raise UsageError(f"dead letter {letter.message.message_id} does not say where it came from")
    return RETRY_PREFIX + letter.group if to_group else letter.origin_topic


def redrive_request(letter: DeadLetter, *, to_group: bool) -> messages.SendRequest:
    """Return what is sent: the message as it was, with no tries behind it.

    Args:
        letter: What it is made of.
        to_group: Send it to the group alone.

    Raises:
        UsageError: The letter does not say where it came from.
    """
    message = letter.message
    told = {
        name: value
        for name, value in message.properties.items()
        if name not in SPENT and not name.startswith(names.TIMER_PREFIX)
    }
    told[names.UNIQUE_KEY] = redrive_key(letter)
    if to_group:
        told[names.RETRY_TOPIC] = letter.origin_topic
        told[names.ORIGIN_MESSAGE_ID] = letter.origin_message_id
    return messages.SendRequest(
        topic=target_topic(letter, to_group=to_group),
        queue_id=-1,
        body=message.stored_body,
        properties=told,
        flag=message.flag,
        sys_flag=message.sys_flag & FLAG_COMPRESSION_MASK,
        born_at_ms=message.born_at_ms,
        auto_create=messages.AutoCreate(),
    )
