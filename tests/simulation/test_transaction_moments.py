"""A broker that ends at any step of its disk in the life of transactions, and what comes of them.

One broker runs through a script with commits, rollbacks, questions, a transaction that is parked,
one whose producer never comes back, and staged ones that are committed, rolled back or forgotten.
Before every write to its disk, what a crash would leave is put aside; each of these is then
started, and its transactions are brought to their end.
"""

import asyncio
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import FlushMode
from ternmq_testing.memory.memory_files import PowerLossFileSystem
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.brokers import SMALL_STORE, Client, World, world
from tests.support.moments import MomentDisk
from tests.support.transactions import (
    COMMIT,
    ROLLBACK,
    Begun,
    begin,
    bodies_of,
    end,
    open_producer,
    question,
)

SETTINGS: dict[str, Any] = {
    "transaction_timeout_ms": 1_000,
    "transaction_check_interval_ms": 2_000,
    "transaction_checks_max": 2,
    "transaction_op_interval_ms": 700,
    "offsets_interval_ms": 1_000,
}
PARTS = 4
"""Each looks at every fourth step; together they look at all."""

STAGED = frozenset("xyz")
"""Nobody is asked about these: one whose end was not confirmed may be rolled back when it is over.
"""

STORE = replace(SMALL_STORE, commit_log_file_bytes=64 << 10, index_slots=64, index_entries=256)


@dataclass
class Promises:
    """What producers know at a moment."""

    told: dict[str, transactions.Resolution] = field(
        default_factory=dict[str, "transactions.Resolution"]
    )
    """How each transaction ends, once its producer has decided."""

    acked: set[str] = field(default_factory=set[str])
    """Ends that the broker has confirmed."""

    begun: dict[str, Begun] = field(default_factory=dict[str, Begun])
    """Half messages that the broker has confirmed."""


@dataclass
class Moment:
    """What a crash left, and what was promised by then."""

    number: int
    left: PowerLossFileSystem
    promises: Promises


class Script:
    """The life of one broker."""

    def __init__(self) -> None:
        self.promises = Promises()
        self.moments: list[Moment] = []

    def look(self, number: int, left: PowerLossFileSystem) -> None:
        """Put a moment aside."""
        now = self.promises
        kept = Promises(dict(now.told), set(now.acked), dict(now.begun))
        self.moments.append(Moment(number, left, kept))

    async def begin(self, client: Client, *names: str, staged_for: str | None = None) -> None:
        immunity_s = 2 if staged_for else None
        keys = [name.encode() for name in names]
        begun = await begin(client, *keys, staged_for=staged_for, immunity_s=immunity_s)
        self.promises.begun |= {each.key: each for each in begun}

    async def end(self, client: Client, **resolutions: transactions.Resolution) -> None:
        self.promises.told |= resolutions
        begun = self.promises.begun
        requests = [begun[name].end(resolution) for name, resolution in resolutions.items()]
        for name, reply in zip(resolutions, await end(client, *requests), strict=True):
            assert not reply.status.code, (name, reply)
            self.promises.acked.add(name)

    async def run(self, around: World) -> None:
        """Do everything."""
        async with around.broker(**SETTINGS) as broker, OwnedTasks() as tasks:
            client = await around.connect(broker)
            await client.put_topic("flights", 1)
            await self.begin(client, "a", "b", "c", "d")
            await self.end(client, a=COMMIT, b=ROLLBACK)
            await self.begin(client, *sorted(STAGED), staged_for="q/1")
            await self.end(client, x=COMMIT, y=ROLLBACK)
            session = await open_producer(client)

            async def answer() -> None:
                while True:
                    told = await question(session)
                    if told.message_id == "c" and told.check == 1:
                        await self.end(client, c=COMMIT)

            tasks.spawn(answer(), "answer")
            await asyncio.sleep(1.5)
            await self.begin(client, "e", "f", "g")
            await self.end(client, e=COMMIT, f=COMMIT)
            await asyncio.sleep(2.5)
            await self.end(client, g=ROLLBACK)
            await self.begin(client, "h")
            await asyncio.sleep(2)
            await self.end(client, h=COMMIT)
            await asyncio.sleep(1)
            await client.connection.close()


def expected_of(promises: Promises, key: str) -> transactions.Resolution:
    """Return what the producers of a transaction say when they are asked."""
    return promises.told.get(key, ROLLBACK)


async def check(around: World, moment: Moment) -> None:
    """Start what a moment left, bring everything to its end, and hold it to what was promised."""
    promises, number = moment.promises, moment.number
    later = World(around.network, moment.left, around.config, STORE)
    async with later.broker("survivor", **SETTINGS) as broker, OwnedTasks() as tasks:
        client = await later.connect(broker, "survivor")
        session = await open_producer(client)

        async def answer() -> None:
            while True:
                told = await question(session)
                begun = Begun("flights", told.message_id, told.transaction_offset)
                await end(client, begun.end(expected_of(promises, told.message_id)))

        tasks.spawn(answer(), "answer")
        for key in sorted(promises.acked):
            other = ROLLBACK if promises.told[key] == COMMIT else COMMIT
            (reply,) = await end(client, promises.begun[key].end(other))
            assert reply.status.code == ResponseCode.ILLEGAL_OPERATION, f"step {number}: {key}"
            (reply,) = await end(client, promises.begun[key].end(promises.told[key]))
            assert not reply.status.code, f"step {number}: {key}: {reply.status}"
        await asyncio.sleep(4)
        found = [body.decode() for body in await bodies_of(client)] if promises.begun else []
        assert len(set(found)) == len(found), f"step {number}: twice: {found}"
        wanted = {key for key, told in promises.told.items() if told == COMMIT}
        wanted -= STAGED - promises.acked - set(found)
        assert set(found) == wanted, f"step {number}: {found}, not {sorted(wanted)}"
        for key, begun in promises.begun.items():
            (reply,) = await end(client, begun.end(COMMIT))
            assert (reply.status.code == 0) == (key in wanted), f"step {number}: {key}: {reply}"
        await client.connection.close()


@pytest.mark.parametrize("mode", [FlushMode.SYNC, FlushMode.ASYNC])
@pytest.mark.parametrize("part", range(PARTS))
def test_transactions_end_once_wherever_the_broker_ends(mode: FlushMode, part: int) -> None:
    async def main() -> None:
        script = Script()
        loses_power = mode is FlushMode.SYNC
        disk = MomentDisk(Random(part), script.look, loses_power=loses_power)
        disk.watched = range(part, 1 << 30, PARTS)
        async with world(flush_mode=mode) as around:
            around.files, around.store_config, around.sync_s = disk, STORE, 0.005
            await script.run(around)
            assert len(script.moments) > 20
            for moment in script.moments:
                await check(around, moment)

    run_in_virtual_time(main())
