"""Waking a job at a moment."""

import asyncio

from ternmq_broker.scheduled.alarm import Alarm
from tests.support.virtual_time import run_in_virtual_time


def test_alarm_rings_once_at_the_earliest_moment_set() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        rung: list[float] = []
        alarm = Alarm(lambda: rung.append(loop.time()))
        alarm.set(5)
        alarm.set(2)
        alarm.set(9)
        await asyncio.sleep(20)
        assert rung == [2]
        alarm.set(-1)
        await asyncio.sleep(1)
        assert rung == [2, 20]
        alarm.set(1)
        alarm.clear()
        alarm.clear()
        await asyncio.sleep(5)
        assert rung == [2, 20]

    run_in_virtual_time(main())
