"""The levels of delay, and the ticks of timed messages. Pure.

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
"""Timed messages are delivered at whole multiples of this."""

DELAY_MS_MAX: Final = 3 * 24 * 3600 * 1000
"""The furthest ahead that a message can be timed."""

_FOREIGN_TICK_MS: Final = 1000
_LATER_MS_MAX: Final = 10_000
"""By how much what was asked for may be later than what a record's properties say: RocketMQ rounds
down, and a record may wait for room in the log when its time has been worked out."""

CODES_BESIDE: Final = range(-_LATER_MS_MAX, _FOREIGN_TICK_MS + 1, TICK_MS)
"""By how much a right code may differ from `wheel_code`: earlier versions let a delay run from when
the message was received, or a second longer when it was laid anew."""

EARLIEST_CODE: Final = -(-(1 << 32) // TICK_MS) * TICK_MS
"""Times before 1970-02-20 would look like tag codes."""

_DUE_MS_MAX: Final = 1 << 56

_DELAYS_S: Final[tuple[int, ...]] = (1, 5, 10, 30, *range(60, 660, 60), 1200, 1800, 3600, 7200)

DELAY_LEVEL_MAX: Final = len(_DELAYS_S)
"""Levels are 1 to 18: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h."""


def level_delay_ms(level: int) -> int:
    """Return how long `level`, from 1 on, delays; above the highest it is that."""
    return _DELAYS_S[min(level, DELAY_LEVEL_MAX) - 1] * 1000


def tick_up(at_ms: int) -> int:
    """Return the first tick that is not before `at_ms`."""
    return -(-at_ms // TICK_MS) * TICK_MS


def wheel_code(properties: Mapping[str, str], stored_at_ms: int) -> int | None:
    """Return what a consume queue keeps of a timed message: its tick, and 1 more if it cancels.

    A delay runs from when the record was stored first. RocketMQ keeps the tag's code there, and
    rounds the time down to its tick of a second; such a message is due at the time that was asked
    for, as far as that can be told.

    Args:
        properties: Of a record in the wheel timer's queue.
        stored_at_ms: Its store time.

    Returns:
        More than any tag's code; None when the record says no time.
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
        asked_ms = due_ms + _FOREIGN_TICK_MS  # perhaps rounded down, and nobody knows from what
    due_ms = max(due_ms, min(tick_up(asked_ms), due_ms + _LATER_MS_MAX))
    return tick_up(due_ms) + (TIMER_CANCEL in properties)


def cancel_key(topic: str, told: str) -> str:
    """Return the name of a timed message that another one cancels: topic, `+`, unique key.

    RocketMQ 5.3.3 keeps it in the cancelling message. Earlier versions of it and of this broker
    keep and compare the unique key alone.

    Args:
        topic: Of both messages.
        told: The unique key, with the topic before it or without.
    """
    prefix = f"{topic}+"  # no topic has a plus in its name
    return told if told.startswith(prefix) else prefix + told


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 18 else None
