"""Which of a cluster's topics are read. Pure."""

from collections.abc import Iterable

from ternmq_model.names import (
    DEAD_LETTER_PREFIX,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    is_read_forbidden,
    is_system_topic,
)
from ternmq_pipeline.options.topics import SubscribePattern, TopicChoice


def chosen_topics(
    choice: TopicChoice, known: Iterable[str], *, include_system: bool = False
) -> list[str]:
    """Return those of the topics `known` that `choice` takes, sorted.

    A pattern takes topics that brokers made for themselves only when `include_system` says so, and
    never those of retries and dead letters: a pattern such as `.*` would read messages twice.
    """
    if not isinstance(choice, SubscribePattern):
        return sorted(set(known) & set(choice.topics))
    return sorted(
        topic
        for topic in set(known)
        if not topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        and not is_read_forbidden(topic)
        and (include_system or not _is_of_system(topic))
        and choice.matches(topic)
    )


def _is_of_system(topic: str) -> bool:
    return is_system_topic(topic) or topic.endswith(REPLY_SUFFIX)
