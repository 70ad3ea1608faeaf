"""Delayed and timed messages that Apache RocketMQ left: our broker goes on with them."""

import asyncio
import struct
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from ternmq_broker.state.fastjson import parse_json
from ternmq_broker.state.timer_checkpoint import TimerCheckpoint
from ternmq_model.properties import tag_code
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_testing.memory.memory_files import Node
from ternmq_testing.time.virtual_time import EPOCH_MS, run_in_virtual_time
from tests.support.brokers import Client, stored, world
from tests.support.rocketmq import copy_in, manifest, unpack_store

DATA: Final = Path("/broker")
STORE: Final = StoreConfig(
    commit_log_file_bytes=65_536, consume_queue_file_units=100, index_slots=500, index_entries=400
)
WHEEL: Final = DATA / "consumequeue" / "rmq_sys_wheel_timer" / "0" / ("0" * 20)
UNIT: Final = struct.Struct(">qiq")


async def read(client: Client, topic: str, queues: int) -> Counter[tuple[str, int, bytes]]:
    """Return every message of a topic: its unique key, its level, its body."""
    found: Counter[tuple[str, int, bytes]] = Counter()
    for queue_id in range(queues):
        offset = 0
        while True:
            reply = await client.pull(topic, offset, queue_id=queue_id)
            messages = stored(reply)
            if not messages:
                break
            offset = reply.next_offset
            for each in messages:
                level = int(each.properties.get("DELAY", "0"))
                found[each.message_id, level, each.body] += 1
    return found


def test_messages_delayed_by_rocketmq_are_delivered_once_and_on_time(tmp_path: Path) -> None:
    root = unpack_store(tmp_path)
    last_ms = max(line["storeTimestamp"] for line in manifest(root, "record"))
    waiting = [
        line["tagsCode"]
        for line in manifest(root, "unit")
        if line["topic"] == "SCHEDULE_TOPIC_XXXX" and line["queueId"] == 17
    ]
    assert len(waiting) == 6

    async def main() -> None:
        async with world() as around:
            around.store_config = STORE
            copy_in(around.files, root, DATA)
            around.clock.wall_offset_ms = last_ms - EPOCH_MS
            async with around.broker() as broker:
                client = await around.connect(broker)
                before = await read(client, "Later", 2)
                await asyncio.sleep(60)
                assert await read(client, "Later", 2) == before
                around.clock.asleep_ms += max(waiting) - around.clock.wall_ms() - 15_000
                await asyncio.sleep(10)
                assert await read(client, "Later", 2) == before
                await asyncio.sleep(6)
                after = await read(client, "Later", 2)
                new = after - before
                assert new.total() == 6
                assert {level for _, level, _ in new} == {18}
                assert max(after.values()) == 1
                await client.connection.close()
            kept = around.files.nodes[DATA / "config" / "delayOffset.json"].data.tobytes()
            assert parse_json(kept.decode())["offsetTable"] == {"1": 6, "3": 5, "18": 6}

    run_in_virtual_time(main())


@pytest.mark.parametrize("is_killed", [False, True])
def test_timed_messages_of_a_rocketmq_queue_are_delivered_on_time(is_killed: bool) -> None:
    """Its units have tag codes, and what waits is in its timer log, which is not read."""

    async def main() -> None:
        async with world(flush_mode=FlushMode.SYNC) as around:
            async with around.broker() as broker:
                client = await around.connect(broker)
                await client.put_topic("Later", 1)
                for number in range(20):
                    properties = {"TIMER_DELAY_MS": str(5_000 * (number + 1)), "TAGS": "late"}
                    await client.send("Later", b"%d" % number, queue_id=0, properties=properties)
                await asyncio.sleep(1)
                await client.connection.close()
            began_ms = around.clock.wall_ms()
            node = around.files.nodes[WHEEL]
            for at in range(0, 20 * UNIT.size, UNIT.size):
                offset, size, code = UNIT.unpack_from(node.data.data, at)
                assert code > 1 << 32
                UNIT.pack_into(node.data.data, at, offset, size, tag_code("late"))
            # All of the queue is in its timer log.
            kept = TimerCheckpoint(
                read_ms=began_ms + 9_000, timer_log_position=520, first_offset=20, next_offset=20
            )
            data = np.frombuffer(kept.encode(), dtype=np.uint8).copy()
            path = DATA / "config" / "timercheck"
            around.files.nodes[path] = Node(data, data.copy(), len(data))
            wheel = {
                DATA / name: Node(data, data.copy(), len(data))
                for name in ("timerwheel", f"timerlog/{0:020d}")
            }
            metrics = DATA / "config" / "timermetrics"
            around.files.nodes |= {**wheel, metrics: Node(data, data.copy(), len(data))}
            around.files.made_folders.add(DATA / "timerlog")
            if is_killed:
                abort = np.zeros(0, dtype=np.uint8)
                around.files.nodes[DATA / "abort"] = Node(abort, abort.copy(), 0)
            async with around.broker() as broker:
                client = await around.connect(broker)
                await asyncio.sleep(30)
                bodies = {body for _, _, body in await read(client, "Later", 1)}
                # The first two were due by the time that RocketMQ had read.
                assert bodies == {b"2", b"3", b"4", b"5"}
                assert not wheel.keys() & around.files.nodes.keys()
                moved = {DATA / "timer.retired" / each.relative_to(DATA) for each in wheel}
                assert {*moved, metrics} <= around.files.nodes.keys()
                # Where RocketMQ would begin.
                left = TimerCheckpoint.decode(around.files.nodes[path].data.tobytes())
                assert (left.timer_log_position, left.first_offset, left.next_offset) == (0, 6, 20)
                await asyncio.sleep(80)
                found = await read(client, "Later", 1)
                assert {body for _, _, body in found} == {b"%d" % n for n in range(2, 20)}
                assert max(found.values()) == 1
                await client.connection.close()

    run_in_virtual_time(main())
