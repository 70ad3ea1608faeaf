"""Timed messages, end to end: a real broker on virtual time."""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ternmq_broker.scheduled import rolling
from ternmq_broker.state import tables
from ternmq_broker.state.table_formats import TIMER
from ternmq_broker.state.timer_checkpoint import TimerCheckpoint
from ternmq_model.errors import BrokerBusy, MessageRefused, RefusedError, StoreFull
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.service_methods import CLEAN_STORE, DELETE_TOPIC, DESCRIBE_BROKER
from ternmq_store.config import FlushMode
from ternmq_store.disk import state_file
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import PowerLossFileSystem
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import SMALL_STORE, Client, World, serving, stored, world

DAY_S = 86_400


async def read(client: Client, topic: str = "A") -> list[StoredMessage]:
    """Return all messages of a queue: one read may end where memory ends."""
    found: list[StoredMessage] = []
    while messages := stored(await client.pull(topic, len(found))):
        found += messages
    return found


async def bodies_of(client: Client, topic: str = "A") -> list[bytes]:
    return [message.body for message in await read(client, topic)]


async def send(client: Client, body: bytes, topic: str = "A", **properties: Any) -> None:
    told = {name: str(value) for name, value in properties.items()}
    await client.send(topic, body, queue_id=0, properties=told)


def kept(around: World) -> TimerCheckpoint:
    return TimerCheckpoint.decode(
        around.files.nodes[Path("/broker/config/timercheck")].data.tobytes()
    )


@pytest.mark.parametrize("after_ms", [1, 99, 100, 101, 950, 86_400_000, 3 * 86_400_000])
def test_timed_message_is_delivered_on_time_and_never_early(after_ms: int) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            await asyncio.sleep(0.0423)
            asked_ms = around.clock.wall_ms() + after_ms
            await send(client, b"x", TIMER_DELIVER_MS=asked_ms, TAGS="late")
            if after_ms > 3_600_000:  # days of an idle broker's jobs take long to simulate
                await asyncio.sleep(1)
                around.clock.asleep_ms += after_ms - 20_000
                await asyncio.sleep(18)
                assert not await read(client)
            await asyncio.sleep(min(after_ms / 1000, 1) + 0.3)
            (message,) = await read(client)
            assert 0 <= message.stored_at_ms - asked_ms <= 100
            assert message.tags == "late"
            assert message.properties["TIMER_DELIVER_MS"] == str(asked_ms)
            assert message.properties["REAL_TOPIC"] == "A"

    run_in_virtual_time(main())


def test_delay_in_seconds_or_milliseconds_counts_from_now() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (_, client):
            await send(client, b"s", TIMER_DELAY_SEC=2)
            await send(client, b"ms", TIMER_DELAY_MS=1500)
            await asyncio.sleep(3)
            assert await bodies_of(client) == [b"ms", b"s"]

    run_in_virtual_time(main())


def test_illegal_times_are_refused_by_name_and_past_ones_deliver_at_once() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}, timer_pending_max=1) as (around, client):
            now_ms = around.clock.wall_ms()
            with pytest.raises(MessageRefused, match="at most 3 days"):
                await send(client, b"x", TIMER_DELIVER_MS=now_ms + 3 * DAY_S * 1000 + 1000)
            await send(client, b"now", TIMER_DELIVER_MS=now_ms - 5)
            assert await bodies_of(client) == [b"now"]
            await send(client, b"later", TIMER_DELIVER_MS=now_ms + 5000)
            await asyncio.sleep(0.1)
            with pytest.raises(BrokerBusy, match="timer_pending_max"):
                await send(client, b"more", TIMER_DELIVER_MS=now_ms + 5000)

    run_in_virtual_time(main())


def test_disabled_timer_refuses_timed_messages_and_keeps_pending_ones() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await send(client, b"x", TIMER_DELAY_MS=500)
                await client.connection.close()
            async with around.broker(timer_enabled=False) as broker:
                client = await around.connect(broker)
                with pytest.raises(RefusedError, match="timer_enabled"):
                    await send(client, b"y", TIMER_DELAY_MS=500)
                await asyncio.sleep(5)
                assert not await bodies_of(client)
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(1)
                assert await bodies_of(client) == [b"x"]
                await client.connection.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize("flush_mode", list(FlushMode))
