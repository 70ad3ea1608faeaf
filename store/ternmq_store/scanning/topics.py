"""Which topics hold users' messages. Pure."""

from typing import Final

from ternmq_model.names import (
    DEAD_LETTER_PREFIX,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    is_system_topic,
)

_SYSTEM_PREFIX: Final = "rmq_sys_"
_LIGHT_PREFIX: Final = "%LMQ%"
"""RocketMQ's light queues: their units point at the records of other queues."""


def is_user_topic(topic: str) -> bool:
    """Tell whether `topic` is read when none is named.

    Not what a broker keeps for itself, messages that wait for another attempt, dead letters,
    replies, and light queues: all of these are read when they are named.
    """
    return not (
        is_system_topic(topic)
        or topic.lower().startswith(_SYSTEM_PREFIX)
        or topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX, _LIGHT_PREFIX))
        or topic.endswith(REPLY_SUFFIX)
    )
