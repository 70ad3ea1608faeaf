import asyncio
import gc
import logging
import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Self

import pytest

from ternmq_runtime.service import Job, JobRunner, collecting_rarely, run_until_signalled
from ternmq_testing.time.virtual_time import run_in_virtual_time


class Service:
    """Notes what happens to it; `stop_s` is how long it takes to stop."""

    def __init__(self, *, stop_s: float = 0, start_s: float = 0) -> None:
        self.events: list[str] = []
        self._stop_s = stop_s
        self._start_s = start_s

    async def __aenter__(self) -> Self:
        await asyncio.sleep(self._start_s)
        self.events.append("started")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.sleep(self._stop_s)
        self.events.append("stopped")


def send_signals(*numbers: signal.Signals) -> Callable[[], None]:
    def send() -> None:
        loop = asyncio.get_running_loop()
        for turn, number in enumerate(numbers):
            loop.call_later(0.01 * turn, os.kill, os.getpid(), number)

    return send


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_service_cleanly(number: signal.Signals) -> None:
    service = Service()
    before = signal.getsignal(signal.SIGTERM)

    assert asyncio.run(run_until_signalled(service, on_ready=send_signals(number))) == 0

    assert service.events == ["started", "stopped"]
    assert signal.getsignal(signal.SIGTERM) == before


def test_second_signal_cancels_a_slowly_stopping_service() -> None:
    service = Service(stop_s=60)
    on_ready = send_signals(signal.SIGTERM, signal.SIGTERM)

    async def main() -> int:
        code = await run_until_signalled(service, on_ready=on_ready)
        await asyncio.sleep(0)  # the task is cancelled no more
        return code

    assert asyncio.run(main()) == 1
    assert service.events == ["started"]


def test_signal_during_the_start_stops_the_service_right_after_it() -> None:
    service = Service(start_s=0.05)
    ready: list[bool] = []

    async def main() -> int:
        send_signals(signal.SIGTERM)()
        return await run_until_signalled(service, on_ready=lambda: ready.append(True))

    assert asyncio.run(main()) == 0
    assert service.events == ["started", "stopped"]
    assert not ready


def test_signal_ends_a_start_that_waits_for_others() -> None:
    class Waiting(Service):
        def __init__(self) -> None:
            super().__init__()
            self._given_up = asyncio.Event()

        async def __aenter__(self) -> Self:
            await self._given_up.wait()
            return await super().__aenter__()

        def stop_waiting(self) -> None:
            self._given_up.set()

    async def main() -> tuple[int, Service]:
        service = Waiting()
        send_signals(signal.SIGTERM)()
        return await run_until_signalled(service, on_ready=pytest.fail), service

    code, service = asyncio.run(main())
    assert (code, service.events) == (0, ["started", "stopped"])


def test_event_ends_a_service_outside_the_main_thread() -> None:
    codes: list[int] = []

    async def main() -> None:
        stopping = asyncio.Event()
        codes.append(await run_until_signalled(Service(), on_ready=stopping.set, stopping=stopping))

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    thread.join()
    assert codes == [0]


def test_crash_of_a_background_job_ends_the_service_with_a_logged_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def crash() -> bool:
        await asyncio.sleep(1)
        raise OSError("disk is gone")

    service = JobRunner(Job(name="flush", interval_s=1, step=crash))
    assert run_in_virtual_time(run_until_signalled(service)) == 1
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "disk is gone" in caplog.text
    assert record.getMessage() == "service failed"


def test_service_reporting_failure_is_left_with_a_logged_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(Service):
        async def failed(self) -> None:
            await asyncio.sleep(1)
            raise OSError("listener is gone")

    service = Failing()
    assert run_in_virtual_time(run_until_signalled(service)) == 1
    assert service.events == ["started", "stopped"]
    assert "listener is gone" in caplog.text


def test_service_without_failure_ends_cleanly() -> None:
    class Sound(Service):
        async def failed(self) -> None:
            await asyncio.Event().wait()

    async def main() -> int:
        stopping = asyncio.Event()
        return await run_until_signalled(Sound(), on_ready=stopping.set, stopping=stopping)

    assert run_in_virtual_time(main()) == 0


def test_failure_while_stopping_is_logged_and_exits_with_1(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @asynccontextmanager
    async def service() -> AsyncGenerator[None]:
        yield
        raise OSError("flush failed")

    async def main() -> int:
        stopping = asyncio.Event()
        return await run_until_signalled(service(), on_ready=stopping.set, stopping=stopping)

    assert run_in_virtual_time(main()) == 1
    assert "flush failed" in caplog.text


def test_failure_while_starting_is_raised() -> None:
    class Unstartable(Service):
        async def __aenter__(self) -> Self:
            raise OSError("port is taken")

    with pytest.raises(OSError, match="port is taken"):
        run_in_virtual_time(run_until_signalled(Unstartable()))


def test_cancellation_from_outside_is_passed_on() -> None:
    service = Service()

    async def main() -> None:
        async with asyncio.timeout(5):
            await run_until_signalled(service)

    with pytest.raises(TimeoutError):
        run_in_virtual_time(main())
    assert service.events == ["started", "stopped"]


def test_garbage_is_collected_rarely_in_a_block_and_as_before_after_it() -> None:
    kept = gc.get_threshold()
    gc.set_threshold(300, 5, 5)
    try:
        with suppress(ValueError), collecting_rarely():
            assert gc.get_threshold()[0] >= 10_000
            raise ValueError
        assert gc.get_threshold() == (300, 5, 5)
    finally:
        gc.set_threshold(*kept)
