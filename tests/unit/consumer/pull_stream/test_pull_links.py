"""From which member of a broker name a queue is read."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, cast

from ternmq_consumer.pull_stream.flow_control import FlowControlWindow
from ternmq_consumer.pull_stream.pull_links import AVOID_S, PullLinks
from ternmq_consumer.pull_stream.pulled_queue import PulledQueue
from ternmq_model.errors import ConnectionLost, RefusedError, Unreachable
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.subscription import parse_subscription
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Connection, Identity
from ternmq_runtime.service import OwnedTasks
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time


class Stream:
    """One stream of one member."""

    def __init__(self) -> None:
        self.written: list[messages.PullStreamRequest] = []
        self.replies: asyncio.Queue[messages.PullStreamReply | Exception] = asyncio.Queue()

    async def read(self) -> messages.PullStreamReply:
        reply = await self.replies.get()
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def write(self, message: messages.PullStreamRequest, /) -> None:
        self.written.append(message)

    async def finish(self) -> None:
        raise AssertionError("is not called")

    def cancel(self) -> None:
        pass

    def answer(self, next_offset: int, *, suggested: int = 0, code: int = 0) -> None:
        """Answer the newest subscription with one record of 10 bytes."""
        pulled = messages.PulledRecords(
            handle=self.subscribes[-1][0],
            status=common.Status(code=code),
            next_offset=next_offset,
            records=b"." * 10,
            record_sizes=(10).to_bytes(4, "little"),
            suggested_broker_id=suggested,
        )
        self.replies.put_nowait(messages.PullStreamReply(pulled=[pulled]))

    @property
    def subscribes(self) -> list[tuple[int, int]]:
        return [
            (one.subscribe.handle, one.subscribe.offset)
            for one in self.written
            if one.HasField("subscribe")
        ]

    @property
    def unsubscribed(self) -> int:
        return sum(one.HasField("unsubscribe") for one in self.written)


class Member:
    """One process of a broker name."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.is_up = True
        self.identity = Identity("c", "b", 0, 7)

    def open(self, rpc: object) -> Stream:
        self.streams.append(Stream())
        return self.streams[-1]


class World:
    """A master, a slave with id 1, and one consumer's links. Is the brokers and the receiver."""

    def __init__(self, tasks: OwnedTasks) -> None:
        self.processes = {0: Member(), 1: Member()}
        self.present = 0
        self.offsets: list[int] = []
        self.refusals: list[int] = []
        self.gone = 0
        env = Environment(
            clock=VirtualClock(),
            network=cast("Any", None),
            random=Random(1),
            blocking=InlineBlocking(),
        )
        self.links = PullLinks(env, self, tasks, client_id="c", group="g")

    async def broker(self, broker_name: str, broker_id: int = 0) -> Connection:
        member = self.processes[broker_id]
        if not member.is_up:
            raise Unreachable(f"{broker_name} {broker_id} is down")
        return cast("Connection", member)

    def forget(self, broker_name: str, connection: Connection, broker_id: int = 0) -> None:
        pass

    def members(self, broker_name: str) -> list[int]:
        return sorted(self.processes)

    def member_to_ask(self, broker_name: str) -> int:
        return self.present

    def epoch(self, broker_name: str) -> int:
        return 3

    def look_for(self, broker_name: str) -> None:
        """Learn nothing new."""

    def on_reader_moved(self, listener: Callable[[str, int], None]) -> None:
        self.listener = listener

    def move(self, broker_id: int) -> None:
        """Let another member serve readers."""
        self.present = broker_id
        self.listener("b", broker_id)

    def on_records(self, pulled: messages.PulledRecords) -> int:
        self.offsets.append(pulled.next_offset)
        return len(pulled.records)

    def on_moved(self, offset: QueueOffset) -> None:
        raise AssertionError("nothing is corrected")

    def on_refused(self, error: RefusedError) -> None:
        self.refusals.append(error.code)

    def on_gone(self, error: RefusedError) -> None:
        self.gone += 1

    def subscribe(self) -> PulledQueue:
        subscription = parse_subscription("t", "*")
        queue = MessageQueue("t", "b", 0)
        return self.links.subscribe(
            queue, subscription, QueueOffset(0), FlowControlWindow(100, 10_000), self
        )

    def stream(self, broker_id: int) -> Stream:
        return self.processes[broker_id].streams[-1]

    async def at_slave(self) -> None:
        """Have the master send the reader to its slave."""
        self.subscribe()
        await settle()
        self.stream(0).answer(5, suggested=1)
        await settle()


