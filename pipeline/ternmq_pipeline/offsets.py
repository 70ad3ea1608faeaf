"""Offsets of many queues, and their JSON in checkpoints and options. Pure.

`{"v":1,"t":{"TopicA":{"broker-a:0":123}}}` holds the offset of each queue's next message. `v` is
the version of the format. Code that writes a later version must still read version 1.
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
"""Offset in an option that stands for the oldest message of the queue."""

LATEST: Final = -1
"""Offset in an option that stands for the end of the queue."""

OFFSET_MAX: Final = (1 << 63) - 1
QUEUE_ID_MAX: Final = 0xFFFF

Offsets: TypeAlias = Mapping[MessageQueue, QueueOffset]
"""Offset of the next message of each queue."""


class OffsetRange(NamedTuple):
    """Range of offsets of one queue: `begin` inclusive, `end` exclusive."""

    queue: MessageQueue
    begin: QueueOffset
    end: QueueOffset
    created_log_offset: int | None = None
    """Creation of the topic, as in `ClusterSnapshot.created`; None = unknown."""

    @property
    def messages(self) -> int:
        """Number of offsets in the range."""
        return self.end - self.begin

    def __str__(self) -> str:
        return f"{self.queue} [{self.begin}, {self.end})"


def offsets_to_json(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """Return offsets as the JSON object that Spark stores. Its keys are sorted."""
    topics: dict[str, dict[str, int]] = {}
    for queue in sorted(offsets):
        topics.setdefault(queue.topic, {})[f"{queue.broker_name}:{queue.queue_id}"] = offsets[queue]
    sorted_topics = {topic: dict(sorted(queues.items())) for topic, queues in topics.items()}
    return {"t": sorted_topics, "v": VERSION}


def offsets_text(offsets: Mapping[MessageQueue, int]) -> str:
    """Return offsets as one line of JSON. Equal offsets give equal texts."""
    return json.dumps(offsets_to_json(offsets), sort_keys=True, separators=(",", ":"))


def offsets_from_json(value: object) -> dict[MessageQueue, QueueOffset]:
    """Return the offsets that a checkpoint holds.

    Args:
        value: Result of `offsets_to_json` or `offsets_text`. The keys `from`, `parked` and
            `stores` of a checkpoint are ignored.

    Raises:
        UsageError: `value` has another form: another source or a newer version wrote it.
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
    """Return the number of each queue in an option's JSON: an offset or a time.

    Args:
        text: `{"TopicA":{"broker-a:0":1}}`, with or without the version.
        option: Name of the option, for errors.
        minimum: Smallest number allowed.

    Raises:
        ConfigError: The JSON has another form, an illegal queue or an illegal number.
    """
    return _numbers(read_object(text, option=option), option=option, minimum=minimum)


def queue_from_text(topic: str, text: str) -> MessageQueue:
    """Return the queue of `topic` that `text` names as `BROKER:QUEUE`.

    Raises:
        UsageError: `text` has another form.
    """
    broker_name, colon, digits = text.rpartition(":")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= len(str(QUEUE_ID_MAX))
    if not colon or not is_number or str(int(digits)) != digits or int(digits) > QUEUE_ID_MAX:
        raise UsageError(f"{shown(text)!r} names no queue: it must be such as 'broker-a:0'")
    return MessageQueue(check_topic(topic), check_broker_name(broker_name), int(digits))


def _numbers(found: Mapping[str, Any], *, option: str, minimum: int) -> dict[MessageQueue, int]:
    topics, others = _topics(found, option)
    for other in others:
        # Only the restart of a stream reads this key.
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
    """Return the entries of each topic in either form, and the offsets beside them."""
    version = found.get("v")
    if "v" not in found or isinstance(version, dict):
        return found, []
    if type(version) is not int or version != VERSION:
        rule = f"its version v must be {VERSION}: its writer is a newer version, or not TernMQ"
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
