"""A broker with more sends than its disk takes: bounded bytes, definite refusals, it lives."""

import asyncio
from typing import Any

import pytest

from ternmq_model.response_code import ResponseCode as Code
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, Sender, bodies, serving

MIB = 1 << 20


def settings(total_bytes: int, stream_bytes: int = MIB, **more: Any) -> dict[str, Any]:
    return {
        "flush_mode": FlushMode.SYNC,
        "unanswered_max_bytes": total_bytes,
        "stream_unanswered_max_bytes": stream_bytes,
        **more,
    }


async def fill(sender: Sender, mib: int) -> None:
    for _ in range(mib):
        await sender.write(sender.record("A", bytes(MIB)))


@pytest.mark.parametrize("unread_max_ms", [200, 900])
def test_stream_beyond_brokers_byte_limit_is_left_unread_then_busy(
    unread_max_ms: int,
) -> None:
    async def main() -> None:
        limits = settings(MIB, unread_max_ms=unread_max_ms)
        async with serving(topics={"A": 1}, **limits) as (around, client):
            around.sync_s = 2.0
            loop = asyncio.get_running_loop()
            greedy, other = await client.open_sender(), await client.open_sender()
            await fill(greedy, 1)
            await asyncio.sleep(0.05)
            began_s = loop.time()
            # The batch on which a stream waits may be read before: the next one finds no room.
            refused = await other.send(other.record("A", b"refused"))
            refused_s = loop.time() - began_s
            assert refused.status.code == Code.SYSTEM_BUSY
            assert refused_s <= unread_max_ms / 1000 + 0.05
            again_s = loop.time()
            assert (await other.send(other.record("A"))).status.code == Code.SYSTEM_BUSY
            assert loop.time() - again_s == pytest.approx(unread_max_ms / 1000, abs=0.05)
            assert (await greedy.read()).status.code == Code.SUCCESS
            around.sync_s = 0.0
            assert (await other.send(other.record("A", b"taken"))).status.code == Code.SUCCESS
            assert bodies(await client.pull("A", offset=1)) == [b"taken"]

    run_in_virtual_time(main())


def test_space_freed_in_time_is_used() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, **settings(MIB)) as (around, client):
            around.sync_s = 0.15
            greedy, other = await client.open_sender(), await client.open_sender()
            await fill(greedy, 1)
            await asyncio.sleep(0.05)
            # What a stream is just being read for comes in; the stream is not read again so soon.
            assert (await other.send(other.record("A"))).status.code == Code.SYSTEM_BUSY
            assert (await other.send(other.record("A"))).status.code == Code.SUCCESS
            assert (await greedy.read()).status.code == Code.SUCCESS

    run_in_virtual_time(main())


def test_stream_beyond_its_share_does_not_delay_others() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, **settings(64 * MIB)) as (around, client):
            around.sync_s = 1.0
            loop = asyncio.get_running_loop()
            greedy, other = await client.open_sender(), await client.open_sender()
            async with OwnedTasks() as tasks:
                tasks.spawn(fill(greedy, 4), "greedy")
                await asyncio.sleep(0.05)
                began_s = loop.time()
                assert (await other.send(other.record("A"))).status.code == Code.SUCCESS
                assert loop.time() - began_s <= 2.1  # one sync under way, and one of its own
                codes = [(await greedy.read()).status.code for _ in range(4)]
                assert codes[0] == Code.SUCCESS

    run_in_virtual_time(main())


def test_refused_batches_are_never_stored_and_accepted_ones_once() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, **settings(2 * MIB)) as (around, client):
            around.sync_s = 0.5

            async def send(name: int, counts: dict[bytes, int]) -> None:
                sender = await client.open_sender()
                for number in range(6):
                    body = b"%d-%d-" % (name, number) + bytes(200 << 10)
                    reply = await sender.send(sender.record("A", body))
                    counts[body[:8]] = reply.status.code

            counts: dict[bytes, int] = {}
            async with asyncio.TaskGroup() as group:
                for name in range(16):
                    group.create_task(send(name, counts))
            around.sync_s = 0.0
            await asyncio.sleep(1)
            found = await everything(client)
            taken = {body for body, code in counts.items() if code == Code.SUCCESS}
            assert set(counts.values()) == {Code.SUCCESS, Code.SYSTEM_BUSY}
            assert sorted(found) == sorted(taken)

    run_in_virtual_time(main())


async def everything(client: Client) -> list[bytes]:
    found: list[bytes] = []
    while True:
        reply = await client.pull("A", offset=len(found))
        if not reply.records:
            return found
        found += [body[:8] for body in bodies(reply)]
