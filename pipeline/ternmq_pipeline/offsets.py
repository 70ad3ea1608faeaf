"""Offsets of many queues, and the JSON in which checkpoints and options tell them. Pure.

`{"v":1,"t":{"TopicA":{"broker-a:0":123}}}`: the next message of each queue. The version is 1; what
writes another one must be able to read this one.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

from ternmq_model.errors import ConfigError, IllegalName, UsageError
from ternmq_model.names import check_topic
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.route import check_broker_name
from ternmq_pipeline.strict_json import read_object, shown

VERSION: Final = 1

EARLIEST: Final = -2
"""In an option: the oldest message that the queue has."""

LATEST: Final = -1
"""In an option: behind the newest message that the queue has."""

OFFSET_MAX: Final = (1 << 63) - 1
QUEUE_ID_MAX: Final = 0xFFFF

Offsets: TypeAlias = Mapping[MessageQueue, QueueOffset]
"""The next message of each queue."""


class OffsetRange(NamedTuple):
    """Messages of one queue from `begin` up to, without, `end`."""

    queue: MessageQueue
    begin: QueueOffset
    end: QueueOffset
    created_log_offset: int | None = None
    """Creation of its topic, as `ClusterSnapshot.created`; None when nobody tells."""

    @property
    def messages(self) -> int:
        """Number of offsets in the range."""
        return self.end - self.begin

    def __str__(self) -> str:
        return f"{self.queue} [{self.begin}, {self.end})"


def offsets_to_json(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """Return offsets as the JSON object that Spark keeps, its keys sorted."""
    topics: dict[str, dict[str, int]] = {}
    for queue in sorted(offsets):
        topics.setdefault(queue.topic, {})[f"{queue.broker_name}:{queue.queue_id}"] = offsets[queue]
    sorted_topics = {topic: dict(sorted(queues.items())) for topic, queues in topics.items()}
    return {"t": sorted_topics, "v": VERSION}


def offsets_text(offsets: Mapping[MessageQueue, int]) -> str:
    """Return offsets as one line of JSON: equal offsets are equal texts."""
    return json.dumps(offsets_to_json(offsets), sort_keys=True, separators=(",", ":"))


def offsets_from_json(value: object) -> dict[MessageQueue, QueueOffset]:
    """Return the offsets that a checkpoint holds.

    Args:
        value: What `offsets_to_json` or `offsets_text` made. `from`, where a batch began,
            `parked`, queues that may return, and `stores`, whose offsets they are, may stand
            beside it and are passed over.

    Raises:
        UsageError: It is something else, such as the offsets of another source or of a newer
            version.
    """
    option = "the checkpoint's offsets"
    found = read_object(value, option=option) if isinstance(value, str) else value
    if not isinstance(found, dict):
        raise ConfigError(option, shown(value), "must be a JSON object")
    if "v" not in found:
        raise UsageError(f"{option} have no version: they are not of this source")
    numbers = _numbers(cast("dict[str, Any]", found), option=option, minimum=0)
    return {queue: QueueOffset(number) for queue, number in numbers.items()}


def read_numbers(text: str, *, option: str, minimum: int) -> dict[MessageQueue, int]:
    """Return the number of each queue that an option's JSON tells: an offset, or a time.

    Args:
        text: `{"TopicA":{"broker-a:0":1}}`, or the same with its version.
        option: Its name, for errors.
        minimum: The smallest number that is allowed.

    Raises:
        ConfigError: It has another form, or holds what is no queue or no such number.
    """
    return _numbers(read_object(text, option=option), option=option, minimum=minimum)


def queue_from_text(topic: str, text: str) -> MessageQueue:
    """Return the queue of `topic` that `text` names as `BROKER:QUEUE`.

    Raises:
        UsageError: It does not.
    """
    broker_name, colon, digits = text.rpartition(":")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= len(str(QUEUE_ID_MAX))
    if not colon or not is_number or str(int(digits)) != digits or int(digits) > QUEUE_ID_MAX:
        raise UsageError(f"{shown(text)!r} names no queue: it must be such as 'broker-a:0'")
    return MessageQueue(check_topic(topic), check_broker_name(broker_name), int(digits))


def _numbers(found: Mapping[str, Any], *, option: str, minimum: int) -> dict[MessageQueue, int]:
    topics, others = _topics(found, option)
    for other in others:
        # Only what begins a stream again asks for it.
        _numbers_of_topics(other, option=option, minimum=minimum)
    return _numbers_of_topics(topics, option=option, minimum=minimum)


def _numbers_of_topics(
    topics: Mapping[str, Any], *, option: str, minimum: int
) -> dict[MessageQueue, int]:
    numbers: dict[MessageQueue, int] = {}
    for topic, queues in topics.items():
        if not isinstance(queues, dict):
            rule = 'must name its queues: {"broker-a:0":1}'
            raise ConfigError(option, shown(topic), rule)
        for text, number in cast("dict[str, Any]", queues).items():
            try:
                queue = queue_from_text(topic, text)
            except IllegalName as error:
                shown_name = f"{error.kind} {shown(error.name)!r}"
                raise ConfigError(option, shown(text), f"{shown_name} {error.rule}") from None
            except UsageError as error:
                raise ConfigError(option, shown(topic), str(error)) from None
            numbers[queue] = _number(number, queue, option=option, minimum=minimum)
    return numbers


def _topics(
    found: Mapping[str, Any], option: str
) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
    """Return what stands for each topic, of either form, and offsets that stand beside it."""
    version = found.get("v")
    if "v" not in found or isinstance(version, dict):
        return found, []
    if type(version) is not int or version != VERSION:
        rule = f"its version v must be {VERSION}: what wrote it is newer, or is no TernMQ"
        raise ConfigError(option, shown(str(version)), rule)
    maps = [found.get("t"), found.get("from", {}), found.get("parked", {})]
    is_form = set(found) <= {"v", "t", "from", "parked", "stores"}
    if (
        not is_form
        or not all(isinstance(each, dict) for each in maps)
        or not _are_names(found.get("stores", {}))
    ):
        raise ConfigError(option, shown(str(dict(found))), 'must be {"v":1,"t":{…}}')
    topics, *others = cast("list[dict[str, Any]]", maps)
    return topics, others


def _are_names(stores: object) -> bool:
    """Return whether `stores` maps names of brokers to names of stores."""
    if not isinstance(stores, dict):
        return False
    return all(isinstance(name, str) for name in cast("dict[str, Any]", stores).values())


def _number(number: object, queue: MessageQueue, *, option: str, minimum: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise ConfigError(option, shown(str(number)), f"{queue}: must be a whole number")
    if not minimum <= number <= OFFSET_MAX:
        rule = f"{queue}: must be a whole number from {minimum} to {OFFSET_MAX}"
        raise ConfigError(option, shown(str(number)), rule)
    return number


def topics_of(queues: Iterable[MessageQueue]) -> list[str]:
    """Return the topics that `queues` belong to, sorted."""
    return sorted({queue.topic for queue in queues})
