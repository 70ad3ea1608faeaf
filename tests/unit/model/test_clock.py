"""Text of a time."""

import pytest

from ternmq_model.clock import utc_text


@pytest.mark.parametrize(
    ("at_s", "expected"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_769_860_800, "2026-01-31T12:00:00.000Z"),
        (1_769_860_800.0019, "2026-01-31T12:00:00.001Z"),
    ],
)
def test_time_is_a_text_in_utc_with_milliseconds(at_s: float, expected: str) -> None:
    assert utc_text(at_s) == expected
