"""Moves of a cluster's time: in which order waits end, and where the time stands meanwhile."""

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from ternmq_model.delay import tick_up
from ternmq_runtime.service import Job, JobRunner
from ternmq_runtime.timers import Wait
from ternmq_testing.time.cluster_time import ClusterTime

HOUR_S = 3600.0


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 20))


def test_each_due_wait_ends_at_its_own_time() -> None:
    async def main() -> None:
        time = ClusterTime()
        time.freeze()
        begin_s, ended_s = time.now_s(), list[float]()

        async def wait(delay_s: float) -> None:
            await time.agenda().sleep(delay_s)
            ended_s.append(time.now_s() - begin_s)

        async with asyncio.TaskGroup() as group:
            for delay_s in (300.0, 1.0, 86_400.0, 60.0):
                group.create_task(wait(delay_s))
            await time.advance(86_400.0)
        assert ended_s == pytest.approx([1.0, 60.0, 300.0, 86_400.0])

    run(main())


def test_moves_at_the_same_time_add_up() -> None:
    async def main() -> None:
        time = ClusterTime()
        time.freeze()
        begin_s = time.now_s()
        await asyncio.gather(time.advance(HOUR_S), time.advance(HOUR_S))
        assert time.now_s() - begin_s == pytest.approx(2 * HOUR_S, abs=1)

    run(main())


def test_wait_that_a_wait_begins_ends_in_the_same_move() -> None:
    async def main() -> None:
        time = ClusterTime()
        timers, steps = time.agenda(), list[int]()

        async def steps_of_an_hour() -> None:
            for step in range(10):
                await timers.sleep(HOUR_S)
                steps.append(step)

        task = asyncio.create_task(steps_of_an_hour())
        assert await time.advance(9.5 * HOUR_S) == 12
        assert steps == list(range(9))
        task.cancel()

    run(main())


def test_periodic_job_runs_at_both_ends_of_a_move_and_where_it_is_due() -> None:
    async def main() -> None:
        time = ClusterTime()
        time.freeze()
        begin_s, idle, busy = time.now_s(), list[float](), list[float]()
        planned_s = [begin_s + 100, begin_s + 5000]
        due_at_s = planned_s.copy()

        async def step() -> bool:
            idle.append(time.now_s() - begin_s)
            return False

        async def deliver() -> bool:
            while due_at_s and due_at_s[0] <= time.now_s():
                busy.append(due_at_s.pop(0))
            return False

        async with JobRunner(
            Job(name="idle", interval_s=1.0, step=step),
            Job(
                name="busy",
                interval_s=1.0,
                step=deliver,
                due_in_s=lambda: due_at_s[0] - time.now_s() if due_at_s else float("inf"),
            ),
            timers=time.agenda(),
        ):
            await time.quiet()
            idle.clear()
            assert await time.advance(HOUR_S * 24) == 5
            assert len(idle) == 3
            assert busy == planned_s

    run(main())


def test_move_takes_few_turns_of_a_loop_that_has_nothing_else_to_do() -> None:
    class Counting(selectors.DefaultSelector):
        turns = 0

        def select(self, timeout: float | None = None) -> Any:
            self.turns += 1
            return super().select(timeout)

    selector = Counting()

    async def main() -> None:
        time, ended = ClusterTime(), list[float]()
        for hour in range(10):
            time.agenda().call_later(HOUR_S * (hour + 1), ended.append, hour)
        begun = selector.turns
        assert await time.advance(HOUR_S * 11) == 13
        assert ended == list(range(10))
        assert selector.turns - begun < 60

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(main())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_stop_ends_when_all_that_follows_from_it_has_happened(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        time, ended = ClusterTime(), list[str]()

        async def work() -> None:
            for _ in range(20):
                await asyncio.sleep(0)
            with time.busy():
                await asyncio.to_thread(threading.Event().wait, 0.05)
            for _ in range(20):
                await asyncio.sleep(0)
            time.note_activity()
            for _ in range(20):
                await asyncio.sleep(0)
            ended.append("work")

        works = list[asyncio.Task[None]]()
        time.agenda().call_later(10.0, lambda: works.append(asyncio.create_task(work())))
        time.agenda().call_later(20.0, ended.append, "next stop")
        await time.advance(30.0)
        assert ended == ["work", "next stop"]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(main(), 20))


