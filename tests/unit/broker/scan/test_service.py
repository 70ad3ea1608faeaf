"""Replies to the reader of a range that its queue does not keep."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ternmq_broker.config import BrokerConfig
from ternmq_broker.pull.rules import PullRules
from ternmq_broker.scan import service
from ternmq_broker.scan.service import ScanService
from ternmq_broker.state.topic_deletion_listeners import TopicDeletionListeners
from ternmq_broker.state.topics import TopicTable
from ternmq_broker.storage.admission import Admission
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.environment import Environment
from ternmq_runtime.service import JobRunner
from ternmq_store.message_store import MessageStore
from ternmq_store.scan_process.frames import FrameKind, ScanAnswer, ScanRefusal, ScanRequest
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time
from tests.support.scan_processes import MemoryProcesses


@pytest.fixture(autouse=True)
def _arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "has_pyarrow", lambda: True)


class Store:
    """A store whose one queue begins and ends where a test says."""

    def __init__(self, first: int, end: int) -> None:
        self.range = (first, end)
        self.confirm_offset = 1_000
        self.searches: Any = self
        self.statistics: Any = self
        self.cleaner: Any = SimpleNamespace(holders=[])
        self.counted: list[int] = []

    def queue_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self.range

    def place_of(self, topic: str, queue_id: int, offset: int) -> int | None:
        return None if offset < self.range[0] else offset * 10

    def got(self, count: int, *, took_ms: int, from_disk: bool) -> None:
        self.counted.append(count)


class Stream:
    def __init__(self, request: messages.ScanRequest, takes_s: float) -> None:
        self.replies: list[messages.ScanReply] = []
        self._requests = [request]
        self._takes_s = takes_s

    async def read(self) -> messages.ScanRequest | None:
        return self._requests.pop() if self._requests else None

    async def write(self, reply: messages.ScanReply) -> None:
        self.replies.append(reply)
        await asyncio.sleep(self._takes_s)


class Rules:
    """Allow everything."""

    def check_queue(self, topic: str, queue_id: int) -> None:
        return


class Place:
    def __init__(self, store: Store, answer: Any = None, *, is_slave: bool = False) -> None:
        self.store = store
        self.service = ScanService(
            BrokerConfig(name="broker-a", scan_processes=1),
            cast(
                "Environment",
                SimpleNamespace(
                    processes=MemoryProcesses(answer), clock=VirtualClock(), blocking=None
                ),
            ),
            cast("MessageStore", store),
            cast("TopicTable", None),
            cast("PullRules", Rules()),
            TopicDeletionListeners(),
            is_slave=is_slave,
            admission=Admission(bytes_max=0, bytes_per_stream_max=0),
        )

    async def ask(self, begin: int, end: int, takes_s: float = 0) -> list[messages.ScanReply]:
        request = messages.ScanRequest(topic="T", begin_offset=begin, end_offset=end)
        stream = Stream(request, takes_s)
        async with JobRunner(*self.service.jobs()):
            await self.service.scan(cast("Any", stream), cast("Any", None))
        return stream.replies


@pytest.mark.parametrize(
    ("is_slave", "code"),
    [(False, ResponseCode.PULL_OFFSET_MOVED), (True, ResponseCode.PULL_RETRY_IMMEDIATELY)],
)
def test_range_before_the_queue_is_lost_at_a_master_and_retried_at_a_slave(
    is_slave: bool, code: int
) -> None:
    async def main() -> None:
        (reply,) = await Place(Store(20, 50), is_slave=is_slave).ask(5, 30)
        assert reply.status.code == code
        assert (reply.next_offset, reply.min_offset, reply.ends_stretch) == (5, 20, True)
        assert "begins at 20 now: offset 5" in reply.status.remark

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("first_now", "code"),
    [(40, ResponseCode.PULL_OFFSET_MOVED), (20, ResponseCode.SYSTEM_BUSY)],
)
def test_missing_file_counts_as_lost_only_when_the_queue_agrees(first_now: int, code: int) -> None:
    async def main() -> None:
        store = Store(20, 50)

        def overtaken(request: ScanRequest) -> Iterator[ScanAnswer]:
            yield ScanAnswer(FrameKind.BATCH, b"x", 30, 0, 10)
            store.range = (first_now, 50)
            gone = ScanRefusal(ResponseCode.PULL_OFFSET_MOVED, "it is gone")
            yield ScanAnswer(FrameKind.REFUSAL, gone.to_bytes())
            yield ScanAnswer(FrameKind.END)

        replies = await Place(store, overtaken).ask(20, 50)
        assert [each.status.code for each in replies] == [0, code]
        assert (replies[-1].next_offset, replies[-1].min_offset) == (30, first_now)
        assert store.counted == [10]

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("end_now", "code"), [(50, ResponseCode.SYSTEM_ERROR), (40, ResponseCode.SYSTEM_BUSY)]
)
def test_damage_below_a_cut_of_the_log_can_be_retried(end_now: int, code: int) -> None:
    async def main() -> None:
        store = Store(20, 50)

        def cut(request: ScanRequest) -> Iterator[ScanAnswer]:
            assert request.end_offset == 50
            yield ScanAnswer(FrameKind.BATCH, b"x", 30, 0, 10)
            store.range = (20, end_now)
            bad = ScanRefusal(ResponseCode.SYSTEM_ERROR, "message 40 is damaged")
            yield ScanAnswer(FrameKind.REFUSAL, bad.to_bytes())
            yield ScanAnswer(FrameKind.END)

        replies = await Place(store, cut, is_slave=True).ask(20, 60)
        assert [each.status.code for each in replies] == [0, code]

    run_in_virtual_time(main())


def test_two_slow_readers_take_turns_and_each_learns_of_all_damage() -> None:
    async def main() -> None:
        begun_at: list[int] = []

        def some_damaged(request: ScanRequest) -> Iterator[ScanAnswer]:
            begun_at.append(request.begin_offset)
            yield ScanAnswer(FrameKind.SCHEMA, b"s")
            for number, end in enumerate(range(request.begin_offset + 10, 51, 10), 1):
                yield ScanAnswer(FrameKind.BATCH, b"x", end, number, 9)
            yield ScanAnswer(FrameKind.END, b"e", 50)

        place = Place(Store(10, 50), some_damaged)
        asked = [place.ask(10, 50, takes_s=1.5) for _ in range(2)]
        for replies in await asyncio.gather(*asked):
            told = [(each.next_offset, each.damaged, each.piece) for each in replies]
            assert told == [
                *((10, 0, b"s"), (20, 1, b"x"), (30, 2, b"x"), (40, 3, b"x"), (50, 4, b"x")),
                (50, 4, b"e"),
            ]
        assert begun_at == [10, 10, 20, 20, 40, 40]
        assert place.store.counted == [9] * 8

    run_in_virtual_time(main())


def test_hold_follows_the_reader_and_ends_with_the_range() -> None:
    async def main() -> None:
        needed: list[int | None] = []

        def two(request: ScanRequest) -> Iterator[ScanAnswer]:
            for end in (30, 50):
                needed.append(place.service.holds.needed_from())
                yield ScanAnswer(FrameKind.BATCH, b"x", end, 0, 1)
            needed.append(place.service.holds.needed_from())
            yield ScanAnswer(FrameKind.END, b"", 50)

        place = Place(Store(20, 50), two)
        await place.ask(20, 50)
        assert needed == [200, 300, 500]
        assert place.service.holds.needed_from() is None

    run_in_virtual_time(main())
