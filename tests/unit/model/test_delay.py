"""The levels of delay."""

import pytest

from ternmq_model.delay import EARLIEST_CODE, level_delay_ms, tick_up, wheel_code

LEVELS = (
    *("1s", "5s", "10s", "30s", "1m", "2m", "3m", "4m", "5m", "6m", "7m", "8m", "9m", "10m"),
    *("20m", "30m", "1h", "2h"),
)
UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000}


@pytest.mark.parametrize(("level", "text"), list(enumerate(LEVELS, 1)))
def test_level_delays_as_its_name_says(level: int, text: str) -> None:
    assert level_delay_ms(level) == int(text[:-1]) * UNIT_MS[text[-1]]


def test_level_above_the_highest_delays_as_the_highest() -> None:
    assert level_delay_ms(99) == 2 * 3_600_000


STORED_MS = 1_700_000_000_123


@pytest.mark.parametrize(("at_ms", "tick_ms"), [(0, 0), (1, 100), (100, 100), (101, 200)])
def test_time_is_rounded_up_to_its_tick(at_ms: int, tick_ms: int) -> None:
    assert tick_up(at_ms) == tick_ms


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"TIMER_OUT_MS": "1700000009100"}, 1_700_000_009_100),
        ({"TIMER_OUT_MS": "1700000009100", "TIMER_DELAY_MS": "5"}, 1_700_000_009_100),
        ({"TIMER_OUT_MS": "1700000009100", "TIMER_DEL_UNIQKEY": "A"}, 1_700_000_009_101),
        # RocketMQ rounds down to a second, and a whole second to the one before.
        ({"TIMER_OUT_MS": "1700000009000", "TIMER_DELIVER_MS": "1700000009901"}, 1_700_000_010_000),
        ({"TIMER_OUT_MS": "1700000009000", "TIMER_DELIVER_MS": "1700000010000"}, 1_700_000_010_000),
        ({"TIMER_OUT_MS": "1700000009000", "TIMER_DELAY_SEC": "9"}, 1_700_000_009_200),
        ({"TIMER_OUT_MS": "1700000009000", "TIMER_DELAY_MS": "9100"}, 1_700_000_009_300),
        # It arrived 3 s before it was stored.
        ({"TIMER_OUT_MS": "1700000009100", "TIMER_DELAY_MS": "12100"}, 1_700_000_012_300),
        # No record waits a day for room: its clock was another one.
        ({"TIMER_OUT_MS": "1700000009100", "TIMER_DELAY_SEC": "86400"}, 1_700_000_019_100),
        # Laid anew: what is asked for counts from the first time.
        (
            {
                "TIMER_OUT_MS": "1700000009000",
                "TIMER_DELAY_SEC": "172809",
                "TIMER_ROLL_TIMES": "1",
                "TIMER_ENQUEUE_MS": "1700000000123",
            },
            1_700_000_010_000,
        ),
        (
            {
                "TIMER_OUT_MS": "1700000009000",
                "TIMER_DELAY_SEC": "172809",
                "TIMER_ROLL_TIMES": "1",
            },
            1_700_000_009_000,
        ),
        ({"TIMER_OUT_MS": "1700000009000", "TIMER_DELIVER_MS": "x"}, 1_700_000_009_000),
        ({"TIMER_OUT_MS": "soon"}, None),
        ({"TIMER_OUT_MS": str(EARLIEST_CODE - 1)}, None),
        ({"TIMER_OUT_MS": "9" * 17}, None),
        ({}, None),
    ],
)
def test_timed_message_is_due_as_its_properties_say(
    properties: dict[str, str], code: int | None
) -> None:
    assert wheel_code(properties, STORED_MS) == code
