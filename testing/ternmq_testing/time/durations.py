"""Durations as text."""

import re
from typing import Final

from ternmq_model.arguments import fault_of_seconds
from ternmq_model.errors import UsageError

_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")


def seconds_of(duration: str | float) -> float:
    """Return a duration in seconds: a number of them, or a text such as `2h30m`. Pure.

    Raises:
        UsageError: The value is no duration, or it is negative.
    """
    if isinstance(duration, str):
        parts = _PART.findall(duration)
        if not parts or "".join(number + unit for number, unit in parts) != duration:
            raise UsageError(f"{duration!r} is no duration: write 3d, 2h30m, 10s or 500ms")
        return sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    if (rule := fault_of_seconds(duration)) is not None:
        raise UsageError(f"{duration!r} is no duration: {rule}, or a text such as 2h30m")
    if duration < 0:
        raise UsageError(f"time does not go back: {duration}")
    return float(duration)
