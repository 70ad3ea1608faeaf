"""The pull stream's bookkeeping, against a broker whose every word the test writes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, cast
from unittest import mock

import pytest

from ternmq_consumer.pull_stream.flow_control import FlowControlWindow
from ternmq_consumer.pull_stream.pull_link import STALE_AFTER_S, PullLink
from ternmq_consumer.pull_stream.pulled_queue import PulledQueue
from ternmq_model.errors import ClosedError, ConnectionLost, CorruptRecord, RefusedError, refusal
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.subscription import SQL92, parse_subscription
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Connection, Identity
from ternmq_runtime.service import OwnedTasks
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time

QUEUE = MessageQueue("t", "b", 0)
WINDOW = FlowControlWindow(100, 10_000)


class Stream:
    """The broker's side of one stream."""

    def __init__(self) -> None:
        self.written: list[messages.PullStreamRequest] = []
        self.replies: asyncio.Queue[messages.PullStreamReply | Exception | None] = asyncio.Queue()
        self.is_cancelled = False
        self.fails_writing: Exception | None = None

    async def read(self) -> messages.PullStreamReply | None:
        reply = await self.replies.get()
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def write(self, message: messages.PullStreamRequest, /) -> None:
        if self.fails_writing is not None:
            raise self.fails_writing
        self.written.append(message)

    async def finish(self) -> None:
        raise AssertionError("is not called")

    def cancel(self) -> None:
        self.is_cancelled = True
        self.replies.put_nowait(self.fails_writing or ClosedError("cancelled"))

    def answer(self, handle: int, next_offset: int, count: int = 1, code: int = 0) -> None:
        """Send `count` records of 10 bytes."""
        pulled = messages.PulledRecords(
            handle=handle,
            status=common.Status(code=code),
            next_offset=next_offset,
            records=b"." * 10 * count,
            record_sizes=(10).to_bytes(4, "little") * count,
        )
        self.replies.put_nowait(messages.PullStreamReply(pulled=[pulled]))

    @property
    def subscribes(self) -> list[tuple[int, int, int]]:
        """Number, offset and credit in messages of each subscription."""
        return [
            (one.subscribe.handle, one.subscribe.offset, one.subscribe.credit_messages)
            for one in self.written
            if one.HasField("subscribe")
        ]


