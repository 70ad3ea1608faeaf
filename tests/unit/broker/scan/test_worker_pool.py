"""The processes that scan: so many, in turn, and none left behind."""

import asyncio
import signal
from dataclasses import replace

import pytest

from ternmq_broker.scan.worker_pool import IDLE_MS, TURN_MS, ScanPool
from ternmq_model.errors import BrokerBusy, ClosedError
from ternmq_store.scan_process.frames import FrameKind, ScanRequest
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time
from tests.support.scan_child import answer
from tests.support.scan_processes import MemoryProcesses
from tests.unit.store.scan_process.test_frames import REQUEST

PLAIN = replace(REQUEST, batch_rows_max=1, batch_bytes_max=8)


class Place:
    """A pool, whose job runs when it is told."""

    def __init__(self, processes_max: int = 2) -> None:
        self.processes = MemoryProcesses(answer)
        self.pool = ScanPool(self.processes, VirtualClock(), processes_max=processes_max)

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self.processes.living]

    async def tidy(self) -> None:
        await self.pool.job.step()

    async def scan(self, request: ScanRequest = PLAIN, *, parts: int = 1_000) -> list[FrameKind]:
        kinds: list[FrameKind] = []
        async with self.pool.process() as process:
            await process.begin(request)
            while len(kinds) < parts and (not kinds or kinds[-1] is not FrameKind.END):
                kinds.append((await process.read()).header.kind)
        return kinds


def test_process_serves_one_range_after_the_other() -> None:
    async def main() -> None:
        place = Place()
        for _ in range(3):
            assert await place.scan() == [FrameKind.SCHEMA, *[FrameKind.BATCH] * 4, FrameKind.END]
        assert len(place.processes.children) == 1
        assert place.pids == [1]
        assert not place.pool.job.woken.is_set()

    run_in_virtual_time(main())


def test_concurrent_scans_are_bounded_and_others_wait_in_turn() -> None:
    async def main() -> None:
        place = Place()
        served: list[int] = []
        may_end = asyncio.Event()

        async def use(number: int) -> None:
            async with place.pool.process():
                served.append(number)
                await may_end.wait()

        async with asyncio.TaskGroup() as tasks:
            for number in range(5):
                tasks.create_task(use(number))
                await asyncio.sleep(0)
            await asyncio.sleep(1)
            assert served == [0, 1]
            may_end.set()
        assert served == [0, 1, 2, 3, 4]
        assert len(place.processes.children) == 2

    run_in_virtual_time(main())


def test_abandoned_range_is_stopped_before_the_next() -> None:
    async def main() -> None:
        place = Place(1)
        await place.scan(parts=2)
        assert place.pool.job.woken.is_set()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(place.scan(parts=3))
            await asyncio.sleep(1)
            assert not waiting.done()
            await place.tidy()
        assert waiting.result() == [FrameKind.SCHEMA, FrameKind.BATCH, FrameKind.BATCH]
        assert len(place.processes.children) == 1
        assert len(place.processes.children[0].requests) == 2

    run_in_virtual_time(main())


def test_unstoppable_process_is_killed() -> None:
    async def main() -> None:
        place = Place(1)
        await place.scan(parts=2)
        place.processes.children[0].is_silent = True
        await place.tidy()
        await place.tidy()
        assert place.pids == []
        assert len(await place.scan()) == 6
        assert place.pids == [2]

    run_in_virtual_time(main())


def test_dying_process_ends_its_range_and_no_other() -> None:
    async def main() -> None:
        place = Place(1)
        with pytest.raises(BrokerBusy, match=r"\(pid 1\) has ended with code 3: try"):
            await place.scan(replace(PLAIN, topic="Dies"))
        assert len(await place.scan()) == 6
        place.processes.children[1].kill()
        assert len(await place.scan()) == 6
        await place.tidy()
        assert place.pids == [3]

    run_in_virtual_time(main())


def test_mapping_stops_after_a_bus_error() -> None:
    async def main() -> None:
        place = Place(1)
        for number, code, may_map in ((0, signal.SIGKILL, True), (1, signal.SIGBUS, False)):
            assert place.pool.may_map
            async with place.pool.process() as process:
                await process.begin(PLAIN)
                place.processes.children[number].kill(-code)
                with pytest.raises(BrokerBusy, match=f"has ended by {code.name}: try again"):
                    await process.read()
            assert place.pool.may_map is may_map

    run_in_virtual_time(main())


def test_process_that_does_not_exit_is_killed() -> None:
    async def main() -> None:
        place = Place()
        await place.scan()
        place.processes.children[0].is_stuck = True
        await asyncio.sleep(IDLE_MS / 1000)
        await place.tidy()
        assert not place.processes.living

    run_in_virtual_time(main())


def test_long_turn_ends_when_others_wait() -> None:
    async def main() -> None:
        place = Place(1)
        async with place.pool.process() as process:
            await asyncio.sleep(TURN_MS / 1000)
            assert not place.pool.is_turn_over(process)
            waiting = asyncio.create_task(place.scan())
            await asyncio.sleep(0)
            assert place.pool.is_turn_over(process)
        assert len(await waiting) == 6
        async with place.pool.process() as process:
            waiting = asyncio.create_task(place.scan())
            await asyncio.sleep(TURN_MS / 1000 - 0.1)
            assert not place.pool.is_turn_over(process)
        await waiting

    run_in_virtual_time(main())


def test_waiting_scans_fail_when_the_pool_closes() -> None:
    async def main() -> None:
        place = Place(1)
        await place.scan(parts=2)
        waiting = [asyncio.create_task(place.scan()) for _ in range(2)]
        await asyncio.sleep(1)
        place.pool.drain()
        for each in waiting:
            with pytest.raises(ClosedError):
                await each
        await place.pool.close()

    run_in_virtual_time(main())


def test_silent_process_is_given_up() -> None:
    async def main() -> None:
        place = Place(1)
        async with place.pool.process() as process:
            place.processes.children[0].is_silent = True
            await process.begin(PLAIN)
            with pytest.raises(BrokerBusy, match="has sent nothing for 120 s"):
                await process.read()
        assert not place.processes.living

    run_in_virtual_time(main())


def test_failed_process_start_is_reported_and_keeps_the_turn_free() -> None:
    async def main() -> None:
        place = Place(1)
        place.processes.failure = OSError("no memory")
        for _ in range(2):
            with pytest.raises(BrokerBusy, match="no memory"):
                await place.scan()
        place.processes.failure = None
        assert len(await place.scan()) == 6

    run_in_virtual_time(main())


def test_idle_processes_end_after_a_minute() -> None:
    async def main() -> None:
        place = Place()
        await place.scan()
        await asyncio.sleep(IDLE_MS / 1000 - 1)
        await place.tidy()
        assert place.pids == [1]
        await asyncio.sleep(1)
        await place.tidy()
        assert place.pids == []
        assert not place.processes.living

    run_in_virtual_time(main())


def test_closed_pool_leaves_no_process_and_starts_none() -> None:
    async def main() -> None:
        place = Place()
        await place.scan()
        async with place.pool.process() as process:
            await process.begin(PLAIN)
            place.pool.drain()
            with pytest.raises(BrokerBusy):
                await process.read()
        with pytest.raises(ClosedError):
            await place.scan()
        await place.pool.close()
        await place.pool.close()
        assert place.pids == []
        assert not place.processes.living

    run_in_virtual_time(main())
