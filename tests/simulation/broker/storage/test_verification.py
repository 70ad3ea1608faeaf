import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_store.disk.layout import file_name, queue_folder
from ternmq_store.read import cold_read, unit_search
from ternmq_testing.memory.memory_files import Bytes
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import SMALL_STORE, Client, World, bodies, serving, world

ROOT = Path("/broker")
COUNT = 40


def units_of(around: World) -> Bytes:
    return around.files.nodes[queue_folder(ROOT, "A", 0) / file_name(0)].data


async def send(client: Client, body_bytes: int = 0) -> None:
    sender = await client.open_sender()
    await sender.send(*(sender.record("A", body=b"b" * body_bytes) for _ in range(COUNT)))


async def commit(client: Client, group: str, offset: int) -> None:
    committed = groups.CommitOffsetsRequest(
        group=group, offsets=[groups.QueueOffset(topic="A", queue_id=0, offset=offset)]
    )
    await client.call(service_methods.COMMIT_OFFSETS, committed)


async def status(client: Client) -> admin.DescribeStoreReply:
    reply = await client.call(service_methods.DESCRIBE_STORE, admin.DescribeStoreRequest())
    assert isinstance(reply, admin.DescribeStoreReply)
    return reply


def test_verification_mends_units_and_lists_messages_that_groups_have_passed() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            await send(client)
            await commit(client, "behind", 7)
            await commit(client, "beyond", 8)
            await asyncio.sleep(1)
            units = units_of(around)
            before = units.tobytes()
            units[7 * 20 + 19] ^= 1
            units[30 * 20 + 11] ^= 1
            await asyncio.sleep(61)
            assert units.tobytes() == before
            told = await status(client)
            assert (told.wrong_units, told.mended_units) == (2, 2)
            assert told.verification.units_mended == 2
            assert told.verification.rounds == 1
            assert told.verification.round_ended_at_ms > 0
            assert told.verification.end_offset > 0
            [passed] = told.passed
            assert (passed.topic, passed.queue_id, passed.offset) == ("A", 0, 7)
            assert (passed.reason, list(passed.groups)) == ("unit's tag_code", ["beyond"])

    run_in_virtual_time(main())


def test_verification_shows_its_progress_and_a_broker_leaves_amid_a_round() -> None:
    async def main() -> None:
        slow = replace(SMALL_STORE, verify_rate_bytes=1000)
        async with world() as around:
            around.store_config = slow
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await send(client, 1000)
                await asyncio.sleep(70)
                first = (await status(client)).verification
                await asyncio.sleep(5)
                second = (await status(client)).verification
                assert 0 < first.offset < second.offset < second.end_offset
                assert 4_000 <= second.offset - first.offset <= 7_000
                assert (second.bytes_per_s, second.rounds) == (1000, 0)
                await client.connection.close()
                leaves_at_s = asyncio.get_running_loop().time()
            assert asyncio.get_running_loop().time() - leaves_at_s < 1

    run_in_virtual_time(main())


def test_verification_may_be_switched_off() -> None:
    async def main() -> None:
        async with world() as around:
            around.store_config = replace(SMALL_STORE, verify_rate_bytes=0)
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await send(client)
                await asyncio.sleep(1)
                units_of(around)[7 * 20 + 19] ^= 1
                await asyncio.sleep(200)
                told = await status(client)
                assert (told.mended_units, told.verification.rounds) == (0, 0)
                await client.connection.close()

    run_in_virtual_time(main())


def test_pull_waits_for_a_long_search_and_gets_every_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unit_search, "SEARCH_BYTES", 300)
    monkeypatch.setattr(cold_read, "_DENSE", 0)

    async def main() -> None:
        async with serving(topics={"A": 1, "B": 1}) as (around, client):
            await send(client)
            sender = await client.open_sender()
            await sender.send(*(sender.record("B") for _ in range(COUNT)))
            await sender.send(sender.record("A", body=b"last"))
            await asyncio.sleep(1)
            units_of(around)[COUNT * 20 : COUNT * 20 + 8] = 255
            reply = await client.pull("A", group="G", offset=COUNT)
            assert (bodies(reply), reply.next_offset) == ([b"last"], COUNT + 1)

    run_in_virtual_time(main())


def test_consumer_gets_every_message_beside_damaged_units() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            await send(client)
            await asyncio.sleep(1)
            units_of(around)[7 * 20 + 11] ^= 1
            offset, got = 0, 0
            while offset < COUNT:
                reply = await client.pull("A", group="G", offset=offset)
                got += len(reply.record_sizes) // 4
                offset = reply.next_offset
            assert got == COUNT

    run_in_virtual_time(main())
