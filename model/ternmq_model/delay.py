"""Delay levels, and ticks of timed messages. Pure.

Source: RocketMQ `MessageStoreConfig.messageDelayLevel`, `ScheduleMessageService`,
`TimerMessageStore`.
"""

from collections.abc import Mapping
from typing import Final

from ternmq_model.properties import (
    TIMER_CANCEL,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DUE_MS,
    TIMER_ENQUEUED_MS,
    TIMER_ROLLS,
)

TICK_MS: Final = 100
"""Tick of timed messages, ms: they are delivered at its multiples."""

DELAY_MS_MAX: Final = 3 * 24 * 3600 * 1000
"""Longest time until the delivery of a timed message, ms."""

_FOREIGN_TICK_MS: Final = 1000
_LATER_MS_MAX: Final = 10_000
"""Most by which the requested time may be later than the time in a record's properties, ms:
RocketMQ rounds down, and a record may wait for space in the log after its time is computed."""

CODES_BESIDE: Final = range(-_LATER_MS_MAX, _FOREIGN_TICK_MS + 1, TICK_MS)
"""Differences of valid codes from `wheel_code`: in earlier versions a delay began at the reception
of a message, or was a second longer after a message was appended again."""

EARLIEST_CODE: Final = -(-(1 << 32) // TICK_MS) * TICK_MS
"""Lowest code of a time, 1970-02-20: lower ones look like tag codes."""

_DUE_MS_MAX: Final = 1 << 56

_DELAYS_S: Final[tuple[int, ...]] = (1, 5, 10, 30, *range(60, 660, 60), 1200, 1800, 3600, 7200)

DELAY_LEVEL_MAX: Final = len(_DELAYS_S)
"""Highest delay level: 1 to 18 are 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h."""


def level_delay_ms(level: int) -> int:
    """Return the delay of `level`, from 1 on, ms. A level above the highest counts as that."""
    return _DELAYS_S[min(level, DELAY_LEVEL_MAX) - 1] * 1000


def tick_up(at_ms: int) -> int:
    """Return the first tick at or after `at_ms`."""
    return -(-at_ms // TICK_MS) * TICK_MS


def wheel_code(properties: Mapping[str, str], stored_at_ms: int) -> int | None:
    """Return the code of a timed message in its consume queue: its tick, plus 1 if it cancels.

    A delay begins at the first storing of the record. RocketMQ's queue has the tag's code instead,
    and RocketMQ rounds the time down to its tick of a second; such a message is due at its
    requested time, as far as the properties have it.

    Args:
        properties: Properties of a record in the wheel timer's queue.
        stored_at_ms: Store time of the record, Unix ms.

    Returns:
        Code above all tag codes; None = the record has no time.
    """
    due_ms = _integer(properties.get(TIMER_DUE_MS))
    if due_ms is None or not EARLIEST_CODE <= due_ms < _DUE_MS_MAX:
        return None
    asked_ms = due_ms
    after_s, after_ms = properties.get(TIMER_DELAY_SEC), properties.get(TIMER_DELAY_MS)
    if after_s is None and after_ms is None:
        asked_ms = _integer(properties.get(TIMER_DELIVER_MS)) or due_ms
    elif TIMER_ROLLS not in properties:
        after = _integer(after_ms) if after_s is None else (_integer(after_s) or 0) * 1000
        asked_ms = stored_at_ms + (after or 0)
    elif TIMER_ENQUEUED_MS in properties:
        asked_ms = due_ms + _FOREIGN_TICK_MS  # may be rounded down from an unknown time
    due_ms = max(due_ms, min(tick_up(asked_ms), due_ms + _LATER_MS_MAX))
    return tick_up(due_ms) + (TIMER_CANCEL in properties)


def cancel_key(topic: str, told: str) -> str:
    """Return the cancel key of a timed message: topic, `+`, unique key.

    In RocketMQ 5.3.3 the cancelling message has this key. Earlier versions of RocketMQ and of this
    broker use only the unique key.

    Args:
        topic: Topic of both messages.
        told: Unique key, with or without the topic.
    """
    prefix = f"{topic}+"  # no topic has a plus in its name
    return told if told.startswith(prefix) else prefix + told


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 18 else None
