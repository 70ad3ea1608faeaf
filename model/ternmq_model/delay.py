"""The levels of delay. Pure.

Source: RocketMQ `MessageStoreConfig.messageDelayLevel`, `ScheduleMessageService`.
"""

from typing import Final

_DELAYS_S: Final[tuple[int, ...]] = (1, 5, 10, 30, *range(60, 660, 60), 1200, 1800, 3600, 7200)

DELAY_LEVEL_MAX: Final = len(_DELAYS_S)
"""Levels are 1 to 18: 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h."""


def level_delay_ms(level: int) -> int:
    """Return how long `level`, from 1 on, delays; above the highest it is that."""
    return _DELAYS_S[min(level, DELAY_LEVEL_MAX) - 1] * 1000
