"""Waking a job at a moment."""

import asyncio

from ternmq_broker.scheduled.wakeup_timer import WakeupTimer
from tests.support.virtual_time import run_in_virtual_time


def test_timer_wakes_once_at_the_earliest_moment_set() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        woken: list[float] = []
        timer = WakeupTimer(lambda: woken.append(loop.time()))
        timer.set(5)
        timer.set(2)
        timer.set(9)
        await asyncio.sleep(20)
        assert woken == [2]
        timer.set(-1)
        await asyncio.sleep(1)
        assert woken == [2, 20]
        timer.set(1)
        timer.clear()
        timer.clear()
        await asyncio.sleep(5)
        assert woken == [2, 20]

    run_in_virtual_time(main())