def test_restarts_in_the_middle_neither_lose_nor_repeat_a_message(flush_mode: FlushMode) -> None:
    async def main() -> None:
        async with world(flush_mode=flush_mode) as around:
            asked: dict[bytes, int] = {}
            for use in range(4):
                async with around.broker() as broker:
                    client = await around.connect(broker)
                    await client.put_topic("A", 1)
                    for number in range(50):
                        body = b"%d-%d" % (use, number)
                        asked[body] = around.clock.wall_ms() + 37 + 311 * number
                        await send(client, body, TIMER_DELIVER_MS=asked[body])
                    await asyncio.sleep(5.05)
                    for message in await read(client):
                        assert message.stored_at_ms >= asked[message.body]
                    await client.connection.close()
                await asyncio.sleep(1)
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(20)
                found = await bodies_of(client)
                assert len(found) == len(set(found))
                assert set(found) == set(asked)
                await client.connection.close()
            assert kept(around).first_offset == kept(around).next_offset == 200

    run_in_virtual_time(main())


@pytest.mark.parametrize("flush_mode", list(FlushMode))
def test_power_loss_loses_and_repeats_no_delivery(flush_mode: FlushMode) -> None:
    async def main() -> None:
        async with world(flush_mode=flush_mode) as around:
            disk = around.files = PowerLossFileSystem()
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                for number in range(200):
                    await send(client, b"%d" % number, TIMER_DELAY_MS=20_000 + 100 * number)
                await asyncio.sleep(33)
                around.files = disk.lose_power(Random(5))
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(60)
                found = await bodies_of(client)
                assert sorted(found, key=int) == [b"%d" % number for number in range(200)]
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
            for number in range(20):
                await send(client, b"%d" % number, TIMER_DELAY_MS=100 * number + 50)
            is_full = True
            await asyncio.sleep(60)
            before = len(await read(client))
            is_full = False
            await asyncio.sleep(6)
            assert before < 20
            assert sorted(await bodies_of(client), key=int) == [b"%d" % n for n in range(20)]

    run_in_virtual_time(main())


def test_message_cancels_another_of_its_topic_and_time() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1, "B": 1}) as (around, client):
            at_ms = around.clock.wall_ms() + 5000
            for topic in ("A", "B"):
                for key in ("one", "two"):
                    await send(client, key.encode(), topic, TIMER_DELIVER_MS=at_ms, UNIQ_KEY=key)
            await send(client, b"cancels", TIMER_DELIVER_MS=at_ms, TIMER_DEL_UNIQKEY="one")
            await asyncio.sleep(6)
            assert await bodies_of(client, "A") == [b"two"]
            assert await bodies_of(client, "B") == [b"one", b"two"]

    run_in_virtual_time(main())


def test_deleted_topic_loses_its_timed_messages_and_delays_no_other() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1, "B": 1}) as (_, client):
            await send(client, b"x", "A", TIMER_DELAY_MS=900)
            await send(client, b"x", "B", TIMER_DELAY_MS=900)
            await client.call(DELETE_TOPIC, admin.DeleteTopicRequest(topic="A"))
            await asyncio.sleep(2)
            assert await bodies_of(client, "B") == [b"x"]

    run_in_virtual_time(main())


@pytest.mark.parametrize("restarts", [False, True])
def test_messages_waiting_in_expiring_files_are_moved_out(restarts: bool) -> None:
    async def main() -> None:
        small = replace(SMALL_STORE, commit_log_file_bytes=8192, file_reserved_hours=1)
        async with world(flush_mode=FlushMode.ASYNC) as around:
            around.store_config = small
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await client.put_topic("Other", 1)
                for number in range(300):
                    await send(client, b"%d" % number, TIMER_DELAY_MS=3 * 3_600_000)
                around.clock.asleep_ms += 2 * 3_600_000
                for _ in range(20):
                    await send(client, bytes(2000), "Other")
                await asyncio.sleep(1)
                before = (
                    await client.call(DESCRIBE_BROKER, admin.DescribeBrokerRequest())
                ).log_min_offset
                for _ in range(80):
                    await client.call(CLEAN_STORE, admin.CleanStoreRequest())
                    await asyncio.sleep(12)
                after = (
                    await client.call(DESCRIBE_BROKER, admin.DescribeBrokerRequest())
                ).log_min_offset
                assert after > before + 50_000
                if not restarts:
                    around.clock.asleep_ms += 3_600_000
                    await asyncio.sleep(11)
                    found = await bodies_of(client)
                    assert sorted(found, key=int) == [b"%d" % number for number in range(300)]
                await client.connection.close()
            if restarts:
                around.clock.asleep_ms += 3_600_000
                async with around.broker() as broker:
                    client = await around.connect(broker)
                    await asyncio.sleep(5)
                    found = await bodies_of(client)
                    assert sorted(found, key=int) == [b"%d" % number for number in range(300)]
                    await client.connection.close()

    run_in_virtual_time(main())


