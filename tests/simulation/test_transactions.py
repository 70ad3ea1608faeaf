"""Transactions on a simulated cluster whose brokers and producers die at any moment.

The applications' data base is a dict: `execute` writes a row or dies before it, and `check` reads
it. What it says of a message that was never executed is kept, so that nobody executes it later.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random

import pytest

from ternmq_model.errors import TernError
from ternmq_model.message import Message
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution, TransactionResult
from ternmq_producer.transactions.transaction_producer import TransactionProducer
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.examples import seeds
from tests.support.history import Decision, Outcome, id_of, make_body
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

TOPIC = "paid"
SEEDS = seeds(3, soak=500, first=10)
DECISIONS = {Resolution.COMMIT: Decision.COMMITTED, Resolution.ROLLBACK: Decision.ROLLED_BACK}


class Died(Exception):
    """The application's process is gone."""


@dataclass
class DataBase:
    """What applications keep, and how they fail."""

    random: Random
    rows: dict[str, Resolution] = field(default_factory=dict[str, Resolution])
    executed: set[str] = field(default_factory=set[str])
    checked: list[str] = field(default_factory=list[str])
    trouble: float = 0.0

    async def execute(self, message: Message, argument: object) -> Resolution:
        """Do the work of a message, if nothing happens."""
        name = id_of(message.body)
        assert name not in self.executed, f"{name} executed twice"
        self.executed.add(name)
        await asyncio.sleep(self.random.random() * 0.02)
        if self.random.random() < self.trouble:
            raise Died
        wanted = argument if isinstance(argument, Resolution) else Resolution.COMMIT
        resolution = self.rows.setdefault(name, wanted)
        if self.random.random() < self.trouble:
            raise Died
        return resolution

    async def check(self, message: StoredMessage) -> Resolution:
        """Say what became of a message; one that was not executed never is from now on."""
        name = id_of(message.body)
        self.checked.append(name)
        assert message.topic == TOPIC
        return self.rows.setdefault(name, Resolution.ROLLBACK)


def producer_of(
    cluster: SimulatedCluster, base: DataBase, host: str = "producer"
) -> TransactionProducer:
    return TransactionProducer(
        "payers",
        execute=base.execute,
        check=base.check,
        topics=(TOPIC,),
        nameserver=NAMESERVER,
        env=cluster.environment(host),
    )


async def send(
    cluster: SimulatedCluster,
    producer: TransactionProducer,
    resolution: Resolution = Resolution.COMMIT,
) -> TransactionResult | TernError:
    """Do one transaction and note what its sender learned."""
    name = cluster.next_id()
    sent = cluster.history.note_sent(name, TOPIC, Outcome.UNKNOWN)
    try:
        result = await producer.send(Message(TOPIC, make_body(name, 0)), resolution)
    except TernError as error:
        if not error.may_have_happened:
            sent.outcome = Outcome.REFUSED
        return error
    sent.outcome = Outcome.STORED
    return result


async def settled(cluster: SimulatedCluster, base: DataBase, seconds: float = 120) -> None:
    """Let everything be asked for, then hold what lies in the topic against the data base."""
    await asyncio.sleep(seconds)
    for name, sent in cluster.history.sent.items():
        sent.decision = DECISIONS[base.rows.get(name, Resolution.ROLLBACK)]
        if name not in base.rows and sent.outcome is Outcome.UNKNOWN:
            sent.decision = Decision.ROLLED_BACK
    await cluster.scan(TOPIC)
    cluster.history.check(seed=cluster.seed)
    lying = [each.message_id for each in cluster.history.lying]
    committed = {name for name, row in base.rows.items() if row is Resolution.COMMIT}
    assert sorted(lying) == sorted(committed), f"seed {cluster.seed}"


def test_transaction_is_delivered_or_dropped_as_its_local_one_ends() -> None:
    async def main() -> None:
        async with simulated_cluster(seed=1) as cluster:
            base = DataBase(Random(1))
            async with producer_of(cluster, base) as producer:
                done = await send(cluster, producer)
                undone = await send(cluster, producer, Resolution.ROLLBACK)
                assert isinstance(done, TransactionResult)
                assert isinstance(undone, TransactionResult)
                assert (done.is_confirmed, done.queue_offset) == (True, 0)
                assert (undone.is_confirmed, undone.resolution) == (True, Resolution.ROLLBACK)
                assert done.queue_id == done.sent.queue.queue_id
                await settled(cluster, base)
            assert not base.checked

    run_in_virtual_time(main())


