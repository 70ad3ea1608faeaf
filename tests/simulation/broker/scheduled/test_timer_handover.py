"""A store that changes hands between RocketMQ and a broker, end to end on virtual time."""

import asyncio
import struct
from pathlib import Path
from random import Random
from typing import Final

import numpy as np
import pytest

from ternmq_broker.state.timer_checkpoint import TimerCheckpoint
from ternmq_store.config import FlushMode
from ternmq_testing.memory.memory_files import MemoryFileSystem, Node, PowerLossFileSystem
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, World, stored, world
from tests.support.examples import points

DATA: Final = Path("/broker")
CHECK: Final = DATA / "config" / "timercheck"
WHEEL: Final = (DATA / "timerlog" / f"{0:020d}", DATA / "timerwheel")
MINUTES_MS: Final = 600_000
COUNT: Final = 20
QUEUE: Final = DATA / "consumequeue" / "rmq_sys_wheel_timer" / "0" / f"{0:020d}"


class SnapshotFileSystem(PowerLossFileSystem):
    """Keeps what a loss of power would leave at every change, from when it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshots: list[PowerLossFileSystem] | None = None

    def happen(self) -> None:
        """Take a snapshot."""
        if self.snapshots is not None:
            self.snapshots.append(self.lose_power(Random(len(self.snapshots))))


def put(files: MemoryFileSystem, path: Path, content: bytes) -> None:
    """Have a file on the disk."""
    data = np.frombuffer(content, dtype=np.uint8).copy()
    files.make_folder(path.parent)
    files.record((path, Node(data, data.copy(), len(data))))
    files.sync_folder(path.parent)


class RefusingFileSystem(PowerLossFileSystem):
    """Moves nothing to where wheels are retired, while it is told so."""

    is_refusing = True

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name."""
        if self.is_refusing and "timer.retired" in new.parts:
            raise NotADirectoryError(20, "not a directory", str(new))
        super().rename(old, new)


async def bodies_of(client: Client) -> list[bytes]:
    found: list[bytes] = []
    while messages := stored(await client.pull("A", len(found))):
        found += [message.body for message in messages]
    return found


async def left_by_rocketmq(around: World, *, behind_ms: int) -> SnapshotFileSystem:
    """Give a broker what RocketMQ leaves: twenty messages in its wheel, none of them due.

    Args:
        around: Gets the files.
        behind_ms: By how much the clock is behind RocketMQ's.
    """
    files = around.files = SnapshotFileSystem()
    async with around.broker(flush_mode=FlushMode.SYNC) as broker:
        client = await around.connect(broker)
        await client.put_topic("A", 1)
        for number in range(COUNT):
            properties = {"TIMER_DELAY_MS": str(2 * MINUTES_MS + 500 * number)}
            await client.send("A", b"%d" % number, queue_id=0, properties=properties)
        await client.connection.close()
    read_ms = around.clock.wall_ms() + behind_ms
    kept = TimerCheckpoint(read_ms, 520, first_offset=COUNT, next_offset=COUNT)
    for path in (CHECK, *WHEEL):
        put(files, path, kept.encode())
    return files


@pytest.mark.parametrize("behind_ms", [0, MINUTES_MS])
def test_take_over_notes_where_to_begin_before_it_retires_the_wheel(behind_ms: int) -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            files = await left_by_rocketmq(around, behind_ms=behind_ms)
            files.snapshots = []
            async with around.broker():
                await asyncio.sleep(3)
                snapshots, files.snapshots = files.snapshots, None
            retired = 0
            for snapshot in snapshots:
                paths = (CHECK, CHECK.with_name("timercheck.bak"))
                check = next(path for path in paths if path in snapshot.nodes)
                kept = TimerCheckpoint.decode(snapshot.nodes[check].data.tobytes())
                has_wheel = [path in snapshot.nodes for path in WHEEL]
                retired += not all(has_wheel)
                assert all(has_wheel) or not kept.timer_log_position
            assert 0 < retired < len(snapshots)

    run_in_virtual_time(main())


