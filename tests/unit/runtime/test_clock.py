import asyncio

import pytest

from ternmq_model.clock import Clock
from ternmq_runtime.clock import SystemClock, ticks_together_ns


def test_monotonic_clock_is_that_of_event_loops() -> None:
    async def read(clock: Clock) -> tuple[int, float, int]:
        return clock.monotonic_ms(), asyncio.get_running_loop().time(), clock.monotonic_ms()

    before_ms, loop_s, after_ms = asyncio.run(read(SystemClock()))
    assert before_ms - 1 <= loop_s * 1000 <= after_ms + 1


def test_wall_clock_counts_from_1970() -> None:
    year_2024_ms = 1_704_067_200_000
    assert SystemClock().wall_ms() > year_2024_ms


@pytest.mark.parametrize("wall_ns", [1_700_000_000_000_000_000, 1_700_000_000_000_937_266])
@pytest.mark.parametrize("boot_ns", [0, 1, 999_999, 5_000_062_734])
def test_boot_clock_begins_its_milliseconds_with_the_wall_clock(wall_ns: int, boot_ns: int) -> None:
    added_ns = ticks_together_ns(wall_ns, boot_ns)
    apart = {
        (wall_ns + later_ns) // 1_000_000 - (boot_ns + added_ns + later_ns) // 1_000_000
        for later_ns in range(0, 2_000_000, 7_919)
    }
    assert len(apart) == 1
    assert 0 <= added_ns < 1_000_000
