"""Opening is all or nothing, and closing is opening backwards."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from unittest import mock

import pytest

from ternmq_model.errors import ClosedError, UsageError
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_testing.time.virtual_time import run_in_virtual_time


class Service(Lifecycle):
    """Opens two parts and notes what happens."""

    def __init__(self, *, fails: bool = False) -> None:
        self.events: list[str] = []
        self._fails = fails

    def use(self) -> None:
        self._check_owner()

    async def _open(self, stack: AsyncExitStack) -> None:
        for part in ("first", "second"):
            self.events.append(f"open {part}")
            stack.callback(self.events.append, f"close {part}")
        if self._fails:
            raise ValueError("half-way")


OPENED = ["open first", "open second"]
CLOSED = ["close second", "close first"]


def test_resources_close_in_reverse_order() -> None:
    service = Service()

    async def main() -> None:
        async with service as entered:
            assert entered is service
            assert service.events == OPENED

    run_in_virtual_time(main())
    assert service.events == OPENED + CLOSED


def test_half_opened_service_is_closed() -> None:
    service = Service(fails=True)

    async def main() -> None:
        with pytest.raises(ValueError, match="half-way"):
            await service.__aenter__()
        await service.__aexit__(None, None, None)

    run_in_virtual_time(main())
    assert service.events == OPENED + CLOSED


def test_leaving_twice_does_nothing() -> None:
    service = Service()

    async def main() -> None:
        async with service:
            pass
        await service.__aexit__(None, None, None)

    run_in_virtual_time(main())
    assert service.events == OPENED + CLOSED


def test_child_process_neither_closes_nor_opens_what_its_parent_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Service()

    async def main() -> None:
        async with service:
            with monkeypatch.context() as child:
                child.setattr("ternmq_runtime.fork_safety._process_id", -1)
                await service.__aexit__(None, None, None)
                with pytest.raises(ClosedError, match="was forked"):
                    await service.__aenter__()
            assert service.events == OPENED

    run_in_virtual_time(main())
    assert service.events == OPENED + CLOSED


def test_use_on_another_event_loop_is_refused_while_open() -> None:
    service = Service()

    async def use() -> None:
        service.use()

    def elsewhere() -> None:
        with ThreadPoolExecutor() as pool:
            pool.submit(lambda: asyncio.run(use())).result()

    async def main() -> None:
        async with service:
            await use()
            with pytest.raises(UsageError, match="belongs to another event loop"):
                elsewhere()
            with ThreadPoolExecutor() as pool:  # of a thread without a loop nobody knows more
                pool.submit(service.use).result()
        elsewhere()

    asyncio.run(main())


def test_use_on_another_loop_is_refused_while_another_thread_runs_the_first() -> None:
    service, first, is_running = Service(), asyncio.new_event_loop(), threading.Event()

    async def use() -> None:
        service.use()

    first.run_until_complete(service.__aenter__())
    first.call_soon(is_running.set)
    with ThreadPoolExecutor() as pool:
        pool.submit(first.run_forever)
        is_running.wait()
        try:
            with pytest.raises(UsageError, match="belongs to another event loop"):
                asyncio.run(use())
        finally:
            first.call_soon_threadsafe(first.stop)
    first.run_until_complete(service.__aexit__(None, None, None))
    first.close()


def test_use_on_the_own_loop_does_not_ask_for_the_running_one() -> None:
    service = Service()

    async def main() -> None:
        async with service:
            with mock.patch("ternmq_runtime.lifecycle.check_loop") as asked:
                service.use()
            asked.assert_not_called()

    asyncio.run(main())
