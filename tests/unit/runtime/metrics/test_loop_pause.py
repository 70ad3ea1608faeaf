"""Pauses of a loop, in moved time."""

import asyncio
import time

from ternmq_runtime.metrics.loop_pause import LOOP_PAUSE, LoopPause
from ternmq_runtime.timers import LOOP_TIMERS


def test_pause_of_the_loop_is_counted_in_its_bucket() -> None:
    async def main() -> None:
        pause = LoopPause(LOOP_TIMERS)
        await asyncio.sleep(0.05)
        time.sleep(0.3)  # noqa: ASYNC251
        await asyncio.sleep(0.01)
        pause.stop()
        *buckets, total = pause.counts.values()
        before = dict(zip(LOOP_PAUSE.bounds, buckets, strict=False))
        assert buckets[-1] >= 1
        assert before[0.2] == buckets[-1] - 1
        assert total >= 0.2

    asyncio.run(main())
