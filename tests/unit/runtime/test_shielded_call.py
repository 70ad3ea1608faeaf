"""Calls that write files are waited for, whoever is cancelled meanwhile."""

import asyncio
import threading

import pytest

from ternmq_runtime.blocking_pool import BlockingPool
from ternmq_runtime.shielded_call import run_shielded


def test_cancelled_caller_waits_for_the_thread_and_gets_its_outcome() -> None:
    begun, go_on = threading.Event(), threading.Event()
    happened: list[object] = []

    def write() -> None:
        begun.set()
        go_on.wait(5.0)
        happened.append("written")

    async def main() -> None:
        async with BlockingPool(2) as pool:
            waiting = asyncio.ensure_future(run_shielded(pool.run, write, happened.append))
            await pool.run(begun.wait, 5.0)
            for _ in range(3):  # a second signal is no reason to leave it alone either
                waiting.cancel()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            assert not waiting.done()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert happened == ["written", None]

    asyncio.run(main())


def test_disk_error_is_an_outcome_and_any_other_is_raised() -> None:
    async def main() -> None:
        outcomes: list[object] = []
        failure = OSError("disk is gone")

        def fail(error: Exception) -> None:
            raise error

        async with BlockingPool() as pool:
            await run_shielded(pool.run, lambda: None, outcomes.append)
            await run_shielded(pool.run, lambda: fail(failure), outcomes.append)
            with pytest.raises(ValueError, match="a bug"):
                await run_shielded(pool.run, lambda: fail(ValueError("a bug")), outcomes.append)
        assert outcomes == [None, failure]

    asyncio.run(main())
