"""Deliveries that a crash does not repeat, since the log has them."""

import asyncio
import logging
import re
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import pytest

from ternmq_broker.scheduled import delay_levels, timed_messages
from ternmq_broker.state.fastjson import write_json
from ternmq_broker.state.table_formats import parse_table
from ternmq_broker.state.timer_checkpoint import TimerCheckpoint
from ternmq_model.errors import BrokerBusy
from ternmq_model.json_checksum import add_checksum
from ternmq_model.message import Message
from ternmq_producer.producer import Producer
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.service_methods import CLEAN_STORE, DESCRIBE_BROKER
from ternmq_store.config import FlushMode
from ternmq_store.disk.state_file import replace_file
from ternmq_testing.memory.memory_files import MemoryFileSystem
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import SMALL_STORE, Client, world
from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tests.support.slow_jobs import slow_jobs

HOUR_MS: Final = 3_600_000
WAITS: dict[str, dict[str, Any]] = {
    "level": {"delay_level": 1},
    "time": {"deliver_after_ms": 1_000},
}


@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize(("mode", "pause_s"), [(FlushMode.ASYNC, 5), (FlushMode.SYNC, 0.6)])
@pytest.mark.parametrize("waits", WAITS)
def test_message_is_delivered_once_however_often_its_broker_dies(
    waits: str, mode: FlushMode, pause_s: float, loses_power: bool
) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",), mode=mode) as cluster:
            await cluster.put_topic("T", 1)
            async with cluster.producer() as producer:
                for _ in range(10):
                    await cluster.send(producer, "T", **WAITS[waits])
            await asyncio.sleep(0.8 if loses_power else 0)
            for _ in range(6):
                await asyncio.sleep(pause_s)
                (cluster.lose_power if loses_power else cluster.kill)("a")
                await cluster.start("a")
            await asyncio.sleep(20)
            found = Counter(message.body for _, message in await cluster.records("T"))
            assert set(found.values()) == {1}
            if mode is FlushMode.SYNC or not loses_power:
                assert len(found) == 10
            assert all("TERNMQ_SOURCE" not in m.properties for _, m in await cluster.records("T"))

    run_in_virtual_time(main())


@pytest.mark.parametrize("levels", [(1, 1), (1, 2)])
def test_message_passed_over_at_one_start_is_passed_over_at_the_next(
    levels: tuple[int, int],
) -> None:
    """A batch of the same level, or of another one, has messages that were not delivered."""
    waits_s = {1: 1, 2: 5}
    early, late = levels

    async def main() -> None:
        async with simulated_cluster(brokers=("a",), mode=FlushMode.ASYNC) as cluster:
            await cluster.put_topic("T", 1)
            async with cluster.producer() as producer:
                # 300 are more than a batch: the second one has some that are delivered and others.
                for _ in range(300):
                    await producer.send(Message("T", cluster.next_id().encode(), delay_level=late))
                last_s = asyncio.get_running_loop().time() + waits_s[late]
                if early != late:
                    await cluster.send(producer, "T", delay_level=early)
                await asyncio.sleep(waits_s[late] - 0.3)
                for _ in range(20):
                    await cluster.send(producer, "T", delay_level=late)
            while len(await cluster.records("T")) < 300 + (early != late):
                assert asyncio.get_running_loop().time() < last_s + 0.2
                await asyncio.sleep(0.01)
            for delivered in (20, 0, 0):
                cluster.kill("a")
                await asyncio.sleep(waits_s[late])  # then all are due
                await cluster.start("a")
                await asyncio.sleep(3)
                reply = await cluster.ask("a", DESCRIBE_BROKER, admin.DescribeBrokerRequest())
                assert reply.waiting.delivered == delivered
            await asyncio.sleep(20)
            found = Counter(message.body for _, message in await cluster.records("T"))
            assert set(found.values()) == {1}
            assert len(found) == 320 + (early != late)

    run_in_virtual_time(main())


def test_timed_message_passed_over_is_not_repeated_when_a_slow_start_is_killed() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",), mode=FlushMode.ASYNC) as cluster:
            await cluster.put_topic("T", 1)
            async with cluster.producer() as producer:
                messages = [Message("T", b"%d" % n, deliver_after_ms=3_000) for n in range(1_500)]
                await asyncio.gather(*map(producer.send, messages))
            while len(await cluster.records("T")) < len(messages):
                await asyncio.sleep(0.05)
            cluster.kill("a")
            cluster.disk_s["a"] = 0.4
            await cluster.start("a")
            await asyncio.sleep(1.5)
            cluster.kill("a")
            cluster.disk_s["a"] = 0.0
            await cluster.start("a")
            await asyncio.sleep(30)
            found = Counter(message.body for _, message in await cluster.records("T"))
            assert set(found.values()) == {1}
            assert len(found) == len(messages)

    run_in_virtual_time(main())


