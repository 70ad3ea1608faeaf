"""A broker that is killed at any moment keeps every message that it acknowledged."""

import asyncio
import contextlib
import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ternmq_model.errors import RefusedError, TransportError
from ternmq_model.offsets import QueueOffset
from ternmq_model.response_code import ResponseCode as Code
from ternmq_runtime.clock import SystemClock
from ternmq_store.config import FlushMode
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.message_store import MessageStore
from tests.support.brokers import SMALL_STORE, Client, connected, offsets_of, stored
from tests.support.examples import SEED, examples
from tests.support.index_queries import query
from tests.support.processes import TINY, ServiceProcess, running_broker
from tests.support.store_process import Acknowledged, body_of, key_of

ROUNDS = examples(3, soak=50)
ROUNDS_A_STORE = 5
SENDERS = 4
SOON_S = 150.0
STORE = replace(SMALL_STORE, commit_log_file_bytes=1 << 20)
"""What `TINY` says."""


def running(data: Path, mode: FlushMode) -> ServiceProcess:
    """Start a broker on `data`."""
    settings = (*TINY, f"broker.flush_mode={mode.value}")
    return running_broker(data.parent / "broker", "", data=data, settings=settings)


async def send_until_killed(
    process: ServiceProcess, first: int, delay_s: float
) -> list[Acknowledged]:
    """Send on several streams until the broker dies; return what it acknowledged."""
    found: list[Acknowledged] = []
    async with asyncio.timeout(SOON_S), connected(process.broker) as client:
        timer = threading.Timer(delay_s, process.process.kill)
        # However slow the machine is, there is something to look for.
        await send(client, first + 900_000, found, batches_max=1)
        timer.start()
        await asyncio.gather(
            *(send(client, first + 250_000 * sender, found) for sender in range(SENDERS))
        )
    process.kill()
    return found


async def send(
    client: Client, number: int, found: list[Acknowledged], *, batches_max: int = 1 << 30
) -> None:
    """Send batches, each to one queue, one after the other."""
    chance = random.Random(number)
    # gRPC tells a write's failure on a broken stream as its own.
    with contextlib.suppress(TransportError, RefusedError):
        sender = await client.open_sender()
        for _ in range(batches_max):
            topic, queue_id, count = chance.choice("AB"), chance.randrange(2), chance.choice((1, 9))
            numbers = range(number, number + count)
            records = [
                sender.record(
                    topic,
                    body_of(each),
                    queue_id=queue_id,
                    properties={"KEYS": key_of(each), "UNIQ_KEY": f"{each:032X}"},
                )
                for each in numbers
            ]
            reply = await sender.send(*records)
            number += count
            if reply.status.code == Code.SYSTEM_BUSY:  # the log's next file is not ready yet
                continue
            assert reply.status.code == Code.SUCCESS, reply.status
            rows = zip(
                numbers,
                offsets_of(reply.queue_offsets),
                offsets_of(reply.physical_offsets),
                strict=True,
            )
            found += [Acknowledged(each, topic, queue_id, *places) for each, *places in rows]


async def everything(
    process: ServiceProcess, queues: set[tuple[str, int]]
) -> dict[tuple[str, int, int], tuple[int, bytes]]:
    """Return physical offset and body of every message that can be pulled."""
    found: dict[tuple[str, int, int], tuple[int, bytes]] = {}
    async with asyncio.timeout(SOON_S), connected(process.broker) as client:
        for topic, queue_id in sorted(queues):
            offset = 0
            while (reply := await client.pull(topic, offset, queue_id=queue_id)).records:
                for message in stored(reply):
                    place = (topic, queue_id, message.queue_offset)
                    found[place] = (message.physical_offset, message.body)
                offset = reply.next_offset
    return found


def check_index(data: Path, mode: FlushMode, expected: list[Acknowledged]) -> None:
    """Look messages up by their keys, and their queues' order, in the store itself."""
    store = MessageStore.open(data, STORE, mode, RealFileSystem(), SystemClock())
    try:
        index = store._index  # pyright: ignore[reportPrivateUsage]
        assert index is not None
        some = random.Random(len(expected)).sample(expected, min(2000, len(expected)))
        for each in some:
            places = query(index, each.topic, each.key, 0, 1 << 62, 64)
            assert each.physical_offset in places, each
        for topic, queue_id in store.queues():
            least, end = store.queue_range(topic, queue_id)
            assert (least, store.next_offset(topic, queue_id)) == (QueueOffset(0), end)
    finally:
        store.close()


@pytest.mark.parametrize("mode", FlushMode)
def test_every_acknowledged_message_survives_kill_9(tmp_path: Path, mode: FlushMode) -> None:
    print(f"TESTS_SEED={SEED} repeats the moments as well as a machine can")
    chance = random.Random(f"{SEED} {mode}")
    expected: list[Acknowledged] = []
    total = 0
    for round_ in range(ROUNDS):
        data = tmp_path / str(round_ // ROUNDS_A_STORE)
        if round_ % ROUNDS_A_STORE == 0:
            expected.clear()
        with running(data, mode) as process:
            found = asyncio.run(
                send_until_killed(process, round_ * 1_000_000, chance.uniform(0.0, 1.0))
            )
        expected += found
        total += len(found)
        if chance.random() < 0.5 or round_ == ROUNDS - 1:
            queues = {(each.topic, each.queue_id) for each in expected}
            with running(data, mode) as process:
                pulled = asyncio.run(everything(process, queues))
            for each in expected:
                place = (each.topic, each.queue_id, each.queue_offset)
                assert pulled.get(place) == (each.physical_offset, each.body), each
            check_index(data, mode, expected)
    assert total > 0
    print(f"mode={mode.value} rounds={ROUNDS} acknowledged={total}")
