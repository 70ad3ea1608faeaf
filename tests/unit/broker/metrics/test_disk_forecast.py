import math

from hypothesis import given
from hypothesis import strategies as st

from ternmq_broker.metrics.disk_forecast import DiskForecast


def test_time_to_full_follows_the_growth_of_the_last_ten_minutes() -> None:
    forecast = DiskForecast()
    assert forecast.seconds_to_full(0, 1000, now_ms=0) == math.inf
    assert forecast.seconds_to_full(500, 1000, now_ms=30_000) == math.inf  # too short for a rate
    assert forecast.seconds_to_full(500, 1000, now_ms=100_000) == 200
    for at_ms in range(200_000, 700_000, 100_000):
        assert forecast.seconds_to_full(500, 1000, now_ms=at_ms) < math.inf
    assert forecast.seconds_to_full(500, 1000, now_ms=700_000) == math.inf  # it grows no more


@given(st.lists(st.tuples(st.integers(1, 300_000), st.integers(-(1 << 40), 1 << 40)), max_size=50))
def test_time_to_full_is_never_negative(steps: list[tuple[int, int]]) -> None:
    forecast, now_ms, log_bytes = DiskForecast(), 0, 0
    for after_ms, grown in steps:
        now_ms += after_ms
        log_bytes = max(0, log_bytes + grown)
        found = forecast.seconds_to_full(log_bytes, 1 << 30, now_ms=now_ms)
        assert found == math.inf or found > 0