@pytest.mark.parametrize("behind_ms", [0, MINUTES_MS])
def test_power_loss_during_a_take_over_loses_no_timed_message(behind_ms: int) -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.ASYNC) as around:
            files = await left_by_rocketmq(around, behind_ms=behind_ms)
            files.snapshots = []
            async with around.broker():
                await asyncio.sleep(3)
                snapshots, files.snapshots = files.snapshots, None
            for around.files in points(snapshots):
                around.clock.asleep_ms = 0
                async with around.broker() as broker:
                    client = await around.connect(broker)
                    await asyncio.sleep(1)
                    around.clock.asleep_ms = 2 * MINUTES_MS
                    await asyncio.sleep(25)
                    assert set(await bodies_of(client)) == {b"%d" % n for n in range(COUNT)}
                    await client.connection.close()

    run_in_virtual_time(main())


def test_wheel_that_cannot_be_retired_holds_nothing_up_and_is_tried_again() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            files = around.files = RefusingFileSystem()
            put(files, WHEEL[1], b"old")
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                await client.send("A", b"x", queue_id=0, properties={"TIMER_DELAY_MS": "5000"})
                await asyncio.sleep(6)
                assert await bodies_of(client) == [b"x"]
                assert WHEEL[1] in files.nodes
                files.is_refusing = False
                await asyncio.sleep(60)
                assert WHEEL[1] not in files.nodes
                await client.connection.close()

    run_in_virtual_time(main())


def units_left(around: World) -> list[tuple[int, int]]:
    """Return where the records of the timer log lie, each with its delay."""
    if WHEEL[0] not in around.files.nodes:
        return []
    content = around.files.nodes[WHEEL[0]].data.tobytes()
    assert len(content) == 100 << 20
    count = next(n for n in range(len(content)) if not content[52 * n + 3])
    units = [struct.unpack_from(">iqiqiqi", content, 52 * n) for n in range(count)]
    return [(offset, delay_ms) for _, _, _, _, delay_ms, offset, _ in units]


def places(around: World) -> list[int]:
    """Return where the messages of the queue lie in the log."""
    content = around.files.nodes[QUEUE].data.tobytes()
    units = struct.iter_unpack(">qiq", content[: len(content) // 20 * 20])
    return [offset for offset, size, _ in units if size]


def test_stop_in_order_leaves_a_timer_log_of_what_waits_until_the_next_start() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("A", 1)
                at_ms = around.clock.wall_ms() + 10_000

                async def send(body: bytes, after_ms: int, **properties: str) -> None:
                    told = {"TIMER_DELIVER_MS": str(at_ms + after_ms), **properties}
                    await client.send("A", body, queue_id=0, properties=told)

                await send(b"waits", MINUTES_MS)
                await send(b"delivered", 0)
                await send(b"cancelled", 0, UNIQ_KEY="one")
                await send(b"cancels", 0, TIMER_DEL_UNIQKEY="one")
                await send(b"cancelled later", MINUTES_MS, UNIQ_KEY="two")
                await send(b"cancels later", MINUTES_MS, TIMER_DEL_UNIQKEY="two")
                await send(b"delivered, too", 1_000)
                await asyncio.sleep(15)
                assert await bodies_of(client) == [b"delivered", b"delivered, too"]
                await client.connection.close()
            where = places(around)
            left = units_left(around)
            assert [offset for offset, _ in left] == [where[0], *where[4:7]]
            assert left[-1][1] == -1000  # tells RocketMQ where to go on
            assert all(0 < delay_ms <= MINUTES_MS + 10_000 for _, delay_ms in left[:-1])
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(0.1)
                assert WHEEL[0] not in around.files.nodes
                around.clock.asleep_ms += MINUTES_MS
                await asyncio.sleep(15)
                assert (await bodies_of(client))[2:] == [b"waits"]
                await client.connection.close()
            assert not units_left(around)

    run_in_virtual_time(main())


def test_slave_removes_the_timer_log_of_its_time_as_master() -> None:
    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            put(around.files, WHEEL[0], b"left")
            async with around.broker(broker_id=1):
                assert WHEEL[0] not in around.files.nodes

    run_in_virtual_time(main())
