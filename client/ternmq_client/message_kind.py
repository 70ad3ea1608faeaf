"""Kinds of sent messages, as traces of all sorts name them. Pure."""

import enum

from ternmq_model.message import Message, SystemMessage
from ternmq_model.properties import TRANSACTION_PREPARED


class MessageKind(enum.IntEnum):
    """Kind of a sent message. RocketMQ's order.

    Attributes:
        NORMAL: Delivered at once.
        TRANSACTION_HALF: Half message of a transaction.
        TRANSACTION_COMMIT: End of a transaction.
        DELAY: Delayed message.
        ORDER: Message with a sharding key, or for a queue that its sender chose.
    """

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


def kind_of(message: Message) -> MessageKind:
    """Return the kind of a sent message."""
    if isinstance(message, SystemMessage) and TRANSACTION_PREPARED in message.system_properties:
        return MessageKind.TRANSACTION_HALF
    if message.delay_level or message.deliver_at_ms or message.deliver_after_ms:
        return MessageKind.DELAY
    return MessageKind.ORDER if message.sharding_key else MessageKind.NORMAL
