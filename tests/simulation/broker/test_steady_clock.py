"""A wall clock that is set while messages wait: a real broker on virtual time."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from ternmq_model.errors import BrokerBusy, RefusedError
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.service_methods import CLEAN_STORE, DESCRIBE_STORE
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import EPOCH_MS, run_in_virtual_time
from tests.support.brokers import SMALL_STORE, Client, World, serving, stored, world
from tests.support.slow_jobs import slow_jobs
from tests.support.transactions import COMMIT, begin, end

DAY_MS = 86_400_000
HOUR_MS = 3_600_000


async def read(client: Client) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    while messages := stored(await client.pull("A", len(found))):
        found += messages
    return found


async def bodies(client: Client) -> set[bytes]:
    return {message.body for message in await read(client)}


async def send(client: Client, body: bytes, **properties: Any) -> None:
    told = {name: str(value) for name, value in properties.items()}
    await client.send("A", body, queue_id=0, properties=told)


async def send_three(client: Client, after_s: int, at_ms: int) -> None:
    """Send a message of a level, one for a length of time, and one for a time."""
    level = {60: 5, 1200: 15}[after_s]
    await send(client, b"level %d" % after_s, DELAY=level)
    await send(client, b"after %d" % after_s, TIMER_DELAY_MS=after_s * 1000)
    await send(client, b"at %d" % after_s, TIMER_DELIVER_MS=at_ms)


@pytest.mark.parametrize("step_ms", [-40 * DAY_MS, -5_000, 5_000, 40 * DAY_MS])
def test_step_taken_back_in_15_s_delays_and_hastens_no_message(step_ms: int) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            begun_ms = around.clock.wall_ms()
            await send_three(client, 60, begun_ms + 60_000)
            await asyncio.sleep(1)
            around.clock.wall_offset_ms = step_ms
            await asyncio.sleep(1)
            await send_three(client, 1200, begun_ms + 1_202_000)
            await asyncio.sleep(14)
            around.clock.wall_offset_ms = 0
            await asyncio.sleep(43.9)
            assert not await read(client)
            await asyncio.sleep(0.3)
            assert await bodies(client) == {b"level 60", b"after 60", b"at 60"}
            with slow_jobs():
                await asyncio.sleep(1_141.7)
            assert len(await read(client)) == 3
            await asyncio.sleep(0.3)
            assert len(found := await read(client)) == 6
            assert all(0 <= each.stored_at_ms - begun_ms <= 1_203_000 for each in found)

    run_in_virtual_time(main())


@pytest.mark.parametrize("step_ms", [-2 * HOUR_MS, 2 * HOUR_MS])
def test_step_that_stays_moves_times_and_no_length_of_time(step_ms: int) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            begun_ms = around.clock.wall_ms()
            await send_three(client, 1200, begun_ms + HOUR_MS)
            await asyncio.sleep(1)
            around.clock.wall_offset_ms = step_ms
            with slow_jobs(10):
                await asyncio.sleep(640)
            assert await bodies(client) == ({b"at 1200"} if step_ms > 0 else set())
            await send_three(client, 60, around.clock.wall_ms() + 60_000)
            await asyncio.sleep(59.9)
            assert not {each for each in await bodies(client) if each.endswith(b" 60")}
            await asyncio.sleep(0.3)
            assert {b"level 60", b"after 60", b"at 60"} <= await bodies(client)
            with slow_jobs():
                await asyncio.sleep(498.7)
            assert not {b"level 1200", b"after 1200"} & await bodies(client)
            await asyncio.sleep(0.4)
            assert {b"level 1200", b"after 1200"} <= await bodies(client)
            newest_ms = max(each.stored_at_ms for each in await read(client))
            assert abs(newest_ms - around.clock.wall_ms()) < 1_000

    run_in_virtual_time(main())


async def delivered(around: World, client: Client, count: int) -> tuple[int, list[StoredMessage]]:
    """Send two messages with a delay of 5 s; return how long both took, and all that is there."""
    begun_ms = around.clock.monotonic_ms()
    await send(client, b"level 5", DELAY=2)
    await send(client, b"after 5", TIMER_DELAY_MS=5_000)
    while len(found := await read(client)) < count + 2:
        await asyncio.sleep(0.1)
    return around.clock.monotonic_ms() - begun_ms, found


@pytest.mark.parametrize("back_s", [5, 59])
def test_step_back_by_less_than_a_minute_lengthens_delays_by_a_tenth(back_s: int) -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            around.clock.wall_offset_ms = -back_s * 1_000
            with slow_jobs(10):
                await asyncio.sleep(590)
            for _ in range(25):
                await send(client, b"busy")
                await asyncio.sleep(1)
            took_ms, found = await delivered(around, client, 25)
            assert 5_000 <= took_ms <= 5_800, "5 s, a tenth of it, and the pauses of this test"
            times = [each.stored_at_ms for each in found]
            assert all(before < after for before, after in pairwise(times[:25]))

    run_in_virtual_time(main())


@pytest.mark.parametrize("behind_s", [10, 55])
def test_start_behind_the_newest_record_keeps_delays(behind_s: int) -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await send(client, b"before")
                await client.connection.close()
            around.clock.wall_offset_ms = -behind_s * 1_000
            async with around.broker() as broker:
                client = await around.connect(broker)
                await send(client, b"now")
                took_ms, found = await delivered(around, client, 2)
                assert 5_000 <= took_ms <= 5_800
                assert all(each.stored_at_ms >= found[1].stored_at_ms + 5_000 for each in found[2:])
                await client.connection.close()

    run_in_virtual_time(main())


def test_wrong_time_that_was_followed_is_forgotten_when_the_clock_returns() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            around.clock.wall_offset_ms = 40 * DAY_MS
            with slow_jobs(10):
                await asyncio.sleep(640)
            await send_three(client, 1200, EPOCH_MS + HOUR_MS)  # a time that has passed, it seems
            around.clock.wall_offset_ms = 0
            with slow_jobs(10):
                await asyncio.sleep(640)
            await send_three(client, 60, around.clock.wall_ms() + 60_000)
            await asyncio.sleep(60.2)
            assert await bodies(client) == {b"at 1200", b"level 60", b"after 60", b"at 60"}
            with slow_jobs():
                await asyncio.sleep(500)
            assert len(await read(client)) == 6

    run_in_virtual_time(main())


async def restart(around: World, offset_ms: int) -> None:
    """Store messages that wait a minute, end in order, and set the clock."""
    async with around.broker() as broker:
        client = await around.connect(broker)
        await client.put_topic("A", 1)
        await send_three(client, 60, around.clock.wall_ms() + 60_000)
        await asyncio.sleep(1)
        await client.connection.close()
    around.clock.wall_offset_ms = offset_ms


def test_messages_stored_by_a_clock_that_was_ahead_wait_their_delay_after_a_start() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            around.clock.wall_offset_ms = 40 * DAY_MS
            await restart(around, 0)
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(59.9)
                assert not await read(client)
                await asyncio.sleep(0.3)
                assert await bodies(client) == {b"level 60", b"after 60"}
                await send(client, b"now")
                newest_ms = (await read(client))[-1].stored_at_ms
                assert newest_ms == around.clock.wall_ms()
                await client.connection.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize("offset_ms", [-40 * DAY_MS, 40 * DAY_MS])
def test_start_with_a_wrong_clock_deletes_nothing_and_follows_the_right_one(offset_ms: int) -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            around.store_config = replace(SMALL_STORE, file_reserved_hours=1)
            await restart(around, offset_ms)
            async with around.broker() as broker:
                client = await around.connect(broker)
                for _ in range(10):
                    await client.send("A", bytes(1 << 20))
                with pytest.raises((BrokerBusy, RefusedError), match="not known yet"):
                    await client.call(CLEAN_STORE, admin.CleanStoreRequest())
                await asyncio.sleep(5)
                around.clock.wall_offset_ms = 0
                await asyncio.sleep(2)
                await send(client, b"later")
                newest_ms = (await read(client))[-1].stored_at_ms
                assert newest_ms == around.clock.wall_ms()
                with slow_jobs(10):
                    await asyncio.sleep(600)
                reply = await client.call(CLEAN_STORE, admin.CleanStoreRequest())
                assert (reply.files_deleted, reply.log_min_offset) == (0, 0)
                await client.connection.close()

    run_in_virtual_time(main())


async def fill(client: Client) -> None:
    """Store messages that fill several files of the log."""
    for _ in range(10):
        await client.send("A", bytes(1 << 20), queue_id=0)


async def deleted_files(client: Client) -> int:
    """Ask for retention; return how many files of the log went."""
    reply: admin.CleanStoreReply = await client.call(CLEAN_STORE, admin.CleanStoreRequest())
    return reply.files_deleted


def test_second_start_with_the_same_wrong_clock_is_in_doubt_too() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await fill(client)
                await client.connection.close()
            around.clock.wall_offset_ms = 40 * DAY_MS
            for _ in range(2):
                async with around.broker() as broker:
                    client = await around.connect(broker)
                    await send(client, b"newest")
                    await asyncio.sleep(70)
                    with pytest.raises((BrokerBusy, RefusedError), match="not known yet"):
                        await deleted_files(client)
                    await client.connection.close()
            around.clock.wall_offset_ms = 0
            for serves_s in (610, 10):  # it is believed from the first of these on
                async with around.broker() as broker:
                    client = await around.connect(broker)
                    with slow_jobs(10):
                        await asyncio.sleep(serves_s)
                    await send(client, b"newest")
                    assert await deleted_files(client) == 0
                    await client.connection.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize("is_restarted", [False, True])
def test_step_that_stays_deletes_no_message_younger_than_its_retention(
    *, is_restarted: bool
) -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                around.clock.wall_offset_ms = 40 * DAY_MS
                with slow_jobs(10):
                    await asyncio.sleep(585)
                await fill(client)
                await asyncio.sleep(40)
                await send(client, b"newest")
                assert await deleted_files(client) == 0
                await client.connection.close()
                if not is_restarted:
                    return
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(10)
                assert await deleted_files(client) == 0
                around.clock.asleep_ms = 73 * HOUR_MS
                assert await deleted_files(client) > 0, "older than its retention by now"
                await client.connection.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize("step_ms", [-3 * HOUR_MS, 3 * HOUR_MS])
def test_level_keeps_its_length_over_a_step_between_two_restarts(step_ms: int) -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            begun_s = around.clock.monotonic_ms() / 1000
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await send(client, b"level 2h", DELAY=18)
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                around.clock.wall_offset_ms = step_ms
                with slow_jobs(10):
                    await asyncio.sleep(640)
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                with slow_jobs(60):
                    await asyncio.sleep(begun_s + 7_199 - around.clock.monotonic_ms() / 1000)
                assert not await read(client)
                await asyncio.sleep(15)
                assert len(await read(client)) == 1
                await client.connection.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize("is_staged", [False, True])
@pytest.mark.parametrize("is_followed", [False, True])
def test_wrong_clock_gives_up_no_transaction(*, is_staged: bool, is_followed: bool) -> None:
    """A step of 40 days: at a start, which is in doubt, or long before one that is not."""
    immunity: dict[str, Any] = {"immunity_s": 36_000, "staged_for": "q/1"} if is_staged else {}

    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("flights", 1)
                (one,) = await begin(client, b"1", **immunity)
                if is_followed:
                    around.clock.wall_offset_ms = 40 * DAY_MS
                    with slow_jobs(10):
                        await asyncio.sleep(640)
                    await client.send("flights", b"newest", queue_id=0)
                await asyncio.sleep(1)
                await client.connection.close()
            around.clock.wall_offset_ms = 40 * DAY_MS
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(100)
                (done,) = await end(client, one.end(COMMIT))
                assert not done.status.code, done.status.remark
                await client.connection.close()

    run_in_virtual_time(main())


def test_clock_set_right_before_the_first_message_is_followed_at_once() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            around.clock.wall_offset_ms = 40 * DAY_MS
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await asyncio.sleep(5)
                around.clock.wall_offset_ms = 0
                await asyncio.sleep(2)
                await send_three(client, 60, around.clock.wall_ms() + 60_000)
                await asyncio.sleep(59)
                assert not await read(client)
                await asyncio.sleep(2)
                assert len(await read(client)) == 3
                await client.connection.close()

    run_in_virtual_time(main())


def test_idle_queue_with_a_wrong_time_puts_no_start_in_doubt() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await client.put_topic("idle", 1)
                await send(client, b"before")
                around.clock.wall_offset_ms = 40 * DAY_MS
                with slow_jobs(10):
                    await asyncio.sleep(640)
                await client.send("idle", b"ahead", queue_id=0)
                around.clock.wall_offset_ms = 0
                with slow_jobs(10):
                    await asyncio.sleep(640)
                await send(client, b"newest")
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                assert await deleted_files(client) == 0, "refused while the clock is in doubt"
                await client.connection.close()

    run_in_virtual_time(main())


@pytest.mark.parametrize(("away_s", "is_doubted"), [(30, False), (90, True)])
def test_quiet_broker_that_restarts_soon_is_not_in_doubt(*, away_s: int, is_doubted: bool) -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await send(client, b"newest")
                with slow_jobs(10):
                    await asyncio.sleep(3_600)
                await client.connection.close()
            for _ in range(2):
                await asyncio.sleep(away_s)
                async with around.broker() as broker:
                    client = await around.connect(broker)
                    assert bool((await clock_state(client)).doubted_for_ms) == is_doubted
                    await client.connection.close()

    run_in_virtual_time(main())


async def clock_state(client: Client) -> admin.BrokerClock:
    """Return what operators are told of the clock."""
    reply: admin.DescribeStoreReply = await client.call(
        DESCRIBE_STORE, admin.DescribeStoreRequest()
    )
    return reply.clock


def test_status_tells_step_lead_and_doubt() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await send(client, b"before")
                await asyncio.sleep(2)
                assert await clock_state(client) == admin.BrokerClock()
                around.clock.wall_offset_ms = -5_000
                await asyncio.sleep(3)
                told = await clock_state(client)
                assert told.step_ms == -5_000
                assert 590_000 < told.follow_in_ms < 600_000
                with slow_jobs(10):
                    await asyncio.sleep(630)
                told = await clock_state(client)
                assert 0 < told.lead_ms < 5_000
                assert not told.step_ms
                await client.connection.close()
            around.clock.wall_offset_ms = DAY_MS
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(2)
                told = await clock_state(client)
                assert 590_000 < told.doubted_for_ms < 600_000
                await client.connection.close()

    run_in_virtual_time(main())


def test_retention_deletes_nothing_while_the_wall_clock_is_ahead() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            for _ in range(10):
                await client.send("A", bytes(1 << 20))
            await asyncio.sleep(70)
            around.clock.wall_offset_ms = 40 * DAY_MS
            await asyncio.sleep(15)
            reply = await client.call(CLEAN_STORE, admin.CleanStoreRequest())
            assert (reply.files_deleted, reply.log_min_offset) == (0, 0)

    run_in_virtual_time(main())


def test_machine_that_slept_delivers_what_fell_due_at_once() -> None:
    async def main() -> None:
        async with serving(topics={"A": 1}) as (around, client):
            begun_ms = around.clock.wall_ms()
            await send_three(client, 1200, begun_ms + HOUR_MS)
            await asyncio.sleep(1)
            around.clock.asleep_ms = 2 * HOUR_MS
            await asyncio.sleep(11)
            assert len(await read(client)) == 3

    run_in_virtual_time(main())