def with_links(test: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        async with OwnedTasks() as tasks:
            await test(World(tasks))

    run_in_virtual_time(main())


async def settle(seconds: float = 0.01) -> None:
    await asyncio.sleep(seconds)


def test_queue_is_read_from_the_slave_its_master_names_and_back() -> None:
    async def test(world: World) -> None:
        await world.at_slave()
        assert world.stream(0).unsubscribed == 1
        assert [offset for _, offset in world.stream(1).subscribes] == [5]
        world.stream(1).answer(9, suggested=1)
        await settle()
        assert len(world.stream(1).subscribes) == 1
        world.stream(1).answer(12, suggested=0)
        await settle()
        assert world.stream(1).unsubscribed == 1
        assert [offset for _, offset in world.stream(0).subscribes] == [0, 12]
        assert world.offsets == [5, 9, 12]

    with_links(test)


def test_slave_missing_in_the_route_is_not_asked() -> None:
    async def test(world: World) -> None:
        del world.processes[1]
        await world.at_slave()
        world.stream(0).answer(9, suggested=1)
        await settle()
        assert world.offsets == [5, 9]
        assert len(world.stream(0).subscribes) == 1

    with_links(test)


def test_departed_slave_returns_its_queues_and_is_avoided_for_a_while() -> None:
    async def test(world: World) -> None:
        await world.at_slave()
        world.stream(1).answer(9, suggested=1)
        await settle()
        world.processes[1].is_up = False
        world.stream(1).replies.put_nowait(ConnectionLost("cut"))
        await settle()
        assert [offset for _, offset in world.stream(0).subscribes] == [0, 9]
        world.stream(0).answer(10, suggested=1)
        await settle()
        assert len(world.stream(0).subscribes) == 2
        await settle(AVOID_S)
        world.processes[1].is_up = True
        world.stream(0).answer(11, suggested=1)
        await settle()
        assert [offset for _, offset in world.stream(1).subscribes] == [11]
        assert world.offsets == [5, 9, 10, 11]

    with_links(test)


def test_unreachable_slave_changes_nothing() -> None:
    async def test(world: World) -> None:
        world.processes[1].is_up = False
        await world.at_slave()
        assert [offset for _, offset in world.stream(0).subscribes] == [0, 5]
        assert not world.processes[1].streams

    with_links(test)


def test_queue_refused_or_corrected_by_a_slave_is_read_from_the_master() -> None:
    async def test(world: World) -> None:
        for code in (
            ResponseCode.TOPIC_NOT_EXIST,
            ResponseCode.PULL_OFFSET_MOVED,
            ResponseCode.SYSTEM_ERROR,
        ):
            await settle(AVOID_S)
            await world.at_slave()
            world.stream(1).answer(0, code=code)
            await settle()
            assert world.stream(0).subscribes[-1][1] == 5
        assert not world.gone

    with_links(test)


def test_queue_closed_at_a_slave_is_not_read() -> None:
    async def test(world: World) -> None:
        reading = world.subscribe()
        await settle()
        world.stream(0).answer(5, suggested=1)
        await settle()
        reading.close()
        await settle()
        assert world.stream(1).unsubscribed == 1
        world.stream(1).replies.put_nowait(ConnectionLost("cut"))
        await settle(1)
        assert len(world.stream(0).subscribes) == 1

    with_links(test)


def test_readers_switch_with_all_their_queues_when_told() -> None:
    async def test(world: World) -> None:
        world.subscribe()
        await settle()
        world.stream(0).answer(5)
        await settle()
        world.move(1)
        await settle()
        assert world.stream(0).unsubscribed == 1
        assert [offset for _, offset in world.stream(1).subscribes] == [5]
        world.subscribe()
        await settle()
        assert [offset for _, offset in world.stream(1).subscribes] == [5, 0]
        world.move(0)
        await settle()
        assert world.stream(1).unsubscribed == 2
        assert [offset for _, offset in world.stream(0).subscribes] == [0, 5, 0]

    with_links(test)


def test_stand_in_slave_sends_no_readers_to_the_absent_master() -> None:
    async def test(world: World) -> None:
        world.subscribe()
        world.move(1)
        await settle()
        world.stream(1).answer(5, suggested=0)
        await settle()
        assert world.stream(1).unsubscribed == 0
        assert world.offsets == [5]

    with_links(test)


def test_messages_a_stand_in_slave_lacks_are_waited_for() -> None:
    async def test(world: World) -> None:
        world.subscribe()
        world.move(1)
        await settle()
        world.stream(1).answer(5)
        await settle()
        for code in (
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.TOPIC_NOT_EXIST,
            ResponseCode.SERVICE_NOT_AVAILABLE,
        ):
            world.stream(1).answer(0, code=code)
            await settle(11)
        assert [offset for _, offset in world.stream(1).subscribes] == [0, 5, 5, 5]
        assert not world.gone
        world.stream(1).answer(9)
        await settle()
        assert world.offsets == [5, 9]

    with_links(test)


def test_queue_is_read_from_another_slave_when_the_named_one_is_absent() -> None:
    async def test(world: World) -> None:
        world.processes[3] = world.processes.pop(1)
        world.subscribe()
        await settle()
        world.stream(0).answer(5, suggested=1)
        await settle()
        assert [offset for _, offset in world.stream(3).subscribes] == [5]
        world.stream(3).answer(9, suggested=1)
        await settle()
        assert len(world.stream(3).subscribes) == 1

    with_links(test)


def test_readers_send_the_epoch_of_their_position() -> None:
    async def test(world: World) -> None:
        world.subscribe()
        await settle()
        world.stream(0).answer(5)
        await settle()
        world.processes[1].identity = Identity("c", "b", 1, 8)
        world.move(1)
        await settle()
        world.stream(1).answer(6)
        await settle()
        world.move(0)
        await settle()
        epochs = [
            one.subscribe.offset_epoch
            for broker_id in (0, 1)
            for one in world.stream(broker_id).written
            if one.HasField("subscribe")
        ]
        assert epochs == [3, 8, 7]

    with_links(test)
