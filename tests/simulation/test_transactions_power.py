"""Transactions of many producers, while the power goes again and again at any time."""

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from ternmq_model.errors import TernError
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting import service_methods
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import FlushMode
from ternmq_testing.memory.memory_files import PowerLossFileSystem
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import Client, SessionStream, world
from tests.support.examples import seeds
from tests.support.slow_jobs import slow_jobs
from tests.support.transactions import (
    COMMIT,
    GROUP,
    ROLLBACK,
    Begun,
    begin,
    bodies_of,
    end,
    open_producer,
    question,
)

SEEDS = seeds(8, soak=1000)
LIVES = 4
PAUSES_S = (0, 0.01, 0.3, 1, 4)


@dataclass
class Producers:
    """Producers of one group, who know how each transaction is to end; None = not yet."""

    chance: Random
    fates: dict[str, transactions.Resolution | None] = field(
        default_factory=dict[str, transactions.Resolution | None]
    )
    unknown: set[str] = field(default_factory=set[str])
    """Asked about since everything was decided, and nobody knows: their answers were lost."""

    async def work(self, client: Client, name: str) -> None:
        """Begin transactions and end most of them, until the broker is gone."""
        chance = self.chance
        with contextlib.suppress(TernError, AssertionError):
            for turn in range(chance.randrange(3, 15)):
                bodies = [f"{name}-{turn}-{n}".encode() for n in range(chance.randrange(1, 4))]
                own_s = chance.choice((None, None, 1, 60))
                begun = await begin(client, *bodies, immunity_s=own_s)
                for each in begun:
                    self.fates[each.key] = chance.choice((COMMIT, COMMIT, ROLLBACK, None))
                await asyncio.sleep(chance.choice(PAUSES_S))
                ends = [each.end(fate) for each in begun if (fate := self.fates[each.key])]
                if ends and chance.random() < 0.8:
                    await end(client, *ends)
                await asyncio.sleep(chance.choice(PAUSES_S))

    async def answer(self, client: Client, session: SessionStream) -> None:
        """Tell the broker what it asks for."""
        with contextlib.suppress(TernError, AssertionError):
            while True:
                told = await question(session)
                if fate := self.fates.get(told.message_id):
                    await end(
                        client,
                        Begun("flights", told.message_id, told.transaction_offset).end(fate),
                    )
                else:
                    self.unknown.add(told.message_id)

    def decide(self) -> None:
        """Let everything be decided."""
        self.unknown.clear()
        for key, fate in self.fates.items():
            self.fates[key] = fate or self.chance.choice((COMMIT, ROLLBACK))


async def beat(session: SessionStream) -> None:
    """Keep a Session alive."""
    with contextlib.suppress(TernError):
        while True:
            heartbeat = {"producer_groups": [GROUP]}
            await session.write(service_methods.SESSION.request(heartbeat=heartbeat))
            await asyncio.sleep(10)


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("seed", SEEDS)
def test_power_loss_never_commits_twice_or_shows_uncommitted(seed: int, mode: FlushMode) -> None:
    async def main() -> None:
        chance = Random(seed)
        producers = Producers(chance)
        async with world(flush_mode=mode, seed=seed) as around:
            disk = around.files = PowerLossFileSystem()
            around.sync_s = 0.005
            for life in range(LIVES):
                async with around.broker() as broker:
                    client = await around.connect(broker)
                    await client.put_topic("flights", 1)
                    session = await open_producer(client)
                    async with OwnedTasks() as tasks:
                        tasks.spawn(producers.answer(client, session), "answer")
                        tasks.spawn(beat(session), "beat")
                        for number in range(3):
                            tasks.spawn(producers.work(client, f"{life}-{number}"), "work")
                        await asyncio.sleep(chance.uniform(0.5, 30))
                        if life < LIVES - 1:
                            disk = around.files = disk.lose_power(chance)
                        else:
                            with slow_jobs(5):
                                await asyncio.sleep(200)
                                producers.decide()
                                await asyncio.sleep(200)
                                assert await still_open(client) <= len(producers.unknown)
                                # Those are asked about 15 times, every 30 s.
                                await asyncio.sleep(400)
                            await check(client, producers, is_all_kept=mode is FlushMode.SYNC)
                    await client.connection.close()

    run_in_virtual_time(main())


async def still_open(client: Client) -> int:
    told = await client.call(service_methods.DESCRIBE_BROKER, admin.DescribeBrokerRequest())
    return int(told.transactions.open)


async def check(client: Client, producers: Producers, *, is_all_kept: bool) -> None:
    """Look what became of all.

    Args:
        client: Of the broker.
        producers: Know what should have.
        is_all_kept: No half message that was acknowledged can have gone with the power.
    """
    assert not await still_open(client)
    found = Counter(body.decode() for body in await bodies_of(client))
    assert max(found.values()) == 1
    committed = {key for key, fate in producers.fates.items() if fate == COMMIT}
    assert found.keys() <= committed
    assert not is_all_kept or committed <= found.keys()
