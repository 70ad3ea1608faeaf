"""Staged messages on a simulated cluster: their time, their ends, and brokers that die."""

import asyncio
import os

import pytest

from ternmq_model.message import Message
from ternmq_model.properties import STAGED_FOR
from ternmq_model.transaction import Resolution, TransactionState
from ternmq_producer.staging import (
    EndFailed,
    StagingProducer,
    decode_staged,
    encode_staged,
)
from ternmq_producer.transactions import TransactionProducer
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import contracts
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import standing
from tests.support.virtual_time import run_in_virtual_time

TOPIC = "flights"
GROUP = "sink"
OPEN, COMMITTED = TransactionState.OPEN, TransactionState.COMMITTED
ROLLED_BACK, NOT_FOUND = TransactionState.ROLLED_BACK, TransactionState.NOT_FOUND
COMMIT, ROLLBACK = Resolution.COMMIT, Resolution.ROLLBACK
SEEDS = range(300) if os.environ.get("TERNMQ_SOAK") else range(3)


def producer_of(
    cluster: SimulatedCluster, host: str = "sink", group: str = GROUP
) -> StagingProducer:
    return StagingProducer(group, nameserver=NAMESERVER, env=cluster.environment(host))


def rows(count: int, *, start: int = 0, **further: object) -> list[Message]:
    return [Message(TOPIC, b"%d" % number, **further) for number in range(start, start + count)]  # type: ignore[arg-type]


async def seen(cluster: SimulatedCluster) -> list[bytes]:
    """Return the bodies of all that can be read, sorted."""
    return sorted(message.body for _, message in await cluster.records(TOPIC))


async def described(cluster: SimulatedCluster, name: str = "a") -> admin.OpenTransactions:
    reply = await cluster.ask(name, contracts.DESCRIBE_BROKER, admin.DescribeBrokerRequest())
    return reply.transactions


async def log_end(cluster: SimulatedCluster, name: str = "a") -> int:
    return (await standing(cluster, name)).log_end


def test_staged_messages_are_seen_when_they_are_committed_and_not_before() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, producer_of(cluster) as producer:
            await cluster.put_topic(TOPIC)
            staged = await producer.stage(rows(300), staged_for="q/1")
            others = await producer.stage(rows(10, start=900), staged_for="q/2")
            assert len(staged) == 300
            assert await producer.states(staged) == [OPEN] * 300
            assert await seen(cluster) == []
            told = decode_staged(encode_staged(staged + others))
            await producer.end(told[:300], COMMIT)
            assert await seen(cluster) == sorted(b"%d" % number for number in range(300))
            await producer.end(told[300:], ROLLBACK)
            assert await producer.states(told) == [COMMITTED] * 300 + [ROLLED_BACK] * 10
            await producer.end(told[:300], COMMIT)
            assert len(await seen(cluster)) == 300
            for _, message in await cluster.records(TOPIC):
                assert message.properties[STAGED_FOR] == "q/1"

    run_in_virtual_time(main())


def test_rows_of_a_sharding_key_are_committed_in_their_order() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, producer_of(cluster) as producer:
            await cluster.put_topic(TOPIC)
            messages = [
                Message(TOPIC, b"%d" % number, sharding_key=f"k{number % 7}")
                for number in range(200)
            ]
            staged = await producer.stage(messages, staged_for="q/1")
            await producer.end(staged, COMMIT)
            found: dict[str, list[int]] = {}
            queues: dict[str, set[object]] = {}
            for queue, message in await cluster.records(TOPIC):
                key = message.properties["__SHARDINGKEY"]
                found.setdefault(key, []).append(int(message.body))
                queues.setdefault(key, set()).add(queue)
            assert found == {f"k{key}": list(range(key, 200, 7)) for key in range(7)}
            assert all(len(own) == 1 for own in queues.values())

    run_in_virtual_time(main())


@pytest.mark.parametrize("restarts", [False, True])
def test_nothing_happens_before_its_time_is_over_and_then_it_is_rolled_back(restarts: bool) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.put_topic(TOPIC)
            # A live producer of the group would be asked, if anybody was.
            checked: list[object] = []
            producer = TransactionProducer(
                GROUP,
                execute=lambda *_: Resolution.UNKNOWN,
                check=lambda message: checked.append(message) or Resolution.COMMIT,  # type: ignore[func-returns-value,return-value]
                topics=(TOPIC,),
                nameserver=NAMESERVER,
                env=cluster.environment("live"),
            )
            async with producer, producer_of(cluster) as staging:
                staged = await staging.stage(rows(100), staged_for="q/1", immunity_s=300)
                short = await staging.stage(rows(5), staged_for="q/2", immunity_s=20)
                end = await log_end(cluster)
                await asyncio.sleep(15)
                if restarts:
                    cluster.kill("a")
                    await asyncio.sleep(3)
                    await cluster.start("a")
                else:
                    await asyncio.sleep(3)
                assert await staging.states(short) == [OPEN] * 5
                assert await log_end(cluster) == end
                await asyncio.sleep(5)
                assert await staging.states(short) == [ROLLED_BACK] * 5
                await asyncio.sleep(270)
                assert await staging.states(staged) == [OPEN] * 100
                told = await described(cluster)
                assert (told.open, told.staged, told.expired) == (100, 100, 5)
                await asyncio.sleep(12)
                assert await staging.states(staged) == [ROLLED_BACK] * 100
                with pytest.raises(EndFailed, match="rolled back already: the time") as failed:
                    await staging.end(staged, COMMIT)
                assert failed.value.failures == 100
                await staging.end(staged, ROLLBACK)
            told = await described(cluster)
            assert (told.open, told.staged, told.expired, told.rolled_back) == (0, 0, 105, 105)
            assert (told.asked, told.alone, told.parked) == (0, 0, 0)
            assert not checked
            assert await seen(cluster) == []

    run_in_virtual_time(main())
