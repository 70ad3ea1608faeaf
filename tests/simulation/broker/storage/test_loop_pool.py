"""A broker whose records wait in memory until another thread has written them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from ternmq_model.errors import ConfigError
from ternmq_model.response_code import ResponseCode as Code
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import SMALL_STORE, Client, World, bodies, offsets_of, world

POOLED = replace(SMALL_STORE, transient_pool_enabled=True, transient_pool_bytes=100_000)


@asynccontextmanager
async def serving(config: StoreConfig = POOLED) -> AsyncGenerator[tuple[World, Client]]:
    async with world(flush_mode=FlushMode.ASYNC) as around:
        around.store_config = config
        async with around.broker() as broker:
            client = await around.connect(broker)
            await client.put_topic("A", 1)
            yield around, client
            await client.connection.close()


def test_send_is_answered_and_readable_once_it_is_in_the_log() -> None:
    async def main() -> None:
        async with serving() as (around, client):
            around.sync_s = 0.5
            senders = [await client.open_sender() for _ in range(3)]
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            pull = asyncio.ensure_future(client.pull("A", wait_ms=5_000))
            replies = await asyncio.gather(*(each.send(each.record("A")) for each in senders))
            assert 0.5 <= loop.time() - began_s < 1.1
            assert sorted(offsets_of(reply.queue_offsets)[0] for reply in replies) == [0, 1, 2]
            assert bodies(await pull)
            around.sync_s = 0.0
        async with around.broker() as broker:
            client = await around.connect(broker)
            assert len(bodies(await client.pull("A"))) == 3
            await client.connection.close()

    run_in_virtual_time(main())


def test_send_without_pool_space_waits_for_it() -> None:
    async def main() -> None:
        async with serving() as (around, client):
            around.sync_s = 0.2
            sender = await client.open_sender()
            for _ in range(6):
                await sender.write(sender.record("A", bytes(40_000)))
            replies = [await sender.read() for _ in range(6)]
            assert [reply.status.code for reply in replies] == [Code.SUCCESS] * 6
            assert [offsets_of(reply.queue_offsets)[0] for reply in replies] == list(range(6))
            around.sync_s = 0.0

    run_in_virtual_time(main())


def test_send_without_pool_space_is_refused_when_configured() -> None:
    async def main() -> None:
        async with serving(replace(POOLED, transient_pool_fails_fast=True)) as (around, client):
            around.sync_s = 0.2
            sender = await client.open_sender()
            for _ in range(4):
                await sender.write(sender.record("A", bytes(40_000)))
            codes = [(await sender.read()).status.code for _ in range(4)]
            assert codes == [Code.SUCCESS, Code.SUCCESS, Code.SYSTEM_BUSY, Code.SYSTEM_BUSY]
            around.sync_s = 0.0
            reply = await sender.send(sender.record("A", bytes(40_000)))
            assert reply.status.code == Code.SUCCESS

    run_in_virtual_time(main())


def test_pool_with_a_synchronous_flush_is_refused() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            around.store_config = POOLED
            with pytest.raises(ConfigError, match="needs broker"):
                async with around.broker():
                    pass

    run_in_virtual_time(main())
