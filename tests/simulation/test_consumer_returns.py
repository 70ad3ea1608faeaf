"""A group that goes away before it has finished anything misses nothing that comes meanwhile."""

import asyncio
import errno
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest

from ternmq_consumer.config import (
    ConsumeFrom,
    MessageModel,
    OffsetsKept,
    PullConsumerConfig,
    PushConsumerConfig,
)
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import TransportError
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.memory.memory_files import MemoryFile
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.history import id_of
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster
from tests.support.toy_cluster import ToyCluster

QUEUE = MessageQueue("orders", "a", 0)
HELD = "held"
MEMORY_BYTES = 64 << 10
"""A queue is young while its first message is in the newest 40 % of this."""

Cluster = SimulatedCluster | ToyCluster
Member = Callable[
    [Cluster, MessageQueue, set[str], ConsumeFrom], AbstractAsyncContextManager[object]
]


def address(cluster: Cluster) -> str:
    return cluster.nameserver if isinstance(cluster, ToyCluster) else NAMESERVER


def pushing(
    cluster: Cluster,
    queue: MessageQueue,
    heard: set[str],
    consume_from: ConsumeFrom,
    **settings: Any,
) -> AbstractAsyncContextManager[object]:
    """Return a push consumer whose first call ends when it is cancelled."""

    async def listen(message: StoredMessage) -> None:
        is_first = not heard
        heard.add(id_of(message.body))
        if is_first:
            await asyncio.Event().wait()

    return PushConsumer(
        "g",
        queue.topic,
        nameserver=address(cluster),
        listener=listen,
        config=PushConsumerConfig(consume_from=consume_from, close_wait_s=0.1, **settings),
        env=cluster.environment("member"),
    )


@asynccontextmanager
async def polling(
    cluster: Cluster,
    queue: MessageQueue,
    heard: set[str],
    consume_from: ConsumeFrom,
    *,
    assigns: bool,
) -> AsyncGenerator[None]:
    """Run a pull consumer that commits nothing by itself."""
    config = PullConsumerConfig(consume_from=consume_from, auto_commit=False)
    env = cluster.environment("member")
    consumer = PullConsumer("g", nameserver=address(cluster), config=config, env=env)
    async with consumer, asyncio.TaskGroup() as tasks:
        if assigns:
            consumer.assign([queue])
        else:
            await consumer.subscribe(queue.topic)

        async def poll() -> None:
            while True:
                with suppress(TransportError):
                    heard.update(id_of(each.body) for each in await consumer.poll())

        polls = tasks.create_task(poll())
        yield
        polls.cancel()


broadcasting = partial(
    pushing, message_model=MessageModel.BROADCASTING, offsets_kept=OffsetsKept.AT_BROKERS
)
subscribed = partial(polling, assigns=False)
assigned = partial(polling, assigns=True)


@pytest.mark.parametrize("power_is_lost", [False, True])
@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("member", [pushing, subscribed, assigned])
def test_group_that_finished_nothing_goes_on_where_it_began(
    member: Member, is_held: bool, power_is_lost: bool
) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(brokers=("a",), memory_bytes=MEMORY_BYTES) as cluster,
            cluster.producer() as producer,
        ):
            await cluster.put_topic(QUEUE.topic, 1)
            heard: set[str] = set()
            if is_held:
                await cluster.send(producer, QUEUE.topic, HELD)
            async with member(cluster, QUEUE, heard, ConsumeFrom.LAST_OFFSET):
                if is_held:
                    await until(lambda: HELD in heard)
                else:
                    await asyncio.sleep(3)
                if power_is_lost:
                    cluster.lose_power("a")
            if power_is_lost:
                await cluster.start("a")
            for number in range(100):
                await cluster.send(producer, QUEUE.topic, str(number), size=1000)
            again: set[str] = {"called before"}
            async with member(cluster, QUEUE, again, ConsumeFrom.LAST_OFFSET):
                await until(lambda: again >= {str(number) for number in range(100)})
                assert (HELD in again) is is_held

    run_in_virtual_time(main())


@pytest.mark.parametrize("member", [pushing, subscribed, assigned])
def test_queue_waits_until_its_start_is_committed(member: Member) -> None:
    async def main() -> None:
        async with ToyCluster(brokers=1, queues=1) as cluster:
            cluster.first.groups.commit_fault = ResponseCode.SYSTEM_ERROR
            cluster.fill(1)
            heard: set[str] = set()
            async with member(cluster, cluster.queues[0], heard, ConsumeFrom.FIRST_OFFSET):
                await asyncio.sleep(60)
                assert not heard
                cluster.first.groups.commit_fault = 0
                await until(lambda: bool(heard))

    run_in_virtual_time(main())


@pytest.mark.parametrize("member", [pushing, broadcasting, subscribed, assigned])
def test_queue_waits_until_its_start_is_on_disk(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full = False
    write = MemoryFile.write

    def write_if_room(file: MemoryFile, position: int, data: bytes | memoryview) -> None:
        if is_full and "consumerOffset" in file.path.name:
            raise OSError(errno.ENOSPC, "the disk is full")
        write(file, position, data)

    monkeypatch.setattr(MemoryFile, "write", write_if_room)

    async def main() -> None:
        nonlocal is_full
        async with (
            simulated_cluster(brokers=("a",), memory_bytes=MEMORY_BYTES) as cluster,
            cluster.producer() as producer,
        ):
            await cluster.put_topic(QUEUE.topic, 1)
            await cluster.send(producer, QUEUE.topic, HELD)
            await asyncio.sleep(20)
            is_full = True
            heard: set[str] = set()
            async with member(cluster, QUEUE, heard, ConsumeFrom.LAST_OFFSET):
                await asyncio.sleep(120)
                assert not heard
                is_full = False
                await until(lambda: HELD in heard)

    run_in_virtual_time(main())


@pytest.mark.parametrize("member", [pushing, broadcasting, subscribed])
def test_queue_added_under_a_member_loses_no_message(member: Member) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(brokers=("a",), memory_bytes=MEMORY_BYTES) as cluster,
            cluster.producer() as producer,
        ):
            await cluster.put_topic(QUEUE.topic, 1)
            heard: set[str] = {"called before"}
            async with member(cluster, QUEUE, heard, ConsumeFrom.LAST_OFFSET):
                await asyncio.sleep(40)
                await cluster.put_topic(QUEUE.topic, 4)
                for number in range(100):
                    await cluster.send(producer, QUEUE.topic, str(number), size=1000)
                    await asyncio.sleep(0.7)
                await until(lambda: heard >= {str(number) for number in range(100)})

    run_in_virtual_time(main())


@pytest.mark.parametrize("member", [pushing, broadcasting, subscribed])
def test_queue_out_of_reach_when_members_came_begins_where_they_came(member: Member) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(memory_bytes=MEMORY_BYTES) as cluster,
            cluster.producer() as producer,
        ):
            await cluster.put_topic(QUEUE.topic, 1)
            for number in range(100):
                await cluster.send(producer, QUEUE.topic, f"old {number}", size=1000)
            await cluster.stop("b")
            await asyncio.sleep(60)
            heard: set[str] = {"called before"}
            async with member(cluster, QUEUE, heard, ConsumeFrom.LAST_OFFSET):
                await asyncio.sleep(10)
                await cluster.start("b")
                for number in range(100):
                    await cluster.send(producer, QUEUE.topic, str(number), size=1000)
                    await asyncio.sleep(0.7)
                await until(lambda: heard >= {str(number) for number in range(100)})
                assert not any(name.startswith("old") for name in heard)

    run_in_virtual_time(main())
