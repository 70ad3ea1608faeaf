"""Slaves whose own log cannot go on as it is, as whole brokers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting import contracts
from tests.support.brokers import CONFIG, SMALL_STORE, Client
from tests.support.duo import Duo, duo, follows, until
from tests.support.replicas import log_of
from tests.support.virtual_time import run_in_virtual_time, slow_jobs

HOUR_S = 3600


def run(scenario: Callable[[Duo], Awaitable[None]]) -> None:
    async def main() -> None:
        async with duo() as both:
            await scenario(both)

    run_in_virtual_time(main())


async def status(client: Client) -> replication.ReplicationStatusReply:
    request = replication.ReplicationStatusRequest()
    reply: replication.ReplicationStatusReply = await client.call(
        contracts.REPLICATION_STATUS, request
    )
    return reply


async def have_the_same(both: Duo, start: int = 0, number: int = 1) -> None:
    master, slave = await status(await both.client(0)), await status(await both.client(number))
    assert master.log_end == slave.log_end > master.log_start
    assert slave.log_start == start
    length = slave.log_end - start
    files = (both.files[0], both.files[number])
    ours, theirs = (log_of(each, 1 << 40, CONFIG.data) for each in files)
    assert ours[start - master.log_start :][:length] == theirs[:length]


def test_an_empty_slave_takes_the_length_of_its_masters_files() -> None:
    async def scenario(both: Duo) -> None:
        other = replace(SMALL_STORE, commit_log_file_bytes=1 << 20)
        async with both.member(0):
            master = await both.client(0)
            await master.put_topic("T", 1)
            for number in range(50):
                await master.send("T", bytes(100 * number))
            async with both.member(1, store_config=other):
                await until(lambda: follows_at(both))
                await master.send("T", b"more")
                await have_the_same(both)

    run(scenario)


async def follows_at(both: Duo, number: int = 1) -> bool:
    return await follows(await both.client(number))


def test_several_slaves_have_one_log_and_come_and_go_as_they_like() -> None:
    async def scenario(both: Duo) -> None:
        async with both.member(0), both.member(1), both.member(2):
            master = await both.client(0)
            await until(lambda: follows_at(both))
            await master.put_topic("T", 1)
            await master.send("T", b"early")
            async with both.member(3):
                await until(lambda: follows_at(both, 3))
                for number in range(100):
                    reply = await master.send("T", bytes(20 * number))
                    assert reply.status.code == 0
            both.network.cut("a0", "a2")
            await master.send("T", b"late")
            await until(lambda: follows_at(both, 1))
            await until(lambda: follows_at(both, 2))
            await master.send("T", b"last")
            await asyncio.sleep(1)
            for number in (1, 2):
                await have_the_same(both, number=number)
            async with both.member(3):
                await until(lambda: follows_at(both, 3))
                await have_the_same(both, number=3)
            assert len((await status(master)).followers) == 2

    run(scenario)


def test_a_slave_begins_where_the_masters_log_begins_by_now() -> None:
    async def scenario(both: Duo) -> None:
        config = replace(SMALL_STORE, commit_log_file_bytes=64 << 10, file_reserved_hours=1)
        async with both.member(0, store_config=config):
            master = await both.client(0)
            await master.put_topic("T", 1)
            async with both.member(1, store_config=config):
                await until(lambda: follows_at(both))
                await master.send("T", b"old")
            for _ in range(40):
                await master.send("T", bytes(8000))
            with slow_jobs():
                await asyncio.sleep(1.1 * HOUR_S)
            for _ in range(10):
                await master.send("T", bytes(8000))
            await asyncio.sleep(2)
            reply = await master.call(contracts.CLEAN_STORE, admin.CleanStoreRequest())
            assert reply.files_deleted >= 2
            start = (await status(master)).log_start
            assert start > 0
            async with both.member(1, store_config=config):
                await until(lambda: follows_at(both))
                await master.send("T", b"more")
                await have_the_same(both, start)

    run(scenario)
