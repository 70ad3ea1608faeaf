"""How the store's work is spread over a broker's loop."""

import asyncio

import pytest

from ternmq_broker.storage.confirmations import Confirmations
from ternmq_broker.storage.loop import StoreLoop
from ternmq_runtime.service import JobRunner
from ternmq_store.config import FlushMode
from ternmq_store.dispatch.log_dispatcher import DispatchResult
from ternmq_store.durability.disk_probes import DiskProbeTask
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_files import MemoryFileSystem
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time
from tests.support.records import batch_of, record
from tests.support.stores import ROOT, SMALL, append


class _WorkingClock(VirtualClock):
    """Each look at it is 2 ms after the one before."""

    looks = 0

    def monotonic_ms(self) -> int:
        self.looks += 1
        return super().monotonic_ms() + 2 * self.looks


@pytest.mark.parametrize(("is_copying", "rest_s"), [(None, 0.0), (False, 0.0), (True, 7 * 0.002)])
def test_slaves_dispatch_yields_while_it_has_much_of_the_log_to_take(
    monkeypatch: pytest.MonkeyPatch, is_copying: bool | None, rest_s: float
) -> None:
    counts: list[int] = []

    def dispatch(_: MessageStore, *, messages_max: int = 0) -> DispatchResult:
        if messages_max:  # closing the store dispatches too
            counts.append(messages_max)
        return DispatchResult((), more=messages_max > 0)

    async def main() -> None:
        clock = _WorkingClock()
        store = MessageStore.open(ROOT, SMALL, FlushMode.SYNC, MemoryFileSystem(), clock)
        loop = StoreLoop(
            store,
            Confirmations(),
            clock,
            InlineBlocking(),
            on_arrivals=lambda _: None,
        )
        if is_copying is not None:
            told: bool = is_copying
            loop.is_copying = lambda: told
        began_s = asyncio.get_running_loop().time()
        assert await loop.dispatch()
        taken_s = asyncio.get_running_loop().time() - began_s
        assert taken_s == pytest.approx(rest_s, abs=0.001)
        store.close()

    monkeypatch.setattr(MessageStore, "dispatch", dispatch)
    run_in_virtual_time(main())
    assert counts == [8192 if is_copying is None else 1024]


@pytest.mark.parametrize("is_copying", [None, False, True])
def test_slave_fills_no_file_while_it_has_much_of_the_log_to_take(
    monkeypatch: pytest.MonkeyPatch, is_copying: bool | None
) -> None:
    told: list[bool] = []

    def file_due(_: MessageStore, *, is_copying: bool = False) -> None:
        told.append(is_copying)

    async def main() -> None:
        clock = VirtualClock()
        store = MessageStore.open(ROOT, SMALL, FlushMode.SYNC, MemoryFileSystem(), clock)
        loop = StoreLoop(
            store,
            Confirmations(),
            clock,
            InlineBlocking(),
            on_arrivals=lambda _: None,
        )
        if is_copying is not None:
            loop.is_copying = lambda: bool(is_copying)
        assert not await loop.make_files()
        store.close()

    monkeypatch.setattr(MessageStore, "file_due", file_due)
    run_in_virtual_time(main())
    assert told == [bool(is_copying)]


def test_disk_is_probed_each_50_ms_while_messages_come_in_and_no_leave_waits_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probed_s: list[float] = []

    def run(_: DiskProbeTask) -> None:
        probed_s.append(asyncio.get_running_loop().time())

    monkeypatch.setattr(DiskProbeTask, "run", run)

    async def main() -> None:
        clock = VirtualClock()
        store = MessageStore.open(ROOT, SMALL, FlushMode.ASYNC, MemoryFileSystem(), clock)
        loop = StoreLoop(
            store, Confirmations(), clock, InlineBlocking(), on_arrivals=lambda _: None
        )
        async with JobRunner(*loop.jobs()):
            for _ in range(13):
                append(store, batch_of(record("A")))
                loop.appended()
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            append(store, batch_of(record("A")))
            loop.appended()
            await asyncio.sleep(0.001)
            left_s = clock.monotonic_s()
        assert clock.monotonic_s() == left_s
        store.close()

    run_in_virtual_time(main())
    assert probed_s == pytest.approx([0.0, 0.05, 0.1, 0.15, 0.23], abs=0.002)
