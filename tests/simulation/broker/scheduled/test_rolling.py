"""Timed messages after a step of the clock that was followed: a real broker on virtual time."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ternmq_broker.scheduled import rolling
from ternmq_broker.state.timer_checkpoint import TimerCheckpoint
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_model.errors import StoreFull
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.service_methods import DESCRIBE_BROKER
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore
from ternmq_testing.memory.memory_files import PowerLossFileSystem
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, World, stored, world
from tests.support.slow_jobs import slow_jobs

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
STEPS_MS = (-DAY_MS, -2 * MINUTE_MS, 2 * MINUTE_MS, DAY_MS)


async def read(client: Client) -> Counter[bytes]:
    found: list[bytes] = []
    while messages := stored(await client.pull("A", len(found))):
        found += [message.body for message in messages]
    return Counter(found)


async def send(client: Client, body: bytes, **properties: Any) -> None:
    told = {name: str(value) for name, value in properties.items()}
    await client.send("A", body, queue_id=0, properties=told)


async def send_many(around: World, client: Client) -> None:
    """Send one message for the day after tomorrow, then 20 that wait an hour."""
    await client.put_topic("A", 1)
    await send(client, b"at", TIMER_DELIVER_MS=around.clock.wall_ms() + 2 * DAY_MS)
    for number in range(20):
        await send(client, b"%d" % number, TIMER_DELAY_MS=HOUR_MS)


async def step(around: World, by_ms: int) -> None:
    """Set the clock, and wait until that is followed."""
    around.clock.wall_offset_ms += by_ms
    with slow_jobs(10):
        await asyncio.sleep(640)


async def later(around: World, *, hours: Sequence[float]) -> Counter[bytes]:
    """Return what is delivered after some starts, each followed by a use of so many hours."""
    found: Counter[bytes] = Counter()
    for each in hours:
        async with around.broker() as broker:
            client = await around.connect(broker)
            with slow_jobs(10):
                await asyncio.sleep(each * 3600)
            found = await read(client)
            await client.connection.close()
    return found


def kept(around: World) -> TimerCheckpoint:
    data = around.files.nodes[Path("/broker/config/timercheck")].data.tobytes()
    return TimerCheckpoint.decode(data)


@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize("by_ms", STEPS_MS)
def test_messages_come_once_after_a_followed_step_and_restarts(
    by_ms: int, loses_power: bool
) -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            disk = around.files = PowerLossFileSystem()
            async with around.broker() as broker:
                client = await around.connect(broker)
                await send_many(around, client)
                await step(around, by_ms)
                assert not await read(client)
                if loses_power:
                    around.files = disk.lose_power(Random(5))
                await client.connection.close()
            assert kept(around).first_offset == 21
            assert kept(around).read_ms <= around.clock.wall_ms()
            found = await later(around, hours=(0.1, 0.1, 2))
            assert found == Counter(b"%d" % number for number in range(20))

    run_in_virtual_time(main())


@pytest.mark.parametrize("loses_power", [False, True])
def test_messages_delivered_by_a_wrong_time_do_not_come_again(loses_power: bool) -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            disk = around.files = PowerLossFileSystem()
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                for hours in (48, 3, 3, 26, 1):
                    at_ms = around.clock.wall_ms() + hours * HOUR_MS
                    await send(client, b"%d" % hours, TIMER_DELIVER_MS=at_ms)
                await step(around, DAY_MS)
                assert await read(client) == {b"3": 2, b"1": 1}
                await step(around, -DAY_MS)
                if loses_power:
                    around.files = disk.lose_power(Random(5))
                await client.connection.close()
            assert await later(around, hours=(0.1, 26)) == {b"3": 2, b"1": 1, b"26": 1}

    run_in_virtual_time(main())


@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize("by_ms", STEPS_MS)
def test_stop_while_messages_are_moved_loses_and_doubles_none(
    by_ms: int, loses_power: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolling, "_BATCH_MESSAGES", 2)

    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            disk = around.files = PowerLossFileSystem()
            async with around.broker(clock_follow_ms=10_000) as broker:
                client = await around.connect(broker)
                await send_many(around, client)
                around.sync_s = 1.0
                around.clock.wall_offset_ms = by_ms
                await asyncio.sleep(25)
                if loses_power:
                    around.files = disk.lose_power(Random(5))
                await client.connection.close()
            around.sync_s = 0.0
            assert 1 < kept(around).first_offset < kept(around).next_offset == 21
            found = await later(around, hours=(0.1, 0.1, 2))
            assert found == Counter(b"%d" % number for number in range(20))

    run_in_virtual_time(main())


@pytest.mark.parametrize("loses_power", [False, True])
def test_messages_left_by_a_stop_follow_a_step_ahead_after_it(
    loses_power: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolling, "_BATCH_MESSAGES", 2)

    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            disk = around.files = PowerLossFileSystem()
            async with around.broker(clock_follow_ms=10_000) as broker:
                client = await around.connect(broker)
                await send_many(around, client)
                around.sync_s = 1.0
                around.clock.wall_offset_ms = DAY_MS
                await asyncio.sleep(20)
                if loses_power:
                    around.files = disk.lose_power(Random(5))
                await client.connection.close()
            around.sync_s = 0.0
            assert kept(around).first_offset < 21
            assert not await later(around, hours=(0.1, 0.8))
            found = await later(around, hours=(0.3,))
            assert found == Counter(b"%d" % number for number in range(20))

    run_in_virtual_time(main())


@pytest.mark.parametrize("loses_power", [False, True])
def test_messages_left_by_a_start_with_a_clock_behind_are_moved_by_the_next(
    loses_power: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolling, "_BATCH_MESSAGES", 2)

    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            disk = around.files = PowerLossFileSystem()
            around.clock.wall_offset_ms = 40 * DAY_MS
            async with around.broker() as broker:
                client = await around.connect(broker)
                await send_many(around, client)
                await client.connection.close()
            around.clock.wall_offset_ms = 0
            for stop_s in (0.1, 5.0):
                around.sync_s = 0.0
                async with around.broker() as broker:
                    client = await around.connect(broker)
                    await send(client, b"now")
                    around.sync_s = 1.0
                    await asyncio.sleep(stop_s)
                    if loses_power:
                        around.files = disk = disk.lose_power(Random(5))
                    await client.connection.close()
            around.sync_s = 0.0
            assert kept(around).first_offset < 21
            found = await later(around, hours=(0.1, 1.1))
            assert found == Counter([b"now", b"now", *(b"%d" % number for number in range(20))])

    run_in_virtual_time(main())


def test_message_still_cancels_another_after_a_step() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                at_ms = around.clock.wall_ms() + HOUR_MS
                for key in ("one", "two"):
                    await send(client, key.encode(), TIMER_DELIVER_MS=at_ms, UNIQ_KEY=key)
                await send(client, b"cancels", TIMER_DELIVER_MS=at_ms, TIMER_DEL_UNIQKEY="one")
                await step(around, -2 * MINUTE_MS)
                await client.connection.close()
            assert await later(around, hours=(2,)) == {b"two": 1}

    run_in_virtual_time(main())


def test_message_sent_between_two_steps_follows_the_second_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rolling, "_BATCH_MESSAGES", 2)

    async def main() -> None:
        async with (
            world(flush_mode=FlushMode.SYNC, clock_follow_ms=10_000) as around,
            around.broker() as broker,
        ):
            client = await around.connect(broker)
            await send_many(around, client)
            around.sync_s = 5.0  # the first messages move until the second step is followed
            for body in (b"between", b"after"):
                around.clock.wall_offset_ms -= 30 * MINUTE_MS
                await asyncio.sleep(11.5)
                await send(client, body, TIMER_DELAY_MS=HOUR_MS)
            around.sync_s = 0.0
            with slow_jobs(10):
                await asyncio.sleep(3600 - 30)
                assert not (await read(client))[b"after"]
                await asyncio.sleep(60)
            expected = [b"between", b"after", *(b"%d" % number for number in range(20))]
            assert await read(client) == Counter(expected)
            await client.connection.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize("restarts", [False, True])
def test_messages_whose_delivery_failed_wait_anew_after_a_step(
    restarts: bool, monkeypatch: pytest.MonkeyPatch
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
        async with world(flush_mode=FlushMode.SYNC, clock_follow_ms=10_000) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                at_ms = around.clock.wall_ms() + MINUTE_MS
                await send(client, b"cancels", TIMER_DELIVER_MS=at_ms, TIMER_DEL_UNIQKEY="one")
                for key in ("one", "two"):
                    await send(client, key.encode(), TIMER_DELIVER_MS=at_ms, UNIQ_KEY=key)
                await send(client, b"later", TIMER_DELAY_MS=HOUR_MS)
                is_full = True
                await asyncio.sleep(61)
                around.clock.wall_offset_ms = -5 * HOUR_MS
                await asyncio.sleep(15)
                is_full = False
                await asyncio.sleep(10)
                assert not await read(client)
                assert kept(around).first_offset == 4
                reply = await client.call(DESCRIBE_BROKER, admin.DescribeBrokerRequest())
                assert reply.waiting.rolled == 4
                if not restarts:
                    with slow_jobs(10):
                        await asyncio.sleep(5 * 3600)
                    assert await read(client) == {b"two": 1, b"later": 1}
                await client.connection.close()
            if restarts:
                assert await later(around, hours=(0.1, 5)) == {b"two": 1, b"later": 1}

    run_in_virtual_time(main())


def test_batch_of_which_nobody_knows_whether_it_was_stored_is_not_doubled_by_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rolling, "_BATCH_MESSAGES", 2)
    puts = 0
    put = InternalWriter.put

    async def failing(self: InternalWriter, *args: Any, **fields: Any) -> Any:
        nonlocal puts
        puts += 1
        appended = await put(self, *args, **fields)
        if puts == 3:
            await asyncio.sleep(1_000)
            raise StoreFull("no space")
        return appended

    monkeypatch.setattr(InternalWriter, "put", failing)

    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC, clock_follow_ms=10_000) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await send_many(around, client)
                around.clock.wall_offset_ms = -5 * MINUTE_MS
                await asyncio.sleep(15)
                await client.connection.close()
            assert puts == 3
            assert kept(around).first_offset == 4
            found = await later(around, hours=(0.1, 2))
            assert found == Counter(b"%d" % number for number in range(20))

    run_in_virtual_time(main())