def test_time_that_passes_by_itself_asks_no_job_whether_it_has_something_to_do() -> None:
    async def main() -> None:
        time, asked, woken = ClusterTime(), list[float](), asyncio.Event()

        def due_in_s() -> float:
            asked.append(time.now_s())
            return 0.0

        time.agenda().call_later(60.0, woken.set, wait=Wait.PERIODIC, due_in_s=due_in_s)
        await time.agenda().sleep(0.01)
        assert not asked
        await time.advance(1.0)
        assert woken.is_set()

    run(main())


def test_renewals_come_before_due_waits_and_idle_limits_last() -> None:
    async def main() -> None:
        time = ClusterTime()
        timers, order = time.agenda(), list[str]()
        for wait in reversed(Wait):
            timers.call_later(10.0 + wait, order.append, wait.name, wait=wait)
        timers.call_later(30.0, order.append, "later")
        await time.advance(60.0)
        assert order == ["RENEWAL", "DUE", "later", "HEARTBEAT", "PERIODIC", "IDLE"]

    run(main())


def test_timeout_expires_by_the_moved_time_alone() -> None:
    async def main() -> None:
        time = ClusterTime()
        time.freeze()
        reached = list[str]()

        async def limited() -> None:
            try:
                async with time.agenda().timeout(0.01):
                    reached.append("begun")
                    await asyncio.Event().wait()
            except TimeoutError:
                reached.append("expired")

        async with asyncio.TaskGroup() as group:
            group.create_task(limited())
            await asyncio.sleep(0.05)
            assert reached == ["begun"]
            await time.advance(0.01)
        assert reached == ["begun", "expired"]

    run(main())


def test_cancelled_wait_and_timeout_leave_nothing_planned() -> None:
    async def main() -> None:
        time = ClusterTime()
        timers = time.agenda()
        waiting = asyncio.create_task(timers.sleep(HOUR_S))
        async with timers.timeout(HOUR_S):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert timers.next_due_s() == float("inf")

    run(main())


def test_time_passes_by_itself_until_it_is_frozen() -> None:
    async def main() -> None:
        time = ClusterTime()
        woken = asyncio.Event()
        time.agenda().call_later(0.02, woken.set)
        await woken.wait()
        time.freeze()
        at_s, at_ms = time.now_s(), time.wall_ms()
        time.agenda().call_later(0.01, woken.clear)
        await asyncio.sleep(0.05)
        assert time.now_s() == at_s
        assert woken.is_set()
        await time.advance(1.0)
        assert not woken.is_set()
        # The time was frozen within a millisecond, which the end of the move rounds up.
        assert time.wall_ms() in {tick_up(at_ms + 1000) + 1, tick_up(at_ms + 1001) + 1}

    run(main())


def test_move_ends_right_after_a_tick_of_timed_messages() -> None:
    async def main() -> None:
        time = ClusterTime()
        time.freeze()
        for _ in range(3):
            await time.advance(0.25)
            assert time.wall_ms() % 100 == 1

    run(main())


def test_waits_on_loops_of_other_threads_end_too() -> None:
    async def main() -> None:
        time = ClusterTime()
        begun, ended = threading.Event(), list[float]()

        async def other() -> None:
            timers = time.agenda()
            for _ in range(3):
                begun.set()
                await timers.sleep(HOUR_S)
                ended.append(timers.now_s())

        thread = threading.Thread(target=lambda: asyncio.run(other()))
        thread.start()
        await asyncio.to_thread(begun.wait, 10)
        begin_s = time.now_s()
        await time.advance(3.1 * HOUR_S)
        await asyncio.to_thread(thread.join, 10)
        assert len(ended) == 3
        assert ended[-1] - begin_s >= 3 * HOUR_S - 1

    run(main())
