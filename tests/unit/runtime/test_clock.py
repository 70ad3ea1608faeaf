import asyncio

from ternmq_model.clock import Clock
from ternmq_runtime.clock import SystemClock


def test_monotonic_clock_is_that_of_event_loops() -> None:
    async def read(clock: Clock) -> tuple[int, float, int]:
        return clock.monotonic_ms(), asyncio.get_running_loop().time(), clock.monotonic_ms()

    before_ms, loop_s, after_ms = asyncio.run(read(SystemClock()))
    assert before_ms - 1 <= loop_s * 1000 <= after_ms + 1


def test_wall_clock_counts_from_1970() -> None:
    year_2024_ms = 1_704_067_200_000
    assert SystemClock().wall_ms() > year_2024_ms
