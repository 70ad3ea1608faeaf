"""Topics or queues of a read, and the topics of a cluster that match. Pure."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from ternmq_model.errors import ConfigError, IllegalName, UsageError
from ternmq_model.names import (
    DEAD_LETTER_PREFIX,
    REPLY_SUFFIX,
    RETRY_PREFIX,
    check_topic,
    is_read_forbidden,
    is_system_topic,
)
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import queue_from_text, topics_of
from ternmq_pipeline.options.option_map import OptionMap
from ternmq_pipeline.strict_json import read_object, shown

PATTERN_CHARACTERS_MAX: Final = 1_000

TOPIC_OPTIONS: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Topics by name, with all their queues."""

    topics: tuple[str, ...]
    """Sorted, each once."""


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """Topics that match a regular expression with their full name."""

    pattern: str

    def matches(self, topic: str) -> bool:
        """Return whether the pattern matches the full name `topic`."""
        return re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class Assign:
    """Queues by name. Other queues of their topics are not read."""

    queues: tuple[MessageQueue, ...]
    """Sorted, each once."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics of the queues, sorted."""
        return tuple(topics_of(self.queues))


TopicChoice: TypeAlias = Subscribe | SubscribePattern | Assign


def topic_choice(
    option_map: OptionMap, *, needed: bool, include_system: bool
) -> TopicChoice | None:
    """Return the topics or queues to read; None = no option names any.

    Args:
        option_map: Options of the read.
        needed: True = an option must name a topic or queue.
        include_system: True = options may name system topics.

    Raises:
        UsageError: A needed option is missing, more than one is given, or one is malformed.
    """
    name = option_map.one_of(*TOPIC_OPTIONS, needed=needed)
    text = "" if name is None else option_map.text(name) or ""
    if name == "subscribe":
        return _subscribe(text, include_system)
    if name == "subscribePattern":
        return SubscribePattern(_checked_pattern(text))
    if name == "assign":
        return _assign(text, include_system)
    return None


def checked_topic(option: str, topic: str, *, include_system: bool) -> str:
    """Return `topic` if an option may name it.

    Raises:
        ConfigError: The name is illegal, or it is a system topic without `include_system`.
    """
    try:
        check_topic(topic)
    except IllegalName as error:
        rule = f"topic {shown(error.name)!r} {error.rule}"
        raise ConfigError(option, shown(topic), rule) from None
    if is_read_forbidden(topic):
        raise ConfigError(
            option, topic, "its messages are not committed yet: no reader may read them"
        )
    if is_system_topic(topic) and not include_system:
        rule = "is a topic of the brokers' own: includeSystemTopics=true allows it"
        raise ConfigError(option, topic, rule)
    return topic


def chosen_topics(
    choice: TopicChoice, known: Iterable[str], *, include_system: bool = False
) -> list[str]:
    """Return the topics among `known` that `choice` includes, sorted.

    A pattern includes system topics only with `include_system`, and never topics of retries and
    dead letters: a pattern such as `.*` would read messages twice.
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


def _subscribe(text: str, include_system: bool) -> Subscribe:
    topics = [topic.strip() for topic in text.split(",")]
    for topic in topics:
        checked_topic("subscribe", topic, include_system=include_system)
    return Subscribe(tuple(sorted(set(topics))))


def _checked_pattern(text: str) -> str:
    if len(text) > PATTERN_CHARACTERS_MAX:
        rule = f"is {len(text)} characters long, at most {PATTERN_CHARACTERS_MAX} are read"
        raise ConfigError("subscribePattern", shown(text), rule)
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        rule = f"is no regular expression: {error}"
        raise ConfigError("subscribePattern", shown(text), rule) from None
    return text


def _assign(text: str, include_system: bool) -> Assign:
    rule = 'must be such as {"TopicA":["broker-a:0","broker-a:1"]}'
    queues: list[MessageQueue] = []
    for topic, names in read_object(text, option="assign").items():
        checked_topic("assign", topic, include_system=include_system)
        if not isinstance(names, list) or not names:
            raise ConfigError("assign", shown(topic), rule)
        queues += _queues(topic, cast("list[object]", names), rule)
    if not queues:
        raise ConfigError("assign", shown(text), rule)
    if twice := [queue for queue, times in Counter(queues).items() if times > 1]:
        raise ConfigError("assign", shown(text), f"{min(twice)} is there twice")
    return Assign(tuple(sorted(queues)))


def _queues(topic: str, names: Iterable[object], rule: str) -> Iterable[MessageQueue]:
    for name in names:
        if not isinstance(name, str):
            raise ConfigError("assign", shown(str(name)), f"{topic}: {rule}")
        try:
            yield queue_from_text(topic, name)
        except UsageError as error:
            raise ConfigError("assign", shown(name), f"{topic}: {error}") from None
