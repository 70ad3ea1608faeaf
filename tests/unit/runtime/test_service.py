import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from ternmq_model.errors import ClosedError
from ternmq_runtime.service import Job, JobRunner, OwnedTasks, run_or_abandon
from ternmq_testing.time.virtual_time import run_in_virtual_time


class Counter:
    """A step that counts its runs and notes their times; `more` runs have more to do."""

    def __init__(self, more: int = 0) -> None:
        self.times_s: list[float] = []
        self._more = more

    async def step(self) -> bool:
        self.times_s.append(asyncio.get_running_loop().time())
        self._more -= 1
        return self._more >= 0


def other_tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}


def test_day_of_jobs_runs_at_its_interval() -> None:
    counter = Counter()

    async def main() -> None:
        async with JobRunner(Job(name="refresh", interval_s=30.0, step=counter.step)):
            await asyncio.sleep(86_399)
        assert not other_tasks()

    run_in_virtual_time(main())
    assert counter.times_s == pytest.approx([30.0 * n for n in range(2_880)])


def test_step_with_more_to_do_runs_again_without_a_pause() -> None:
    counter = Counter(more=3)

    async def main() -> None:
        async with JobRunner(Job(name="dispatch", interval_s=5.0, step=counter.step)):
            await asyncio.sleep(6)

    run_in_virtual_time(main())
    assert counter.times_s == [0, 0, 0, 0, 5]


def test_busy_job_lets_others_run() -> None:
    async def step() -> bool:
        return True

    async def main() -> None:
        async with JobRunner(Job(name="busy", interval_s=1, step=step)):
            for _ in range(10):
                await asyncio.sleep(0)

    run_in_virtual_time(main())


def test_woken_job_runs_at_once_and_then_at_its_interval() -> None:
    counter = Counter()

    async def main() -> None:
        job = Job(name="flush", interval_s=10, step=counter.step)
        async with JobRunner(job):
            await asyncio.sleep(3)
            job.wake()
            job.wake()
            await asyncio.sleep(11)

    run_in_virtual_time(main())
    assert counter.times_s == [0, 3, 13]


def test_job_without_an_interval_runs_only_when_woken() -> None:
    counter = Counter()

    async def main() -> None:
        job = Job(name="flush", interval_s=math.inf, step=counter.step)
        job.wake()
        async with JobRunner(job):
            await asyncio.sleep(500_000)
            job.wake()
            await asyncio.sleep(1)

    run_in_virtual_time(main())
    assert counter.times_s == [0, 500_000]


def test_job_woken_during_its_step_runs_once_more() -> None:
    times_s: list[float] = []

    async def step() -> bool:
        times_s.append(asyncio.get_running_loop().time())
        await asyncio.sleep(2)
        return False

    async def main() -> None:
        job = Job(name="flush", interval_s=math.inf, step=step)
        async with JobRunner(job):
            await asyncio.sleep(1)
            job.wake()
            await asyncio.sleep(9)

    run_in_virtual_time(main())
    assert times_s == [0, 2]


def test_two_jobs_of_one_name_are_refused() -> None:
    job = Job(name="flush", interval_s=1, step=Counter().step)
    with pytest.raises(ValueError, match="flush"):
        JobRunner(job, job)


def test_clean_leave_waits_for_the_running_step_and_begins_no_other() -> None:
    ended: list[str] = []

    async def step() -> bool:
        await asyncio.sleep(5)
        ended.append("step")
        return True

    async def main() -> None:
        async with JobRunner(Job(name="flush", interval_s=1, step=step)):
            await asyncio.sleep(1)
        assert asyncio.get_running_loop().time() == 5

    run_in_virtual_time(main())
    assert ended == ["step"]


def test_crash_in_a_job_cancels_the_body_and_is_raised_by_the_block() -> None:
    async def crash() -> bool:
        await asyncio.sleep(3)
        raise OSError("disk is gone")

    async def main() -> None:
        runner = JobRunner(
            Job(name="flush", interval_s=1, step=crash),
            Job(name="idle", interval_s=math.inf, step=Counter().step),
        )
        with pytest.raises(ExceptionGroup) as failure:
            async with runner:
                await asyncio.Event().wait()
        assert failure.group_contains(OSError, match="disk is gone")
        assert asyncio.get_running_loop().time() == 3
        assert not other_tasks()

    run_in_virtual_time(main())


