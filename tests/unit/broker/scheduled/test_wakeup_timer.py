"""Waking a job at a moment."""

import asyncio

import pytest

from ternmq_broker.scheduled.wakeup_timer import WakeupTimer
from ternmq_model.errors import StoreFull
from ternmq_runtime.timers import LOOP_TIMERS
from ternmq_testing.time.virtual_time import run_in_virtual_time


def test_timer_wakes_once_at_the_earliest_moment_set() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        woken: list[float] = []
        timer = WakeupTimer(lambda: woken.append(loop.time()), "timed", LOOP_TIMERS)
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


def test_failed_steps_are_retried_after_pauses_that_double(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        woken: list[float] = []
        timer = WakeupTimer(lambda: woken.append(round(loop.time(), 1)), "timed", LOOP_TIMERS)

        async def failing() -> bool:
            raise StoreFull("full")

        async def good() -> bool:
            return True

        for _ in range(3):
            assert not await timer.attempt(failing)
            await asyncio.sleep(1)
        assert woken == [0.1, 1.2, 2.4]
        assert await timer.attempt(good)
        assert not await timer.attempt(failing)
        await asyncio.sleep(1)
        assert woken[-1] == 3.1

    with caplog.at_level("INFO"):
        run_in_virtual_time(main())
    texts = [record.getMessage() for record in caplog.records]
    failed = "messages wait, delivery fails kind=timed err=full"
    assert texts == [failed, "messages are delivered again kind=timed", failed]
