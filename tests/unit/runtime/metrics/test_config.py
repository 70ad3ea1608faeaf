"""Bounds of the settings of the port for metrics."""

from typing import Any

import pytest

from ternmq_model.errors import ConfigError
from ternmq_runtime.metrics.config import MetricsConfig


@pytest.mark.parametrize(
    ("setting", "value"), [("port", -1), ("port", 65_536), ("series_max", 9), ("series_max", 10**7)]
)
def test_value_outside_its_bounds_is_refused_by_name(setting: str, value: int) -> None:
    given: dict[str, Any] = {setting: value}
    with pytest.raises(ConfigError, match=rf"metrics\.{setting}"):
        MetricsConfig(**given)
