"""The levels of delay."""

import pytest

from ternmq_model.delay import level_delay_ms

LEVELS = (
    *("1s", "5s", "10s", "30s", "1m", "2m", "3m", "4m", "5m", "6m", "7m", "8m", "9m", "10m"),
    *("20m", "30m", "1h", "2h"),
)
UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000}


@pytest.mark.parametrize(("level", "text"), list(enumerate(LEVELS, 1)))
def test_a_level_delays_as_its_name_says(level: int, text: str) -> None:
    assert level_delay_ms(level) == int(text[:-1]) * UNIT_MS[text[-1]]


def test_a_level_above_the_highest_delays_as_that() -> None:
    assert level_delay_ms(99) == 2 * 3_600_000