def put_place(disk: MemoryFileSystem, place: int) -> None:
    """Let `place` be where to look from, in both tables: a loss of power leaves such."""
    path = Path("/broker/config/delayOffset.json")
    table = parse_table(disk.nodes[path].data.tobytes()) | {"ternmqLookFrom": place}
    replace_file(disk, path, add_checksum(write_json(table)))
    path = path.with_name("timercheck")
    checkpoint = TimerCheckpoint.decode(disk.nodes[path].data.tobytes())
    replace_file(disk, path, checkpoint._replace(look_behind=place + 1).encode())


@pytest.mark.parametrize("waits", WAITS)
def test_place_beyond_the_end_of_the_log_is_none_once_the_log_has_grown(waits: str) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",), mode=FlushMode.ASYNC) as cluster:
            await cluster.put_topic("T", 1)
            async with cluster.producer() as producer:
                await cluster.send(producer, "T", **WAITS[waits])
                await asyncio.sleep(20)
                cluster.kill("a")
                put_place(cluster.disks["a"], 5_000)
                await cluster.start("a")
                await cluster.send(producer, "T", size=10_000)
                for _ in range(10):
                    await cluster.send(producer, "T", **WAITS[waits])
            await asyncio.sleep(2)
            assert len(await cluster.records("T")) == 12
            for _ in range(2):
                cluster.kill("a")
                await cluster.start("a")
                await asyncio.sleep(2)
            found = Counter(message.body for _, message in await cluster.records("T"))
            assert len(found) == found.total() == 12

    run_in_virtual_time(main())


@pytest.mark.parametrize("mode", list(FlushMode))
def test_message_laid_anew_waits_once_after_a_crash(mode: FlushMode) -> None:
    async def main() -> None:
        async with world(flush_mode=mode) as around:
            around.store_config = replace(
                SMALL_STORE, commit_log_file_bytes=8192, file_reserved_hours=1
            )
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                waits = {"TIMER_DELAY_MS": str(3 * HOUR_MS)}
                for number in range(100):
                    await client.send("A", b"%d" % number, queue_id=0, properties=waits)
                around.clock.asleep_ms += 2 * HOUR_MS
                for _ in range(20):
                    await client.send("A", bytes(2000), queue_id=0)
                while not (await waiting(client)).rolled:
                    with suppress(BrokerBusy):
                        await client.call(CLEAN_STORE, admin.CleanStoreRequest())
                    await asyncio.sleep(0.1)
                left = deepcopy(around.files)
                await client.connection.close()
            left.locks.clear()
            around.files = left
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(20)
                assert (await waiting(client)).timed == 100
                await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                around.clock.asleep_ms += HOUR_MS
                await asyncio.sleep(20)
                assert (await waiting(client)).delivered == 100
                await client.connection.close()

    run_in_virtual_time(main())


async def waiting(client: Client) -> admin.WaitingMessages:
    reply = await client.call(DESCRIBE_BROKER, admin.DescribeBrokerRequest())
    return cast("admin.DescribeBrokerReply", reply).waiting


def test_message_laid_anew_after_a_step_of_the_clock_waits_once_after_a_crash() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                waits = {"TIMER_DELAY_MS": str(HOUR_MS)}
                for number in range(10):
                    await client.send("A", b"%d" % number, queue_id=0, properties=waits)
                await asyncio.sleep(1)
                around.clock.wall_offset_ms = -2 * HOUR_MS
                with slow_jobs(10):
                    await asyncio.sleep(590)
                while not (await waiting(client)).rolled:
                    await asyncio.sleep(0.01)
                left = deepcopy(around.files)
                await client.connection.close()
            left.locks.clear()
            around.files = left
            for _ in range(2):
                async with around.broker() as broker:
                    client = await around.connect(broker)
                    await client.send("A", properties={"TIMER_DELAY_MS": "200"})
                    await asyncio.sleep(20)
                    assert (await waiting(client)).timed == 10
                    await client.connection.close()
            async with around.broker() as broker:
                client = await around.connect(broker)
                around.clock.asleep_ms += 4 * HOUR_MS
                await asyncio.sleep(20)
                assert (await waiting(client)).delivered == 10
                await client.connection.close()

    run_in_virtual_time(main())


