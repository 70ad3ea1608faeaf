import asyncio
from pathlib import Path

import pytest

from ternmq_model.errors import RefusedError, TopicNotFound
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, serving, stored


async def update(client: Client, **values: object) -> None:
    """Change settings of the section `broker`, or of `store` with that before the name."""
    named = {
        f"{'store' if name.startswith('store_') else 'broker'}.{name.removeprefix('store_')}": str(
            value
        )
        for name, value in values.items()
    }
    await client.call(service_methods.UPDATE_SETTINGS, admin.UpdateSettingsRequest(values=named))


def test_settings_are_listed_changed_and_refused() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            await update(client, unread_max_ms=300)
            reply = await client.call(service_methods.LIST_SETTINGS, admin.ListSettingsRequest())
            listed = {one.name: one for one in reply.settings}
            one, switch = listed["broker.unread_max_ms"], listed["broker.trace"]
            assert (one.value, one.least, one.most) == ("300", "1", "60000")
            assert (switch.value, switch.least, switch.most) == ("true", "", "")
            assert one.description
            with pytest.raises(RefusedError, match=r"'broker\.data' cannot change") as caught:
                await update(client, data=Path("/elsewhere"))
            assert caught.value.code == Code.INVALID_PARAMETER

    run_in_virtual_time(main())


def test_automatic_topic_creation_is_switched_at_once() -> None:
    async def main() -> None:
        async with serving() as (_, client):
            await update(client, auto_create_topics="off")
            with pytest.raises(TopicNotFound):
                await client.send("New")
            await update(client, auto_create_topics="on", default_topic_queues=2)
            await client.send("New")
            told = await client.call(
                service_methods.DESCRIBE_TOPIC, admin.DescribeTopicRequest(topic="New")
            )
            assert told.topic.write_queues == 2

    run_in_virtual_time(main())


def test_tracing_is_switched_at_once() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await client.send("A")
            await update(client, trace="off")
            await client.send("A")
            sender = await client.open_sender()
            assert b"TRACE_ON\x01false" in sender.opened.properties_suffix
            found = stored(await client.pull("A"))
            assert [one.properties["TRACE_ON"] for one in found] == ["true", "false"]

    run_in_virtual_time(main())


def test_pull_hold_time_changes_at_once() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            loop = asyncio.get_running_loop()
            for settings, held_s in (
                ({"pull_wait_max_ms": 7_000}, 7),
                ({"long_polling_enabled": "off"}, 1),
                ({"long_polling_enabled": "on"}, 7),
            ):
                await update(client, **settings)
                began_s = loop.time()
                await client.pull("A", wait_ms=20_000)
                assert loop.time() - began_s == pytest.approx(held_s, abs=0.1)

    run_in_virtual_time(main())


def test_short_polling_checks_each_second_and_long_polling_at_once() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            loop = asyncio.get_running_loop()
            puller = await client.open_puller()
            await puller.subscribe(1, "A")
            await asyncio.sleep(10.5)
            for switch, least_s, most_s in (("off", 0.4, 1.1), ("on", 0, 0.1)):
                await update(client, long_polling_enabled=switch)
                began_s = loop.time()
                await client.send("A")
                await puller.read_one()
                assert least_s <= loop.time() - began_s <= most_s

    run_in_virtual_time(main())


def test_memory_read_limit_holds_at_once() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            sender = await client.open_sender()
            await sender.send(*(sender.record("A") for _ in range(9)))
            await asyncio.sleep(1)
            assert len(stored(await client.pull("A"))) == 9
            await update(client, store_read_memory_messages_max=4)
            assert len(stored(await client.pull("A"))) == 4

    run_in_virtual_time(main())


def test_lower_limit_of_unanswered_bytes_applies_at_once() -> None:
    async def main() -> None:
        settings = {"flush_mode": FlushMode.SYNC, "unanswered_max_bytes": 8 << 20}
        async with serving(topics={"A": 1}, **settings) as (around, client):
            await update(client, unanswered_max_bytes=1 << 20, stream_unanswered_max_bytes=1 << 20)
            around.sync_s = 3.0
            body = b"x" * (1 << 20)
            async with OwnedTasks() as tasks:
                waiting = tasks.spawn(client.send("A", body), "first")
                await asyncio.sleep(0.1)
                with pytest.raises(RefusedError, match="bytes are unanswered") as caught:
                    await client.send("A")
                assert caught.value.code == Code.SYSTEM_BUSY
                await waiting

    run_in_virtual_time(main())
