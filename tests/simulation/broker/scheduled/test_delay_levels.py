"""Delayed messages, end to end: a real broker on virtual time."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ternmq_broker.state.fastjson import parse_json
from ternmq_model.delay import level_delay_ms
from ternmq_model.errors import StoreFull
from ternmq_model.names import SCHEDULE_TOPIC
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.service_methods import DELETE_TOPIC
from ternmq_store.config import FlushMode
from ternmq_store.disk.layout import file_name, queue_folder
from ternmq_store.message_store import MessageStore
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import SMALL_STORE, Client, serving, stored, world


async def read(client: Client, topic: str, **fields: Any) -> list[StoredMessage]:
    """Return all messages of a queue: one read may end where memory ends."""
    offset = fields.pop("offset", 0)
    found: list[StoredMessage] = []
    while messages := stored(await client.pull(topic, offset + len(found), **fields)):
        found += messages
    return found


async def send(client: Client, topic: str, level: int, body: bytes = b"body", **more: str) -> None:
    properties = {"DELAY": str(level), "TAGS": "late", **more}
    await client.send(topic, body, queue_id=0, properties=properties)


@pytest.mark.parametrize("level", range(1, 19))
def test_delayed_message_is_delivered_on_time_and_never_early(level: int) -> None:
    async def main() -> None:
        async with serving(topics={"A": 2}) as (around, client):
            began_ms = around.clock.wall_ms()
            await send(client, "A", level)
            await asyncio.sleep(level_delay_ms(level) / 1000 - 0.1)
            assert not await read(client, "A")
            await asyncio.sleep(0.3)
            (message,) = await read(client, "A")
            late_ms = message.stored_at_ms - began_ms - level_delay_ms(level)
            assert 0 <= late_ms <= 100
            assert message.body == b"body"
            assert message.tags == "late"
            assert message.properties["DELAY"] == str(level)
            assert message.properties["REAL_TOPIC"] == "A"
            assert message.properties["REAL_QID"] == "0"

    run_in_virtual_time(main())


def test_messages_of_a_delay_level_keep_their_order() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender = await client.open_sender()
            for begin in range(0, 1000, 250):
                await sender.send(
                    *(
                        sender.record("A", b"%d" % number, properties={"DELAY": "2"})
                        for number in range(begin, begin + 250)
                    )
                )
            await asyncio.sleep(6)
            found = [message.body for message in await read(client, "A")]
            assert found == [b"%d" % number for number in range(1000)]

    run_in_virtual_time(main())


@pytest.mark.parametrize("flush_mode", list(FlushMode))
def test_restart_neither_loses_nor_repeats_a_message(flush_mode: FlushMode) -> None:
    async def main() -> None:
        async with world(flush_mode=flush_mode) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                for level in (1, 2, 3, 5):
                    await send(client, "A", level, b"%d" % level)
                await asyncio.sleep(7)
                assert [m.body for m in await read(client, "A")] == [b"1", b"2"]
                await client.connection.close()
            kept = parse_json(
                around.files.nodes[Path("/broker/config/delayOffset.json")].data.tobytes().decode()
            )
            assert kept["offsetTable"] == {"1": 1, "2": 1}
            await asyncio.sleep(10)
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(1)
                assert [m.body for m in await read(client, "A")] == [b"1", b"2", b"3"]
                await asyncio.sleep(60)
                assert [m.body for m in await read(client, "A")] == [b"1", b"2", b"3", b"5"]
                await client.connection.close()

    run_in_virtual_time(main())


def test_failing_store_delays_delivery_and_skips_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_full = False
    append = MessageStore.append

    def failing(self: MessageStore, *args: Any, **fields: Any) -> Any:
        if is_full:
            raise StoreFull("no space")
        return append(self, *args, **fields)

    monkeypatch.setattr(MessageStore, "append", failing)

    async def main() -> None:
        nonlocal is_full
        async with serving(topics={"A": 1}) as (_, client):
            for level in (1, 2):
                await send(client, "A", level, b"%d" % level)
            is_full = True
            await asyncio.sleep(60)
            assert not await read(client, "A")
            is_full = False
            await asyncio.sleep(6)
            assert [m.body for m in await read(client, "A")] == [b"1", b"2"]

    run_in_virtual_time(main())


def test_deleted_topic_loses_its_delayed_messages_and_delays_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1, "B": 1}) as (_, client):
            await send(client, "A", 2)
            await send(client, "B", 2)
            await client.call(DELETE_TOPIC, admin.DeleteTopicRequest(topic="A"))
            await asyncio.sleep(6)
            assert len(await read(client, "B")) == 1

    run_in_virtual_time(main())
    assert "topic 'A' was deleted" in caplog.text


def test_topic_with_fewer_queues_gets_its_messages_in_those() -> None:
    async def main() -> None:
        async with serving(topics={"A": 4}) as (_, client):
            await client.send("A", b"x", queue_id=3, properties={"DELAY": "1"})
            await client.put_topic("A", 2)
            await asyncio.sleep(2)
            assert len(await read(client, "A", queue_id=1)) == 1

    run_in_virtual_time(main())


@pytest.mark.parametrize("number", [0, 3, 9])
@pytest.mark.parametrize("bit", range(64))
def test_flipped_bit_of_a_delivery_time_makes_no_message_early(number: int, bit: int) -> None:
    async def main() -> None:
        async with world() as around:
            around.store_config = replace(SMALL_STORE, verify_rate_bytes=0)
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                began_ms = around.clock.wall_ms()
                for each in range(10):
                    await send(client, "A", 4, b"%d" % each)
                    await asyncio.sleep(1)
                path = queue_folder(Path("/broker"), SCHEDULE_TOPIC, 3) / file_name(0)
                units = around.files.nodes[path].data
                units[number * 20 + 12 + bit // 8] ^= 1 << bit % 8
                await asyncio.sleep(60)
                found = await read(client, "A")
                assert [int(each.body) for each in found] == list(range(10))
                for each, message in enumerate(found):
                    late_ms = message.stored_at_ms - began_ms - 1000 * each - level_delay_ms(4)
                    # The one behind it, a second later, tells that it is due; the last has none.
                    assert 0 <= late_ms <= (level_delay_ms(4) if each == 9 else 1_100)
                await client.connection.close()

    run_in_virtual_time(main())
