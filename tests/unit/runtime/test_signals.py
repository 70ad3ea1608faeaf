"""Programs that are told to end: in this process where a signal only cancels, else in their own."""

import asyncio
import gc
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from ternmq_model.errors import UsageError
from ternmq_runtime.service import JobRunner, OwnedTasks
from ternmq_runtime.signals import run, signals_heard

BOTH = [signal.SIGTERM, signal.SIGINT]


def test_run_returns_what_main_returns_and_takes_a_coroutine_or_its_function() -> None:
    async def main() -> int:
        return 42

    assert run(main()) == run(main) == 42


def test_run_raises_what_main_raises() -> None:
    async def main() -> None:
        raise ValueError("of main")

    with pytest.raises(ValueError, match="of main"):
        run(main())


@pytest.mark.parametrize("number", BOTH)
def test_signal_leaves_the_blocks_of_main_and_gives_its_exit_code(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    events: list[str] = []

    async def main() -> None:
        try:
            signal.raise_signal(number)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append("left")

    with pytest.raises(SystemExit) as ended:
        run(main())
    assert ended.value.code == 128 + number
    assert events == ["left"]
    assert signal.getsignal(number) is before


def test_main_that_catches_the_cancellation_returns_its_value() -> None:
    async def main() -> str:
        signal.raise_signal(signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "caught"
        raise AssertionError

    assert run(main()) == "caught"


def test_error_while_leaving_comes_out_instead_of_the_exit() -> None:
    async def main() -> None:
        signal.raise_signal(signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("while leaving")

    with pytest.raises(ValueError, match="while leaving"):
        run(main())


def test_error_while_leaving_comes_out_of_the_blocks_of_a_client() -> None:
    async def main() -> None:
        async with OwnedTasks() as tasks, JobRunner():
            tasks.spawn(asyncio.Event().wait(), "of a client")
            signal.raise_signal(signal.SIGTERM)
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("while leaving")

    with pytest.raises(ValueError, match="while leaving"):
        run(main())


def test_main_that_catches_the_cancellation_in_the_block_of_a_client_returns_its_value() -> None:
    async def main() -> str:
        async with OwnedTasks() as tasks:
            tasks.spawn(asyncio.Event().wait(), "of a client")
            signal.raise_signal(signal.SIGTERM)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "caught"
        raise AssertionError

    assert run(main()) == "caught"


async def of_one_argument(_argument: int) -> None: ...


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(42, "main=42 must be a function", id="number"),
        pytest.param(lambda: 5, "must be an `async def`", id="plain-function"),
        pytest.param(of_one_argument, "must take 0 arguments", id="with-an-argument"),
    ],
)
def test_run_refuses_what_is_no_coroutine(given: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run(given)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("is_called", [False, True])
def test_run_inside_an_event_loop_says_what_to_write(is_called: bool) -> None:
    async def main() -> None: ...

    async def cell() -> None:
        with pytest.raises(UsageError, match="write `await main"):
            run(main() if is_called else main)

    asyncio.run(cell())
    gc.collect()  # a coroutine that nobody awaited would warn now


def test_cancellation_of_main_itself_is_no_signal() -> None:
    async def main() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(main())


def test_run_in_another_thread_leaves_signals_alone() -> None:
    before = [signal.getsignal(number) for number in BOTH]
    found: list[object] = []

    async def main() -> None:
        found.extend(signal.getsignal(number) for number in BOTH)

    def work(main: Coroutine[Any, Any, None]) -> None:
        run(main)

    thread = threading.Thread(target=work, args=(main(),))
    thread.start()
    thread.join()
    assert found == before


def test_signals_are_heard_inside_the_block_only() -> None:
    heard: list[signal.Signals] = []
    before = signal.getsignal(signal.SIGTERM)
    with signals_heard(heard.append):
        for number in BOTH:
            signal.raise_signal(number)
    assert heard == BOTH
    assert signal.getsignal(signal.SIGTERM) is before


def program(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    head = "import asyncio, os, signal, sys, time\nfrom ternmq_runtime.signals import run\n"
    return subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(code)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("number", BOTH)
def test_second_signal_ends_at_once_also_when_the_loop_is_blocked(number: signal.Signals) -> None:
    done = program(f"""
        async def main():
            try:
                os.kill(os.getpid(), {number:d})
                await asyncio.Event().wait()
            finally:
                print("leaving", flush=True)
                os.kill(os.getpid(), {number:d})
                time.sleep(1000)

        run(main())
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("leaving\n", "", -number)


def test_second_signal_ends_process_1_too() -> None:
    done = program("""
        signal.raise_signal = lambda number: None  # process 1 gets none that nobody hears

        async def main():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.Event().wait()
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(1000)

        run(main())
    """)
    assert (done.stderr, done.returncode) == ("", 143)


def test_signal_after_main_ended_does_not_wait_for_threads_of_asyncio() -> None:
    done = program("""
        import threading
        began = threading.Event()

        def hang(main_task):
            began.set()
            while not main_task.done():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait()

        async def main():
            task = asyncio.create_task(asyncio.to_thread(hang, asyncio.current_task()))
            while not began.is_set():
                await asyncio.sleep(0.01)

        run(main())
    """)
    assert (done.stderr, done.returncode) == ("", -signal.SIGTERM)


def test_signal_that_does_not_interrupt_the_wait_of_the_loop_wakes_it() -> None:
    done = program("""
        import threading

        def end():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGTERM)

        async def main():
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # only the thread gets it
            threading.Thread(target=end).start()
            await asyncio.Event().wait()

        run(main())
    """)
    assert (done.stderr, done.returncode) == ("", 143)


def test_child_that_is_forked_ends_by_a_signal_and_its_parent_does_not() -> None:
    done = program("""
        async def main():
            is_ready, ready = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(ready, b"x")  # Python drops signals that come while it still forks
                time.sleep(1000)
            os.read(is_ready, 1)
            os.kill(child, signal.SIGTERM)
            _, status = os.waitpid(child, 0)
            await asyncio.sleep(0.1)
            print(os.waitstatus_to_exitcode(status))

        run(main())
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("-15\n", "", 0)
