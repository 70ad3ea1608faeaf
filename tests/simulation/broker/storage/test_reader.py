import asyncio
import errno
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from ternmq_model.errors import RefusedError
from ternmq_model.message_id import offset_message_id
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, World, bodies, serving, world

READ_S = 3.0
NO_MEMORY: dict[str, Any] = {"memory_bytes": 1}
"""With which every message lies too far back to be in memory."""


def texts(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


@asynccontextmanager
async def slow_disk(
    count: int = 20, *, topics: tuple[str, ...] = ("A",), **settings: Any
) -> AsyncGenerator[tuple[World, Client]]:
    """Give a broker with messages in each topic that takes seconds to read any of them."""
    async with serving(topics=dict.fromkeys(topics, 1), **{**NO_MEMORY, **settings}) as (
        around,
        client,
    ):
        sender = await client.open_sender()
        for topic in topics:
            await sender.send(*(sender.record(topic, text) for text in texts(0, count)))
        await asyncio.sleep(5)
        around.sync_s = READ_S
        yield around, client


def now() -> float:
    return asyncio.get_running_loop().time()


def test_pull_from_disk_has_its_own_limits() -> None:
    async def main() -> None:
        async with slow_disk(40) as (_, client):
            reply = await client.pull("A")
            assert bodies(reply) == texts(0, 8)
            assert (reply.next_offset, reply.max_offset) == (8, 40)
            assert bodies(await client.pull("A", messages_max=3)) == texts(0, 3)
        async with serving(topics={"A": 1}) as (_, client):
            sender = await client.open_sender()
            await sender.send(*(sender.record("A", text) for text in texts(0, 40)))
            assert bodies(await client.pull("A")) == texts(0, 32)

    run_in_virtual_time(main())


def test_lagging_reader_delays_no_sender() -> None:
    async def main() -> None:
        async with slow_disk(600) as (_, client):
            puller, sender = await client.open_puller(), await client.open_sender()
            await sender.send(sender.record("B"))  # makes the topic
            await puller.subscribe(1, "A", credit_messages=600)
            got: list[bytes] = []
            slowest = 0.0
            while len(got) < 600:
                reading = asyncio.ensure_future(puller.read_one())
                for _ in range(5):
                    begin = now()
                    await sender.send(sender.record("B"))
                    slowest = max(slowest, now() - begin)
                    await asyncio.sleep(0.1)
                got += bodies(await reading)
            assert got == texts(0, 600)
            assert slowest < 0.1 < READ_S

    run_in_virtual_time(main())


def test_messages_in_memory_do_not_wait_for_the_disk() -> None:
    async def main() -> None:
        async with slow_disk(3, topics=("A", "B")) as (_, client):
            puller = await client.open_puller()
            begin = now()
            await puller.subscribe(1, "A")
            await puller.subscribe(2, "B")
            got = [await puller.read_one(), await puller.read_one()]
            assert [(each.handle, bodies(each)) for each in got] == [
                (1, texts(0, 3)),
                (2, texts(0, 3)),
            ]
            assert now() - begin == pytest.approx(2 * READ_S, abs=0.1)

    run_in_virtual_time(main())


def test_handle_closed_during_its_read_gets_no_reply() -> None:
    async def main() -> None:
        async with slow_disk(3, topics=("A", "B")) as (_, client):
            puller = await client.open_puller()
            await puller.subscribe(1, "A")
            await asyncio.sleep(READ_S / 2)
            await puller.unsubscribe(1)
            await puller.subscribe(1, "B")
            got = await puller.read_one()
            assert (got.handle, bodies(got), got.next_offset) == (1, texts(0, 3), 3)
            sender = await client.open_sender()
            await sender.send(sender.record("B", b"3"))
            assert bodies(await puller.read_one()) == [b"3"]

    run_in_virtual_time(main())


def test_topic_deleted_during_a_read_ends_its_handle_once() -> None:
    async def main() -> None:
        async with slow_disk(3) as (_, client):
            puller = await client.open_puller()
            await puller.subscribe(1, "A")
            await asyncio.sleep(READ_S / 2)
            await client.call(service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic="A"))
            ended = await puller.read_one()
            assert (ended.handle, ended.status.code) == (1, Code.TOPIC_NOT_EXIST)
            await client.put_topic("A", 1)
            sender = await client.open_sender()
            await sender.send(sender.record("A", b"anew"))
            await puller.subscribe(2, "A")
            again = await puller.read_one()
            assert (again.handle, bodies(again), again.next_offset) == (2, [b"anew"], 1)

    run_in_virtual_time(main())


