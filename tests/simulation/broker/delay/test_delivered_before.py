"""Deliveries that a crash does not repeat, since the log has them."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ternmq_broker.loose_json import write_json
from ternmq_broker.table_formats import parse_table
from ternmq_broker.timer.checkpoint import TimerCheckpoint
from ternmq_model.json_checksum import add_checksum
from ternmq_model.message import Message
from ternmq_store.config import FlushMode
from ternmq_store.disk.state_file import replace_file
from tests.support.files import MemoryFileSystem
from tests.support.simulated_cluster import simulated_cluster
from tests.support.virtual_time import run_in_virtual_time

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
            for _ in range(3):
                cluster.kill("a")
                await asyncio.sleep(waits_s[late])  # then all are due
                await cluster.start("a")
                await asyncio.sleep(3)
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
