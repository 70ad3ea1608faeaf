"""Positions at which a read begins and ends, by its options. Pure.

The order of precedence is that of Spark's Kafka source: one time for all queues, times by queue,
offsets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from ternmq_model.errors import ConfigError
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import EARLIEST, read_numbers
from ternmq_pipeline.options.option_map import OptionMap
from ternmq_pipeline.strict_json import shown


class QueueEnd(Enum):
    """Begin or end of every queue."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtTime:
    """First message of each queue that was stored at a time or later."""

    at_ms: int
    """Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class AtTimes:
    """First message of each queue that was stored at the queue's own time or later."""

    times_ms: Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Offset of each queue; `EARLIEST` and `LATEST` stand for its begin and its end."""

    offsets: Mapping[MessageQueue, int]


Position: TypeAlias = QueueEnd | AtTime | AtTimes | AtOffsets


class TimeStrategy(Enum):
    """Begin of a queue without a message as late as the starting time."""

    ERROR = "error"
    LATEST = "latest"


STARTING: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""Options of a position, in descending order of precedence."""


def starting_position(option_map: OptionMap, *, streaming: bool | None) -> Position:
    """Return the begin of a read. A batch begins with the earliest, a stream at the latest message.

    Raises:
        ConfigError: An option is malformed, or is `latest` for a batch.
    """
    position = _position(option_map, STARTING)
    if position is None:
        return QueueEnd.LATEST if streaming else QueueEnd.EARLIEST
    if streaming is False and position is QueueEnd.LATEST:
        rule = "a batch that begins at the latest message is empty: it is for streams"
        raise ConfigError("startingOffsets", "latest", rule)
    return position


def ending_position(option_map: OptionMap, *, streaming: bool | None) -> Position:
    """Return the end of a batch: by default the end of each queue.

    Raises:
        ConfigError: An option is malformed, is `earliest`, or belongs to a stream.
    """
    if streaming:
        option_map.refuse(ENDING, "is for batches: a stream has no end")
    position = _position(option_map, ENDING)
    if position is QueueEnd.EARLIEST:
        raise ConfigError("endingOffsets", "earliest", "a batch that ends there is empty")
    if isinstance(position, AtOffsets):
        for queue, offset in position.offsets.items():
            if offset == EARLIEST:
                rule = f"{queue}: {EARLIEST} (the earliest) is no end: the batch would be empty"
                raise ConfigError("endingOffsets", offset, rule)
    return position or QueueEnd.LATEST


def _position(option_map: OptionMap, names: tuple[str, str, str]) -> Position | None:
    """Return the position with the highest precedence. All three options are checked."""
    time_name, times_name, offsets_name = names
    at_ms = option_map.integer(time_name, None, minimum=0)
    times_text = option_map.text(times_name)
    times = times_text and read_numbers(times_text, option=times_name, minimum=0)
    offsets = _offsets(option_map, offsets_name)
    if at_ms is not None:
        return AtTime(at_ms)
    if times:
        return AtTimes(times)
    if times_text is not None:
        raise ConfigError(times_name, shown(times_text), "names no queue")
    return offsets


def _offsets(option_map: OptionMap, name: str) -> Position | None:
    text = option_map.text(name)
    if text is None:
        return None
    if text.lower() in ("earliest", "latest"):
        return QueueEnd(text.lower())
    if not text.startswith("{"):
        rule = 'must be earliest, latest or JSON such as {"TopicA":{"broker-a:0":1}}'
        raise ConfigError(name, shown(text), rule)
    offsets = read_numbers(text, option=name, minimum=EARLIEST)
    if not offsets:
        raise ConfigError(name, shown(text), "names no queue")
    return AtOffsets(offsets)
