"""Topics that hold users' messages. Pure."""

from typing import Final

from ternmq_model.names import (
    DEAD_LETTER_PREFIX,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    is_system_topic,
)

_SYSTEM_PREFIX: Final = "rmq_sys_"
_LIGHT_PREFIX: Final = "%LMQ%"


def is_user_topic(topic: str) -> bool:
    """Return whether `topic` is read when none is named.

    Not what a broker keeps for itself, messages that wait for another attempt, dead letters and
    replies: all of these are read when they are named. Nor light queues, which never are.
    """
    return not (
        is_system_topic(topic)
        or topic.lower().startswith(_SYSTEM_PREFIX)
        or topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        or is_light(topic)
        or topic.endswith(REPLY_SUFFIX)
    )


def is_light(topic: str) -> bool:
    """Return whether `topic` is a light queue of RocketMQ, which points at records of others."""
    return topic.startswith(_LIGHT_PREFIX)
