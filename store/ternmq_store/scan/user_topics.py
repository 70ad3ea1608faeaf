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
    """Return whether a scan reads `topic` without naming it.

    Topics of the broker, of retries, dead letters and replies are read only by name, and light
    queues never.
    """
    return not (
        is_system_topic(topic)
        or topic.lower().startswith(_SYSTEM_PREFIX)
        or topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        or is_light(topic)
        or topic.endswith(REPLY_SUFFIX)
    )


def is_light(topic: str) -> bool:
    """Return whether `topic` is a light queue of RocketMQ, with records of other topics."""
    return topic.startswith(_LIGHT_PREFIX)