def test_credit_given_during_a_read_repeats_no_message() -> None:
    async def main() -> None:
        async with slow_disk(20) as (_, client):
            puller = await client.open_puller()
            await puller.subscribe(1, "A", credit_messages=5)
            got: list[bytes] = []
            while len(got) < 20:
                await asyncio.sleep(READ_S / 2)
                await puller.credit(1, count=2)
                await puller.credit(1, count=3)
                got += bodies(await puller.read_one())
            assert got == texts(0, 20)

    run_in_virtual_time(main())


def test_message_arriving_during_a_disk_read_is_not_waited_for() -> None:
    async def main() -> None:
        async with slow_disk(3) as (_, client):
            puller, sender = await client.open_puller(), await client.open_sender()
            await puller.subscribe(1, "A")
            await asyncio.sleep(READ_S / 2)
            await sender.send(sender.record("A", b"3"))
            assert bodies(await puller.read_one()) == texts(0, 3)
            assert bodies(await puller.read_one()) == [b"3"]

    run_in_virtual_time(main())


def test_message_is_viewed_from_the_disk() -> None:
    async def main() -> None:
        async with slow_disk(3) as (_, client):
            reply = await client.pull("A")
            size = int(np.frombuffer(reply.record_sizes, dtype="<i4")[0])
            store_host = reply.records[size + 64 : size + 72]
            message_id = offset_message_id(store_host, PhysicalOffset(size))
            begin = now()
            viewed = await client.call(
                service_methods.VIEW_MESSAGE,
                messages.ViewMessageRequest(offset_message_id=message_id),
            )
            assert viewed.record == reply.records[size : 2 * size]
            assert now() - begin >= READ_S

    run_in_virtual_time(main())


def test_unreadable_disk_is_reported_to_readers() -> None:
    async def main() -> None:
        async with slow_disk(3) as (around, client):
            around.files.read_error = OSError(errno.EIO, "bad sector")
            puller = await client.open_puller()
            await puller.subscribe(1, "A")
            ended = await puller.read_one()
            assert (ended.handle, ended.status.code) == (1, Code.SYSTEM_ERROR)
            with pytest.raises(RefusedError, match="bad sector"):
                await client.pull("A")
            around.files.read_error = None
            assert bodies(await client.pull("A")) == texts(0, 3)

    run_in_virtual_time(main())


def test_messages_older_than_a_restart_are_read_from_disk_once() -> None:
    async def main() -> None:
        async with world() as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                sender = await client.open_sender()
                await sender.send(*(sender.record("A", text) for text in texts(0, 100)))
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                sender = await client.open_sender()
                await sender.send(sender.record("A", b"100"))

                async def from_disk() -> int:
                    told = await client.call(
                        service_methods.DESCRIBE_STORE, admin.DescribeStoreRequest()
                    )
                    return int(told.gets_from_disk)

                assert bodies(await client.pull("A", 100)) == [b"100"]
                assert await from_disk() == 0
                for _ in range(2):
                    puller = await client.open_puller()
                    await puller.subscribe(1, "A")
                    got: list[bytes] = []
                    while len(got) < 101:
                        got += [body for each in await puller.read() for body in bodies(each)]
                    assert got == texts(0, 101)
                    assert await from_disk() == 1
                await client.connection.close()

    run_in_virtual_time(main())