@pytest.mark.parametrize("make_block", [JobRunner, OwnedTasks])
def test_exception_of_the_body_is_raised_unwrapped(
    make_block: Callable[[], JobRunner | OwnedTasks],
) -> None:
    async def main() -> None:
        with pytest.raises(LookupError, match="of the body"):
            async with make_block():
                raise LookupError("of the body")

    run_in_virtual_time(main())


def test_crash_in_a_job_passes_unchanged_through_an_outer_block() -> None:
    async def crash() -> bool:
        raise OSError("disk is gone")

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as failure:
            async with OwnedTasks(), JobRunner(Job(name="flush", interval_s=1, step=crash)):
                await asyncio.Event().wait()
        assert failure.group_contains(OSError, depth=1)

    run_in_virtual_time(main())


def test_owned_tasks_are_cancelled_when_the_block_is_left() -> None:
    ended: list[str] = []

    async def serve(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            ended.append(name)

    async def main() -> None:
        async with OwnedTasks() as tasks:
            tasks.spawn(serve("a"), "a")
            tasks.spawn(serve("b"), "b")
            await asyncio.sleep(1)
            assert len(tasks) == 2
        assert ended == ["a", "b"]
        assert len(tasks) == 0
        assert not other_tasks()

    run_in_virtual_time(main())


@pytest.mark.parametrize("in_order", [True, False])
def test_tasks_and_jobs_are_cancelled_in_the_order_they_began(in_order: bool) -> None:
    async def main() -> None:
        ended: list[str] = []

        async def wait(name: str) -> bool:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(name)
            return False

        names = [f"job-{number}" for number in range(20)]
        jobs = [Job(name=name, interval_s=1, step=partial(wait, name)) for name in names]
        with suppress(LookupError):
            async with JobRunner(*jobs):
                await asyncio.sleep(1)
                raise LookupError
        assert ended == names

        ended.clear()
        with suppress(LookupError):
            async with OwnedTasks() as tasks:
                for name in names:
                    tasks.spawn(wait(name), name)
                await asyncio.sleep(1)
                if not in_order:
                    raise LookupError
        assert ended == names

    run_in_virtual_time(main())


def test_task_that_ends_or_is_cancelled_alone_disturbs_no_other() -> None:
    async def double(number: int) -> int:
        return number * 2

    async def main() -> None:
        async with OwnedTasks() as tasks:
            assert await tasks.spawn(double(21), "double") == 42
            waiting = tasks.spawn(asyncio.sleep(100), "waiting")
            await asyncio.sleep(1)
            waiting.cancel()
            await asyncio.sleep(1)
            assert len(tasks) == 0

    run_in_virtual_time(main())


def test_crash_in_a_task_cancels_its_siblings_and_is_raised_by_the_block() -> None:
    async def crash() -> None:
        await asyncio.sleep(1)
        raise OSError("connection is gone")

    async def main() -> None:
        async def use_tasks() -> None:
            async with OwnedTasks() as tasks:
                tasks.spawn(crash(), "crash")
                tasks.spawn(asyncio.sleep(100), "sibling")
                await asyncio.Event().wait()

        with pytest.raises(ExceptionGroup) as failure:
            await use_tasks()
        assert failure.group_contains(OSError)
        assert asyncio.get_running_loop().time() == 1

    run_in_virtual_time(main())


@pytest.mark.parametrize("crash_of", ["body", "task"])
def test_cancellation_during_the_exit_of_a_failing_block_is_not_lost(crash_of: str) -> None:
    async def crash() -> None:
        raise ValueError

    async def linger() -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + 10
        while loop.time() < until_s:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(until_s - loop.time())

    async def try_for_ever() -> None:
        while True:
            with suppress(ValueError, ExceptionGroup):
                async with OwnedTasks() as tasks:
                    tasks.spawn(linger(), "linger")
                    await asyncio.sleep(1)
                    if crash_of == "body":
                        await crash()
                    tasks.spawn(crash(), "crash")
                    await asyncio.sleep(1)

    async def main() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await try_for_ever()
        assert asyncio.get_running_loop().time() < 12

    run_in_virtual_time(main())


@pytest.mark.parametrize("crash_of", ["task", "job"])
def test_crash_during_the_exit_is_raised_and_cancels_no_other(crash_of: str) -> None:
    async def crash() -> bool:
        try:
            await asyncio.sleep(5)
        finally:
            raise ValueError

    async def leave() -> None:
        if crash_of == "task":
            async with OwnedTasks() as tasks:
                tasks.spawn(crash(), "crash")
                await asyncio.sleep(1)
        else:
            async with JobRunner(Job(name="crash", interval_s=1, step=crash)):
                await asyncio.sleep(1)

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as failure:
            await leave()
        assert [type(error) for error in failure.value.exceptions] == [ValueError]
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        async with OwnedTasks():
            await asyncio.sleep(0)

    run_in_virtual_time(main())


def test_spawning_outside_the_block_fails() -> None:
    async def main() -> None:
        tasks = OwnedTasks()
        with pytest.raises(ClosedError, match="early"):
            tasks.spawn(asyncio.sleep(1), "early")
        async with tasks:
            pass
        with pytest.raises(ClosedError, match="late"):
            tasks.spawn(asyncio.sleep(1), "late")
        assert not other_tasks()

    run_in_virtual_time(main())


def test_spawning_from_a_cancelled_task_fails() -> None:
    refused: list[ClosedError] = []

    async def main() -> None:
        async with OwnedTasks() as tasks:

            async def stubborn() -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    try:
                        tasks.spawn(asyncio.sleep(1), "late")
                    except ClosedError as error:
                        refused.append(error)

            tasks.spawn(stubborn(), "stubborn")
            await asyncio.sleep(1)

    run_in_virtual_time(main())
    assert len(refused) == 1


def test_cancellation_that_ends_a_block_goes_on_and_is_not_repeated() -> None:
    # An `AsyncExitStack` makes an error its own cause that two of its blocks raise.
    async def main() -> None:
        for block in (OwnedTasks(), JobRunner()):
            await block.__aenter__()
            cancelled = asyncio.CancelledError()
            await block.__aexit__(type(cancelled), cancelled, None)

    run_in_virtual_time(main())


def test_cancellation_in_a_block_is_raised_by_it() -> None:
    async def main() -> None:
        async def body() -> None:
            async with OwnedTasks(), JobRunner():
                await asyncio.sleep(10)

        task = asyncio.ensure_future(body())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_in_virtual_time(main())


def test_error_of_a_body_that_was_cancelled_before_comes_out() -> None:
    async def body() -> None:
        async with OwnedTasks() as tasks:
            tasks.spawn(asyncio.Event().wait(), "other")
            try:
                await asyncio.sleep(10)
            finally:
                raise ValueError("of the body")

    async def main() -> None:
        task = asyncio.ensure_future(body())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(ValueError, match="of the body"):
            await task

    run_in_virtual_time(main())


def test_cancellation_while_a_failing_block_is_left_by_an_error_is_raised() -> None:
    async def crash() -> None:
        await asyncio.sleep(0.5)
        raise KeyError

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            with suppress(asyncio.CancelledError):  # leaving cancels it once more
                await asyncio.sleep(10)
            await asyncio.sleep(10)

    async def body() -> None:
        async with OwnedTasks() as tasks:
            tasks.spawn(crash(), "crash")
            tasks.spawn(slow(), "slow")
            try:
                await asyncio.sleep(10)
            finally:
                raise ValueError

    async def main() -> None:
        task = asyncio.ensure_future(body())
        await asyncio.sleep(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_in_virtual_time(main())


async def long() -> None:
    await asyncio.sleep(100)


def test_work_that_goes_on_after_its_cancellation_is_abandoned() -> None:
    abandoned_s: list[float] = []
    is_wanted = True

    async def stubborn() -> None:
        while is_wanted:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(5)

    async def main() -> None:
        nonlocal is_wanted
        loop = asyncio.get_running_loop()
        async with OwnedTasks() as tasks:
            works = {"stubborn": stubborn, "other": long}
            running = run_or_abandon(
                works, wait_s=1, on_abandoned=lambda: abandoned_s.append(loop.time())
            )
            tasks.spawn(running, "works")
            await asyncio.sleep(1)
        assert abandoned_s == [2]
        is_wanted = False
        await asyncio.sleep(5)
        assert not other_tasks()

    run_in_virtual_time(main())


def test_work_that_fails_cancels_the_others_and_comes_out() -> None:
    async def crash() -> None:
        await asyncio.sleep(1)
        raise ValueError("of a work")

    async def main() -> None:
        works = {"crash": crash, "other": long}
        with pytest.raises(ValueError, match="of a work"):
            await run_or_abandon(works, wait_s=1, on_abandoned=list[None]().clear)
        assert not other_tasks()

    run_in_virtual_time(main())