@pytest.mark.parametrize("wrote_its_row", [True, False])
def test_another_producer_answers_for_a_dead_one(wrote_its_row: bool) -> None:
    async def main() -> None:
        async with simulated_cluster(seed=2) as cluster:
            base = DataBase(Random(2))

            async def die(message: Message, argument: object) -> Resolution:
                if wrote_its_row:
                    base.rows[id_of(message.body)] = Resolution.COMMIT
                raise Died

            first = TransactionProducer(
                "payers",
                execute=die,
                check=base.check,
                nameserver=NAMESERVER,
                env=cluster.environment("first"),
            )
            async with first:
                result = await send(cluster, first)
                assert isinstance(result, TransactionResult)
                assert result.resolution is Resolution.UNKNOWN
            async with producer_of(cluster, base, "second"):
                await settled(cluster, base)
            assert len(base.checked) == 1

    run_in_virtual_time(main())


def test_plain_function_is_checked_and_its_exception_leaves_the_transaction_open() -> None:
    async def main() -> None:
        async with simulated_cluster(seed=3) as cluster:
            base = DataBase(Random(3))
            answers = iter((Resolution.UNKNOWN, None, Died(), Resolution.COMMIT))

            def check(message: StoredMessage) -> Resolution:
                base.checked.append(id_of(message.body))
                answer = next(answers)
                if isinstance(answer, Died):
                    raise answer
                if answer is Resolution.COMMIT:
                    base.rows[id_of(message.body)] = answer
                return answer  # type: ignore[return-value]

            producer = TransactionProducer(
                "payers",
                execute=lambda message, argument: Resolution.UNKNOWN,
                check=check,
                nameserver=NAMESERVER,
                env=cluster.environment("producer"),
            )
            async with producer:
                await send(cluster, producer)
                await settled(cluster, base)
            assert base.checked == ["m1"] * 4

    run_in_virtual_time(main())


def test_producer_is_not_checked_while_its_local_transaction_runs() -> None:
    async def main() -> None:
        async with simulated_cluster(seed=4) as cluster:
            base = DataBase(Random(4))

            async def slow(message: Message, argument: object) -> Resolution:
                await asyncio.sleep(60)
                return await base.execute(message, argument)

            producer = TransactionProducer(
                "payers",
                execute=slow,
                check=base.check,
                nameserver=NAMESERVER,
                env=cluster.environment("producer"),
            )
            async with producer:
                result = await send(cluster, producer)
                assert isinstance(result, TransactionResult)
                assert result.is_confirmed
                await settled(cluster, base)
            assert not base.checked

    run_in_virtual_time(main())


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("seed", SEEDS)
def test_each_transaction_commits_once_while_everything_dies(seed: int, mode: FlushMode) -> None:
    async def one_life(cluster: SimulatedCluster, base: DataBase, host: str) -> None:
        async with producer_of(cluster, base, host) as producer, OwnedTasks() as tasks:
            for _ in range(30):
                resolution = cluster.random.choice((Resolution.COMMIT, Resolution.ROLLBACK))
                tasks.spawn(send(cluster, producer, resolution), "send")
                await asyncio.sleep(cluster.random.random() * 0.3)
            await asyncio.sleep(cluster.random.random())

    async def trouble(cluster: SimulatedCluster) -> None:
        for _ in range(6):
            await asyncio.sleep(cluster.random.random() * 6)
            name = cluster.random.choice(cluster.running)
            # What was flushed asynchronously survives a crash of the process, not of the machine.
            if mode is FlushMode.SYNC and cluster.random.random() < 0.5:
                cluster.lose_power(name)
            elif cluster.random.random() < 0.5:
                cluster.kill(name)
            elif cluster.random.random() < 0.5:
                cluster.network.cut("producer")
                continue
            else:
                cluster.network.partition("producer", name)
                await asyncio.sleep(cluster.random.random() * 10)
                cluster.network.heal()
                continue
            await asyncio.sleep(cluster.random.random() * 4)
            await cluster.start(name)

    async def main() -> None:
        async with simulated_cluster(seed, mode=mode) as cluster:
            base = DataBase(cluster.random, trouble=0.15)
            async with OwnedTasks() as tasks:
                troubles = tasks.spawn(trouble(cluster), "trouble")
                for _ in range(4):
                    life = tasks.spawn(one_life(cluster, base, "producer"), "life")
                    await asyncio.sleep(3 + cluster.random.random() * 4)
                    life.cancel()
                    await asyncio.wait([life])
                await troubles
            async with producer_of(cluster, base, "heir"):
                await settled(cluster, base, 180)
            assert base.checked
            assert Resolution.COMMIT in base.rows.values()

    run_in_virtual_time(main())
