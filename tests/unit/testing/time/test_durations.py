from typing import Any

import pytest

from ternmq_model.errors import UsageError
from ternmq_testing.time.durations import seconds_of


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("3d", 259_200), ("2h30m", 9000), ("10s", 10), ("500ms", 0.5), ("1.5h", 5400), (7, 7), (0, 0)],
)
def test_duration_in_seconds(duration: str | float, seconds: float) -> None:
    assert seconds_of(duration) == seconds


@pytest.mark.parametrize(
    "duration",
    ["", "3", "d", "3 d", "3d!", "-3d", -1, float("nan"), "3y", float("inf"), True, None, [3]],
)
def test_other_values_and_negative_durations_are_refused(duration: Any) -> None:
    with pytest.raises(UsageError, match=r"no duration: |time does not go back"):
        seconds_of(duration)
