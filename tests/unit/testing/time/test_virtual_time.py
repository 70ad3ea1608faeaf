import asyncio
from pathlib import Path
from random import Random

import pytest

from ternmq_model.clock import Clock
from ternmq_remoting.environment import Blocking
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_files import PowerLossFileSystem
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import (
    EPOCH_MS,
    VirtualClock,
    run_in_virtual_time,
    until,
    virtual_environment,
)


def test_virtual_day_passes_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(86_400 * 3)
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(main()) == pytest.approx(86_400 * 3)


def test_timeouts_end_at_their_virtual_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3_600):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(main()) == pytest.approx(3_600)


def test_timers_fire_in_order_however_they_were_set() -> None:
    async def main() -> list[int]:
        woken: list[int] = []

        async def sleep(delay_s: int) -> None:
            await asyncio.sleep(delay_s)
            woken.append(delay_s)

        async with asyncio.TaskGroup() as group:
            for delay_s in (5, 1, 4, 2, 3):
                group.create_task(sleep(delay_s))
        return woken

    assert run_in_virtual_time(main()) == [1, 2, 3, 4, 5]


def test_deadlock_is_reported() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="deadlock"):
        run_in_virtual_time(main())


def test_wait_ends_in_the_instant_its_condition_holds_and_tests_it_once_per_instant() -> None:
    async def main() -> tuple[float, int]:
        loop, tests = asyncio.get_running_loop(), 0
        done: list[bool] = []

        def is_done() -> bool:
            nonlocal tests
            tests += 1
            return bool(done)

        loop.call_later(1_800, int)
        loop.call_later(3_600, done.append, True)
        await until(is_done, within_s=7_200)
        await until(is_done)
        return loop.time(), tests

    ended_s, tests = run_in_virtual_time(main())
    assert ended_s == pytest.approx(3_600)
    assert tests == 5


def test_wait_for_a_condition_times_out() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            await until(lambda: False, within_s=30)
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(main()) == pytest.approx(30)


def test_clocks_follow_the_loop() -> None:
    def read(clock: Clock) -> tuple[int, int]:
        return clock.monotonic_ms(), clock.wall_ms()

    async def main() -> None:
        clock = VirtualClock()
        assert read(clock) == (0, EPOCH_MS)
        await asyncio.sleep(1.5)
        assert read(clock) == (1_500, EPOCH_MS + 1_500)
        clock.wall_offset_ms = -10_000
        assert read(clock) == (1_500, EPOCH_MS - 8_500)

    run_in_virtual_time(main())


def test_clock_advances_exactly_by_a_sleep() -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        for ms in (1, 7, 100, 300, 999):
            before_ms = clock.monotonic_ms()
            await asyncio.sleep(ms / 1000)
            assert clock.monotonic_ms() == before_ms + ms

    run_in_virtual_time(main())


@pytest.mark.parametrize("is_late", [False, True])
def test_sync_covers_what_was_written_before_it_and_is_durable_by_its_end(is_late: bool) -> None:
    async def sync(blocking: Blocking) -> None:
        files, path = PowerLossFileSystem(), Path("/file")
        file = files.open(path, create=True)

        def durable() -> bytes:
            return files.nodes[path].disk.tobytes()

        file.write(0, b"before")
        syncing = asyncio.ensure_future(blocking.run(file.sync))
        await asyncio.sleep(1.0)
        assert durable() == (b"" if is_late else b"before")
        file.write(6, b" and after")
        await syncing
        assert asyncio.get_running_loop().time() == 2.0
        assert durable() == (b"before and after" if is_late else b"before")

    run_in_virtual_time(sync(InlineBlocking(lambda: 2.0, lambda: is_late)))


@pytest.mark.parametrize("is_late", [False, True])
def test_cancelled_inline_calls_take_effect_once(is_late: bool) -> None:
    async def cancel(blocking: Blocking) -> None:
        seen: list[str] = []
        calling = asyncio.ensure_future(blocking.run(seen.append, "written"))
        await asyncio.sleep(1.0)
        calling.cancel()
        await asyncio.wait([calling])
        assert calling.cancelled()
        assert seen == ["written"]
        assert asyncio.get_running_loop().time() == 1.0

    run_in_virtual_time(cancel(InlineBlocking(lambda: 2.0, lambda: is_late)))


def test_simulated_host_has_early_and_late_calls() -> None:
    async def main() -> None:
        seen: list[int] = []
        async with MemoryNetwork(Random(1)) as network:
            blocking = virtual_environment(network.host("a"), Random(1), lambda: 2.0).blocking
            async with asyncio.TaskGroup() as group:
                for number in range(20):
                    group.create_task(blocking.run(seen.append, number))
                await asyncio.sleep(1.0)
                assert 0 < len(seen) < 20
            assert sorted(seen) == [*range(20)]

    run_in_virtual_time(main())


def test_inline_calls_return_and_raise_as_their_functions_do() -> None:
    async def main() -> None:
        blocking = InlineBlocking()
        assert await blocking.run(int, "ff", base=16) == 255
        with pytest.raises(ValueError, match="invalid literal"):
            await blocking.run(int, "x")

    run_in_virtual_time(main())
