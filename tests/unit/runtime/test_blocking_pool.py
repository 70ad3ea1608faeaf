import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial

import pytest

from ternmq_model.errors import ClosedError
from ternmq_remoting.environment import Blocking
from ternmq_runtime.blocking_pool import BlockingPool

_CALLER: ContextVar[str] = ContextVar("caller")


def test_call_returns_its_result_from_another_thread() -> None:
    def call(number: int, *, factor: int) -> tuple[int, bool]:
        return number * factor, threading.current_thread() is threading.main_thread()

    async def use(blocking: Blocking) -> tuple[int, bool]:
        return await blocking.run(call, 21, factor=2)

    async def main() -> None:
        async with BlockingPool() as pool:
            assert await use(pool) == (42, False)

    asyncio.run(main())


def test_call_sees_the_context_variables_of_its_caller() -> None:
    async def main() -> None:
        async with BlockingPool(1) as pool:
            for name in ("first", "second"):
                _CALLER.set(name)
                assert await pool.run(_CALLER.get) == name

    asyncio.run(main())


@pytest.mark.parametrize("error", [OSError("disk is gone"), SystemError("whatever")])
def test_call_raises_what_its_function_raises(error: Exception) -> None:
    def fail() -> None:
        raise error

    async def main() -> None:
        async with BlockingPool(1) as pool:
            with pytest.raises(type(error), match=str(error)):
                await pool.run(fail)
            assert await pool.run(len, "abc") == 3  # the thread lives on

    asyncio.run(main())


def test_stop_iteration_reaches_the_waiter_as_a_runtime_error() -> None:
    async def main() -> None:
        async with BlockingPool() as pool:
            with pytest.raises(RuntimeError, match="StopIteration"):
                await pool.run(next, iter(()))

    asyncio.run(main())


def test_calls_run_concurrently_up_to_the_number_of_threads() -> None:
    async def main() -> None:
        both = threading.Barrier(2)
        async with BlockingPool(2) as pool:
            await asyncio.gather(*(pool.run(both.wait, 5.0) for _ in range(6)))
            names = {thread.name for thread in threading.enumerate()}
            assert len([name for name in names if name.startswith("ternmq-blocking")]) == 2

    asyncio.run(main())


def test_single_thread_runs_calls_in_the_order_they_came() -> None:
    async def main() -> list[int]:
        order: list[int] = []
        async with BlockingPool(1) as pool:
            await asyncio.gather(*(pool.run(order.append, number) for number in range(50)))
        return order

    assert asyncio.run(main()) == list(range(50))


def test_cancelling_stops_the_waiting_and_not_the_calls() -> None:
    async def main() -> None:
        may_end = threading.Event()
        ran: list[str] = []
        async with BlockingPool(1) as pool:
            async with asyncio.TaskGroup() as group:
                running = group.create_task(pool.run(may_end.wait))
                queued = group.create_task(pool.run(ran.append, "queued"))
                await asyncio.sleep(0)
                running.cancel()
                queued.cancel()
            assert not ran
            may_end.set()
        assert ran == ["queued"]

    asyncio.run(main())


def test_failure_without_a_waiter_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise OSError("disk is gone")

    async def main() -> None:
        async with BlockingPool(1) as pool:
            task = asyncio.ensure_future(pool.run(fail))
            await asyncio.sleep(0)
            task.cancel()

    asyncio.run(main())
    assert "disk is gone" in caplog.text


def test_closing_waits_for_all_calls_and_ends_the_threads() -> None:
    async def main() -> None:
        may_end = threading.Event()
        pool = BlockingPool(1)
        waiting = asyncio.ensure_future(pool.run(may_end.wait))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(pool.close())
        await asyncio.sleep(0)
        assert not closing.done()
        may_end.set()
        await closing
        assert waiting.done()
        assert not [t for t in threading.enumerate() if t.name.startswith("ternmq-blocking")]

    asyncio.run(main())


def test_closed_pool_refuses_calls_and_may_be_closed_again() -> None:
    async def main() -> None:
        pool = BlockingPool()
        await pool.close()
        await pool.close()
        with pytest.raises(ClosedError):
            await pool.run(len, "abc")

    asyncio.run(main())


def test_pool_may_be_created_before_its_loop_runs() -> None:
    pool = BlockingPool()

    async def main() -> int:
        async with pool:
            return await pool.run(len, "abc")

    assert asyncio.run(main()) == 3


def test_pool_without_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="0"):
        BlockingPool(0)


def hang(begun: Callable[[], object], ends: threading.Event) -> None:
    begun()
    ends.wait()


def test_close_with_a_limit_abandons_what_hangs_and_never_begins_what_waits() -> None:
    ends, second = threading.Event(), threading.Event()

    async def main() -> None:
        pool, began = BlockingPool(1), asyncio.Event()
        begun = partial(asyncio.get_running_loop().call_soon_threadsafe, began.set)
        async with asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(pool.run(hang, begun, ends))]
            await began.wait()
            calls.append(tasks.create_task(pool.run(second.set)))
            await asyncio.sleep(0)
            abandoned = await pool.close(wait_s=0.01)
            for call in calls:
                call.cancel()
        assert [name.rsplit(".", 1)[-1] for name in abandoned] == ["hang", "set"]
        with pytest.raises(ClosedError):
            await pool.run(len, "abc")

    asyncio.run(main())
    (thread,) = [each for each in threading.enumerate() if each.name == "ternmq-blocking-0"]
    assert thread.daemon
    ends.set()
    thread.join()
    assert not second.is_set()


def test_close_with_a_limit_waits_for_calls_that_end_within_it() -> None:
    async def main() -> None:
        pool = BlockingPool(1)
        call = asyncio.ensure_future(pool.run(len, "abc"))
        await asyncio.sleep(0)
        assert await pool.close(wait_s=100) == []
        assert await call == 3

    asyncio.run(main())
