"""Pauses of a loop, in moved time."""

import asyncio

import pytest

from ternmq_runtime.metrics.loop_pause import LOOP_PAUSE, LoopPause
from ternmq_runtime.timers import LoopTimers
from ternmq_testing.time.virtual_time import run_in_virtual_time


class PausedTimers(LoopTimers):
    """Timers of a loop whose clock goes on while it runs nothing."""

    paused_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.paused_s


def test_pause_of_the_loop_is_counted_in_its_bucket() -> None:
    async def main() -> None:
        timers = PausedTimers()
        pause = LoopPause(timers)
        await asyncio.sleep(0.25)
        timers.paused_s += 0.3
        await asyncio.sleep(0.1)
        pause.stop()
        *buckets, total = pause.counts.values()
        before = dict(zip(LOOP_PAUSE.bounds, buckets, strict=False))
        assert (before[0.001], before[0.2], before[0.5], buckets[-1]) == (2, 2, 3, 3)
        assert total == pytest.approx(0.3)

    run_in_virtual_time(main())