def test_operators_see_waiting_messages_and_their_lateness() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1, "B": 1}) as (around, client):
            await asyncio.sleep(0.05)
            at_ms = around.clock.wall_ms() + 975
            for number in range(4):
                await send(client, b"x", "A", TIMER_DELIVER_MS=at_ms, UNIQ_KEY=number)
            await send(client, b"x", "A", TIMER_DELIVER_MS=at_ms, TIMER_DEL_UNIQKEY=3)
            await send(client, b"x", "B", TIMER_DELIVER_MS=at_ms)
            await send(client, b"x", "A", TIMER_DELAY_SEC=60)
            await send(client, b"x", "A", DELAY=1)
            await send(client, b"x", "A", DELAY=5)
            await client.call(DELETE_TOPIC, admin.DeleteTopicRequest(topic="B"))
            await asyncio.sleep(0.5)
            reply = await client.call(DESCRIBE_BROKER, admin.DescribeBrokerRequest())
            assert (reply.waiting.delayed, reply.waiting.timed) == (2, 7)
            await asyncio.sleep(1)
            reply = await client.call(DESCRIBE_BROKER, admin.DescribeBrokerRequest())
            told = reply.waiting
            assert (told.delayed, told.timed, told.timed_unread) == (1, 1, 0)
            assert (told.delivered, told.dropped, told.cancelled) == (4, 1, 1)
            assert told.late_p50_ms <= told.late_p99_ms <= told.late_max_ms == 75

    run_in_virtual_time(main())


def test_unwritable_checkpoint_delays_no_message_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_broken = True
    replace_file = state_file.replace_file

    def failing(*args: Any, **fields: Any) -> None:
        if is_broken and args[1].name == TIMER.name:
            raise OSError(28, "no space")
        replace_file(*args, **fields)

    monkeypatch.setattr(tables, "replace_file", failing)

    async def main() -> None:
        nonlocal is_broken
        async with world(flush_mode=FlushMode.SYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                for number in range(30):
                    await send(client, b"%d" % number, TIMER_DELAY_MS=1000 * number + 500)
                await asyncio.sleep(30)
                assert len(await read(client)) == 30
                is_broken = False
                await client.connection.close()
            assert kept(around).first_offset == 30

    run_in_virtual_time(main())


def test_stop_while_messages_are_moved_out_of_a_file_doubles_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rolling, "_BATCH_MESSAGES", 2)

    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            around.store_config = replace(
                SMALL_STORE, commit_log_file_bytes=8192, file_reserved_hours=1
            )
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await client.put_topic("Other", 1)
                for number in range(60):
                    after_ms = (3 + number % 2) * 3_600_000  # two buckets
                    await send(client, b"%d" % number, TIMER_DELAY_MS=after_ms)
                around.clock.asleep_ms += 2 * 3_600_000
                for _ in range(10):
                    await send(client, bytes(2000), "Other")
                await asyncio.sleep(1)
                await client.call(CLEAN_STORE, admin.CleanStoreRequest())
                around.sync_s = 1.0
                await asyncio.sleep(13)
                around.sync_s = 0.0
                reply = await client.call(DESCRIBE_BROKER, admin.DescribeBrokerRequest())
                assert 2 <= reply.waiting.rolled <= 40
                await client.connection.close()
            around.clock.asleep_ms += 3 * 3_600_000
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(5)
                found = await bodies_of(client)
                assert sorted(found, key=int) == [b"%d" % number for number in range(60)]
                await client.connection.close()

    run_in_virtual_time(main())