class World:
    """One link, its streams, and what its receiver was given."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.offsets: list[int] = []
        self.refusals: list[int] = []
        self.moves: list[int] = []
        self.gone: list[int] = []
        self.forgotten = 0
        self.is_corrupt = False
        self.identity = Identity("c", "b", 0, 7)
        env = Environment(
            clock=VirtualClock(),
            network=cast("Any", None),
            random=Random(1),
            blocking=InlineBlocking(),
        )
        self.is_read_elsewhere = False
        self.link = PullLink(env, self, broker_name="b", client_id="c", group="g", selector=self)

    async def broker(self, broker_name: str, broker_id: int = 0) -> Connection:
        return cast("Connection", self)

    def forget(self, broker_name: str, connection: Connection, broker_id: int = 0) -> None:
        self.forgotten += 1

    def open(self, rpc: object) -> Stream:
        self.streams.append(Stream())
        return self.streams[-1]

    def suggested(self, pulled_queue: PulledQueue, broker_id: int) -> None:
        raise AssertionError("no other member is named")

    def failed(self, pulled_queues: Sequence[PulledQueue], broker_id: int, reason: str) -> bool:
        return self.is_read_elsewhere

    def on_records(self, pulled: messages.PulledRecords) -> int:
        if self.is_corrupt:
            raise CorruptRecord(PhysicalOffset(0), "torn")
        self.offsets.append(pulled.next_offset)
        return len(pulled.records)

    def on_moved(self, offset: QueueOffset) -> None:
        self.moves.append(offset)

    def on_refused(self, error: RefusedError) -> None:
        self.refusals.append(error.code)

    def on_gone(self, error: RefusedError) -> None:
        self.gone.append(error.code)

    def subscribe(
        self, offset: int = 0, queue: MessageQueue = QUEUE, condition: str = ""
    ) -> PulledQueue:
        subscription = parse_subscription("t", condition or "*", SQL92 if condition else "TAG")
        return self.link.subscribe(queue, subscription, QueueOffset(offset), WINDOW, self)


def with_link(test: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        async with OwnedTasks() as tasks:
            tasks.spawn(world.link.run(), "link")
            await test(world)
        assert all(stream.is_cancelled for stream in world.streams)

    run_in_virtual_time(main())


async def settle(seconds: float = 0.01) -> None:
    await asyncio.sleep(seconds)


def test_stream_is_opened_with_the_first_subscription() -> None:
    async def test(world: World) -> None:
        await settle(100)
        assert not world.streams
        world.subscribe(7)
        await settle()
        (stream,) = world.streams
        assert stream.written[0].open.group == "g"
        assert stream.subscribes == [(1, 7, 100)]

    with_link(test)


@pytest.mark.parametrize(("count", "is_small"), [(1, True), (4096, False)])
def test_next_read_begins_after_the_listener_of_a_small_reply(count: int, is_small: bool) -> None:
    async def test(world: World) -> None:
        events: list[str] = []

        def wake_listener(pulled: messages.PulledRecords) -> int:
            asyncio.get_running_loop().call_soon(events.append, "listener")
            return len(pulled.records)

        world.subscribe()
        await settle()
        (stream,) = world.streams
        read = stream.replies.get

        async def get() -> messages.PullStreamReply | Exception | None:
            events.append("read")
            return await read()

        with (
            mock.patch.object(world, "on_records", wake_listener),
            mock.patch.object(stream.replies, "get", get),
        ):
            stream.answer(1, count, count)
            await settle()
        assert events == (["listener", "read"] if is_small else ["read", "listener"])

    with_link(test)


def test_replies_to_an_abandoned_handle_are_dropped() -> None:
    async def test(world: World) -> None:
        first = world.subscribe()
        await settle()
        (stream,) = world.streams
        first.close()
        world.subscribe(50)
        stream.answer(1, 10)
        stream.answer(2, 60)
        await settle()
        assert world.offsets == [60]
        assert stream.written[2].unsubscribe.handle == 1
        assert stream.subscribes[1] == (2, 50, 100)

    with_link(test)


def test_broken_stream_is_reopened_with_the_remaining_subscriptions() -> None:
    async def test(world: World) -> None:
        reading = world.subscribe()
        gone = world.subscribe(queue=QUEUE._replace(queue_id=1))
        await settle()
        world.streams[0].answer(1, 30, count=30)
        await settle()
        reading.release(10, 100)
        gone.close()
        world.streams[0].replies.put_nowait(ConnectionLost("cut"))
        await settle(5)
        assert world.forgotten == 1
        assert len(world.streams) == 2
        assert world.streams[1].subscribes == [(3, 30, 80)]
        world.streams[1].answer(3, 31)
        await settle()
        assert world.offsets == [30, 31]

    with_link(test)


def test_stream_ended_by_the_broker_is_reopened_over_the_same_connection() -> None:
    async def test(world: World) -> None:
        world.subscribe()
        await settle()
        world.streams[0].replies.put_nowait(None)
        await settle(5)
        assert len(world.streams) == 2
        assert world.forgotten == 0

    with_link(test)


def test_refusal_seen_first_by_the_writer_ends_only_its_stream() -> None:
    async def test(world: World) -> None:
        reading = world.subscribe()
        await settle()
        error = refusal(ResponseCode.NO_PERMISSION, "group g may not consume")
        world.streams[0].fails_writing = error
        reading.release(100, 1000)
        await settle(5)
        assert len(world.streams) == 2
        assert world.streams[1].subscribes == [(2, 0, 200)]
        world.streams[1].answer(2, 1)
        await settle()
        assert world.offsets == [1]

    with_link(test)


def test_correction_moves_the_subscription_and_reading_continues() -> None:
    async def test(world: World) -> None:
        reading = world.subscribe(5)
        await settle()
        world.streams[0].answer(1, 40, count=0, code=ResponseCode.PULL_OFFSET_MOVED)
        world.streams[0].answer(1, 41)
        await settle()
        assert world.moves == [40]
        assert world.offsets == [41]
        assert reading.next_offset == 41
        assert len(world.streams[0].subscribes) == 1

    with_link(test)


def test_refused_subscription_is_retried_with_growing_pauses() -> None:
    async def test(world: World) -> None:
        world.subscribe(5)
        await settle()
        (stream,) = world.streams
        for attempt in range(1, 5):
            stream.answer(attempt, 0, count=0, code=ResponseCode.NO_PERMISSION)
            await settle(11)
            assert stream.subscribes[-1] == (attempt + 1, 5, 100)
        assert world.offsets == world.moves == []

    with_link(test)


@pytest.mark.parametrize("code", [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER])
def test_subscription_of_a_deleted_queue_ends(code: int) -> None:
    async def test(world: World) -> None:
        world.subscribe(5)
        await settle()
        (stream,) = world.streams
        stream.answer(1, 0, count=0, code=code)
        stream.answer(1, 6)
        await settle(60)
        assert (world.gone, world.offsets) == ([code], [])
        assert len(stream.subscribes) == 1

    with_link(test)


def test_corrupt_reply_is_read_again() -> None:
    async def test(world: World) -> None:
        world.subscribe(5)
        await settle()
        (stream,) = world.streams
        world.is_corrupt = True
        stream.answer(1, 6)
        await settle()
        world.is_corrupt = False
        await settle(11)
        assert stream.written[-2].unsubscribe.handle == 1
        assert stream.subscribes[-1] == (2, 5, 100)

    with_link(test)


def test_closed_subscription_is_not_sent_again() -> None:
    async def test(world: World) -> None:
        reading = world.subscribe(5)
        await settle()
        (stream,) = world.streams
        stream.answer(1, 0, count=0, code=ResponseCode.NO_PERMISSION)
        await settle()
        reading.close()
        reading.close()
        await settle(60)
        assert len(stream.subscribes) == 1

    with_link(test)


def test_silent_subscription_is_sent_again() -> None:
    async def test(world: World) -> None:
        world.subscribe(5)
        await settle()
        (stream,) = world.streams
        await settle(STALE_AFTER_S - 10)
        world.link.renew_stale()
        await settle()
        assert len(stream.subscribes) == 1
        await settle(10)
        world.link.renew_stale()
        await settle()
        assert stream.subscribes[-1] == (2, 5, 100)
        stream.answer(1, 6)
        stream.answer(2, 6)
        await settle()
        assert world.offsets == [6]

    with_link(test)


def test_queue_that_may_not_be_read_is_reported_and_retried() -> None:
    async def test(world: World) -> None:
        world.subscribe()
        await settle()
        for refusals in range(1, 4):
            number = world.streams[0].subscribes[-1][0]
            world.streams[0].answer(number, 0, 0, code=ResponseCode.NO_PERMISSION)
            await settle()
            assert world.refusals == [ResponseCode.NO_PERMISSION] * refusals
            await settle(30)
            assert len(world.streams[0].subscribes) == refusals + 1
        number = world.streams[0].subscribes[-1][0]
        world.streams[0].answer(number, 5, 5)
        await settle()
        assert world.offsets == [5]

    with_link(test)


def test_stream_refused_for_want_of_permission_is_reported_for_each_queue() -> None:
    async def test(world: World) -> None:
        world.subscribe()
        world.subscribe(queue=QUEUE._replace(queue_id=1))
        await settle()
        world.streams[0].replies.put_nowait(
            refusal(ResponseCode.NO_PERMISSION, "the group may not consume")
        )
        await settle()
        assert world.refusals == [ResponseCode.NO_PERMISSION] * 2
        await settle(30)
        world.streams[1].replies.put_nowait(refusal(ResponseCode.FLOW_CONTROL, "busy"))
        await settle()
        assert len(world.refusals) == 2

    with_link(test)


def test_refusal_of_a_slave_is_not_reported_while_its_master_serves() -> None:
    async def test(world: World) -> None:
        world.subscribe()
        world.subscribe(queue=QUEUE._replace(queue_id=1))
        await settle()
        world.is_read_elsewhere = True
        error = refusal(ResponseCode.NO_PERMISSION, "group g may not consume")
        world.streams[0].replies.put_nowait(error)
        await settle()
        assert world.refusals == []

    with_link(test)


def test_condition_refused_by_a_broker_is_reported_and_retried() -> None:
    async def test(world: World) -> None:
        world.subscribe(condition="a = 1")
        await settle()
        world.streams[0].answer(1, 0, 0, code=ResponseCode.SYSTEM_ERROR)
        await settle()
        assert world.refusals == [ResponseCode.SYSTEM_ERROR]
        await settle(30)
        assert len(world.streams[0].subscribes) == 2
        world.subscribe(queue=QUEUE._replace(queue_id=1))
        await settle()
        world.streams[0].answer(3, 0, 0, code=ResponseCode.SYSTEM_ERROR)
        await settle()
        assert len(world.refusals) == 1

    with_link(test)


def test_offset_is_chosen_until_a_broker_has_taken_it_and_has_its_epoch_from_then_on() -> None:
    def told(world: World) -> list[tuple[int, bool, int]]:
        return [
            (sent.offset, sent.offset_is_chosen, sent.offset_epoch)
            for stream in world.streams
            for one in stream.written
            if (sent := one.subscribe).handle
        ]

    async def test(world: World) -> None:
        pulled = world.subscribe(70)
        await settle()
        world.streams[0].cancel()
        await settle(10)
        assert told(world) == [(70, True, 7)] * 2, "nobody has taken it yet"
        world.identity = Identity("c", "b", 0, 9)
        world.streams[1].answer(pulled.number, 70, 0)
        await settle()
        world.streams[1].cancel()
        await settle(10)
        assert told(world)[2:] == [(70, False, 7)], "the log may have ended earlier since"

    with_link(test)


def test_refusal_that_does_not_heal_by_itself_is_reported_with_each_attempt() -> None:
    async def test(world: World) -> None:
        world.subscribe()
        for stream, code in enumerate(
            [
                ResponseCode.INVALID_PARAMETER,
                ResponseCode.SYSTEM_BUSY,
                ResponseCode.SERVICE_NOT_AVAILABLE,
                ResponseCode.ILLEGAL_OPERATION,
            ]
        ):
            await settle(30)
            world.streams[stream].replies.put_nowait(refusal(code, "no"))
        await settle()
        assert world.refusals == [
            ResponseCode.INVALID_PARAMETER,
            ResponseCode.ILLEGAL_OPERATION,
        ]

    with_link(test)