def test_message_laid_anew_before_others_in_front_of_it_waits_once_after_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            around.store_config = replace(
                SMALL_STORE, commit_log_file_bytes=512 << 10, file_reserved_hours=1
            )
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                now_ms = around.clock.wall_ms()
                for number in range(600):
                    due_ms = now_ms + 3 * HOUR_MS + 60_000 * (number % 2)
                    waits = {"TIMER_DELIVER_MS": str(due_ms)}
                    await client.send("A", bytes(1000), queue_id=0, properties=waits)
                around.clock.asleep_ms += 2 * HOUR_MS
                await asyncio.sleep(20)
                around.sync_s = 0.05
                cleaning = asyncio.ensure_future(
                    client.call(CLEAN_STORE, admin.CleanStoreRequest())
                )
                before = timercheck(around.files)
                while not (await waiting(client)).rolled:
                    await asyncio.sleep(0.005)
                while timercheck(around.files).look_behind == before.look_behind:
                    await asyncio.sleep(0.005)
                assert (await waiting(client)).rolled == 256
                left = deepcopy(around.files)
                around.sync_s = 0
                await asyncio.gather(cleaning, return_exceptions=True)
                await client.connection.close()
            left.locks.clear()
            around.files = left
            for _ in range(2):
                async with around.broker() as broker:
                    client = await around.connect(broker)
                    await asyncio.sleep(20)
                    assert (await waiting(client)).timed == 600
                    await client.connection.close()
            assert timercheck(around.files).first_offset < 600
            monkeypatch.setattr(timed_messages, "SEARCH_BYTES_MAX", 100_000)
            async with around.broker() as broker:
                client = await around.connect(broker)
                for _ in range(20):
                    await client.send("A", bytes(10_000), queue_id=0)
                await asyncio.sleep(30)
                assert (await waiting(client)).timed == 600
                await client.connection.close()
            checkpoint = timercheck(around.files)
            assert checkpoint.first_offset == checkpoint.next_offset - 600
            assert checkpoint.look_behind > before.look_behind + 600 * 1000 + 20 * 10_000

    run_in_virtual_time(main())


def test_copy_that_progress_tells_of_lets_none_be_laid_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timed_messages, "SEARCH_BYTES_MAX", 100_000)

    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                for after_ms in (*[3 * HOUR_MS] * 20, 300):
                    waits = {"TIMER_DELAY_MS": str(after_ms)}
                    await client.send("A", b"waits", queue_id=0, properties=waits)
                while not (await waiting(client)).delivered:
                    await asyncio.sleep(0.01)
                left = deepcopy(around.files)
                await client.connection.close()
            left.locks.clear()
            around.files = left
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(20)
                for _ in range(40):
                    await client.send("A", bytes(10_000), queue_id=0)
                    await asyncio.sleep(1)
                told = await waiting(client)
                assert (told.timed, told.rolled) == (20, 0)
                await client.connection.close()

    run_in_virtual_time(main())


def timercheck(disk: MemoryFileSystem) -> TimerCheckpoint:
    return TimerCheckpoint.decode(disk.nodes[Path("/broker/config/timercheck")].data.tobytes())


async def send_much(cluster: SimulatedCluster, producer: Producer) -> None:
    for _ in range(100):
        await producer.send(Message("T", cluster.random.randbytes(10_000)))
        await asyncio.sleep(0.1)
    await asyncio.sleep(15)


@pytest.mark.parametrize("case", ["first", "old", "disabled"])
def test_start_reads_little_of_the_log(
    case: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first message comes after much else; or an old one waits, also with the timer off."""
    for module in (timed_messages, delay_levels):
        monkeypatch.setattr(module, "SEARCH_BYTES_MAX", 100_000)
    settings = {"timer_enabled": case != "disabled"}

    async def main() -> None:
        async with simulated_cluster(brokers=("a",), mode=FlushMode.ASYNC) as cluster:
            await cluster.put_topic("T", 1)
            async with cluster.producer() as producer:
                if case != "first":
                    await cluster.send(producer, "T", deliver_after_ms=HOUR_MS)
                    await asyncio.sleep(15)
                    await cluster.stop("a")
                    await cluster.start("a", **settings)
                await send_much(cluster, producer)
                await cluster.send(producer, "T", delay_level=5)
            caplog.clear()
            cluster.kill("a")
            with caplog.at_level(logging.INFO):
                await cluster.start("a", **settings)
            (begin,) = [
                int(found[1])
                for each in caplog.messages
                if (found := re.match(r"deliveries searched from=(\d+)", each))
            ]
            end = max(message.physical_offset for _, message in await cluster.records("T"))
            assert begin > end - 300_000 > 600_000
            async with cluster.producer() as producer:
                await send_much(cluster, producer)
            await cluster.stop("a")
            assert timercheck(cluster.disks["a"]).first_offset == 0
            await cluster.start("a")
            await asyncio.sleep(5)
            reply = await cluster.ask("a", DESCRIBE_BROKER, admin.DescribeBrokerRequest())
            assert reply.waiting.timed == (case != "first")

    run_in_virtual_time(main())
