"""Held pulls and the messages they wait for, over a whole broker in virtual time."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_runtime.service import OwnedTasks
from ternmq_store.read.store_reads import StoreReads
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, bodies, serving

X = messages.Subscription(expression="x")


async def fill(client: Client, tag: str, body: bytes = b"body") -> None:
    await client.send("A", body, properties={"TAGS": tag})


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count the reads of queues."""
    count = 0
    plan = StoreReads.plan_read_within

    def counted(*args: Any, **fields: Any) -> Any:
        nonlocal count
        count += 1
        return plan(*args, **fields)

    monkeypatch.setattr(StoreReads, "plan_read_within", counted)
    return lambda: count


def test_filtering_stream_of_a_busy_queue_reads_when_a_match_arrives(
    reads: Callable[[], int],
) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            loop = asyncio.get_running_loop()
            puller = await client.open_puller()
            await puller.subscribe(1, "A", subscription=X)
            await asyncio.sleep(5.5)  # between two looks
            before = reads()
            for _ in range(100):
                await fill(client, "y")
            await asyncio.sleep(1)
            assert reads() == before
            await fill(client, "x", b"mine")
            began_s = loop.time()
            pulled = await puller.read_one()
            assert bodies(pulled) == [b"mine"]
            assert pulled.next_offset == 101
            assert loop.time() - began_s < 0.1
            assert reads() == before + 1

    run_in_virtual_time(main())


def test_filtering_stream_gets_its_position_every_5_s() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            loop = asyncio.get_running_loop()
            puller = await client.open_puller()
            await puller.subscribe(1, "A", subscription=X)
            for number in (1, 2, 3):
                await asyncio.sleep(1)
                await fill(client, "y")
                began_s = loop.time()
                pulled = await puller.read_one()
                assert (pulled.next_offset, pulled.records) == (number, b"")
                assert 3 < loop.time() - began_s <= 5

    run_in_virtual_time(main())


def test_filtering_pull_waits_for_a_match_and_gets_its_position_within_5_s(
    reads: Callable[[], int],
) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client), OwnedTasks() as tasks:
            await asyncio.sleep(5.5)
            waiting = tasks.spawn(client.pull("A", wait_ms=20_000, subscription=X), "pull")
            await asyncio.sleep(1)
            before = reads()
            for _ in range(50):
                await fill(client, "y")
            assert reads() == before
            reply = await waiting
            assert (reply.status.code, reply.next_offset) == (Code.PULL_RETRY_IMMEDIATELY, 50)
            assert reads() == before + 1

    run_in_virtual_time(main())


def test_messages_are_not_missed_between_a_read_and_the_next_wait() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client), OwnedTasks() as tasks:

            async def produce() -> None:
                for number in range(300):
                    await fill(client, "x" if number % 7 == 0 else "y", b"%d" % number)

            loop = asyncio.get_running_loop()
            puller = await client.open_puller()
            await puller.subscribe(1, "A", subscription=X, credit_messages=1000)
            tasks.spawn(produce(), "produce")
            expected = [b"%d" % number for number in range(0, 300, 7)]
            got: list[bytes] = []
            began_s = loop.time()
            while len(got) < len(expected):
                for pulled in await puller.read():
                    got += bodies(pulled)
            assert got == expected
            assert loop.time() - began_s < 5  # no look was needed

    run_in_virtual_time(main())


def test_short_polling_checks_once_a_second() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, long_polling_enabled=False) as (_, client):
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            reply = await client.pull("A", wait_ms=20_000)
            assert reply.status.code == Code.PULL_NOT_FOUND
            assert 1 <= loop.time() - began_s < 1.1
            puller = await client.open_puller()
            await puller.subscribe(1, "A")
            await asyncio.sleep(0.25)
            await fill(client, "y", b"1")
            sent_s = loop.time()
            assert bodies(await puller.read_one()) == [b"1"]
            assert 0.2 < loop.time() - sent_s < 1.1

    run_in_virtual_time(main())
