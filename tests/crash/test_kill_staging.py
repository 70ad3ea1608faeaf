"""Batches are staged and committed while their broker is killed: each is seen whole, or nothing."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from ternmq_model.errors import TernError
from ternmq_model.message import Message
from ternmq_model.transaction import Resolution, TransactionState
from ternmq_producer.staging import EndFailed, StagingProducer, decode_staged, encode_staged
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import FlushMode
from tests.support.examples import SEED, seeds
from tests.support.killed_cluster import KilledCluster, killed_cluster
from tests.support.processes import eventually

KILLS: Final = 3
REPEATS: Final = seeds(1, soak=10)
TOPIC: Final = "flights"
ROWS: Final = 500
IMMUNITY_S: Final = 6


@dataclass
class Batches:
    """What became of each batch, as its driver knows."""

    begun: set[int] = field(default_factory=set[int])
    """Their commit began."""

    committed: set[int] = field(default_factory=set[int])
    """It was confirmed."""

    given_up: set[int] = field(default_factory=set[int])
    """Some of their rows were rolled back before: the time was over."""

    count: int = 0


async def run_batches(cluster: KilledCluster, batches: Batches) -> None:
    """Stage, look, and commit, roll back or forget, one batch after the other."""
    chance = cluster.random
    while True:
        number = batches.count
        batches.count += 1
        async with StagingProducer("sink", nameserver=cluster.nameserver) as producer:
            messages = [Message(TOPIC, b"%d %d" % (number, row)) for row in range(ROWS)]
            try:
                staged = await producer.stage(
                    messages, staged_for=f"q/{number}", immunity_s=IMMUNITY_S, timeout_s=3
                )
            except TernError:
                continue
            carried = encode_staged(staged)
        match chance.randrange(4):
            case 0:
                continue  # its driver died
            case 1:
                await end(cluster, carried, Resolution.ROLLBACK)
            case _:
                await commit(cluster, batches, number, carried)


async def commit(cluster: KilledCluster, batches: Batches, number: int, carried: bytes) -> None:
    """Do what a driver does, in a producer of its own; now and then once more."""
    async with StagingProducer("sink", nameserver=cluster.nameserver) as producer:
        states = await producer.states(decode_staged(carried))
        if states != [TransactionState.OPEN] * ROWS:
            return
        batches.begun.add(number)
    for _ in range(1 + (number % 3 == 0)):
        if not await end(cluster, carried, Resolution.COMMIT):
            batches.given_up.add(number)
            return
        batches.committed.add(number)


async def end(cluster: KilledCluster, carried: bytes, resolution: Resolution) -> bool:
    """End a batch; False when its time was over before all of it was."""
    async with StagingProducer("sink", nameserver=cluster.nameserver) as producer:
        try:
            await producer.end(decode_staged(carried), resolution)
        except EndFailed as failed:
            if not all("rolled back already" in str(why) for why in failed.failed.values()):
                raise
            return False
        return True


async def check(cluster: KilledCluster, batches: Batches) -> None:
    """Hold what can be read against what is known."""
    committed = set(batches.committed)
    records = await cluster.records(TOPIC)
    found = Counter(message.body for _, message in records)
    assert all(count == 1 for count in found.values()), "a row is there twice"
    rows = Counter(int(body.split()[0]) for body in found)
    assert set(rows) <= batches.begun, "a row of a batch whose commit never began"
    lost = {number: rows[number] for number in committed if rows[number] != ROWS}
    assert not lost, "rows of a committed batch are lost"


@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize("mode", FlushMode)
def test_uncommitted_batches_stay_invisible_and_committed_ones_complete(
    mode: FlushMode, repeat: int, tmp_path: Path
) -> None:
    async def main() -> None:
        async with killed_cluster(tmp_path, mode, seed=(SEED, repeat)) as cluster:
            batches = Batches()
            await cluster.put_topic(TOPIC, 2)
            async with OwnedTasks() as tasks:
                running = [
                    tasks.spawn(run_batches(cluster, batches), f"batches {name}")
                    for name in range(3)
                ]
                for _ in range(KILLS):
                    await asyncio.sleep(cluster.random.random() * 2 + 0.3)
                    await cluster.kill()
                    await cluster.start()
                    await check(cluster, batches)
                done = len(batches.committed)
                assert await eventually(lambda: len(batches.committed) > done)
                for task in running:
                    assert not task.done(), task
                    task.cancel()

            async def all_are_ended() -> bool:
                return not await cluster.open_transactions()

            assert await eventually(all_are_ended)
            await check(cluster, batches)
            assert batches.committed

    print(f"seed {SEED}")
    asyncio.run(main())
