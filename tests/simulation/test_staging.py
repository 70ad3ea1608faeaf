"""Staged messages on a simulated cluster: their time, their ends, and brokers that die."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ternmq_broker.config import BrokerRole
from ternmq_broker.send.message_writer import MessageWriter, PutResult
from ternmq_client.config import ClientConfig
from ternmq_client.instance import ClientInstance
from ternmq_client.retry_policy import RetryPolicy
from ternmq_model.errors import TernError, Unreachable, UsageError, refusal
from ternmq_model.message import Message
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.properties import STAGED_FOR
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution, TransactionState
from ternmq_producer.staging import (
    EndFailed,
    StagedMessage,
    StagedMessages,
    StageFailed,
    StagingProducer,
    decode_staged,
    encode_staged,
)
from ternmq_producer.staging.staged_call import StagedCall
from ternmq_producer.transactions.transaction_producer import TransactionProducer
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.examples import seeds
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import caught_up, promote, status_of

TOPIC = "flights"
GROUP = "sink"
OPEN, COMMITTED = TransactionState.OPEN, TransactionState.COMMITTED
ROLLED_BACK, NOT_FOUND = TransactionState.ROLLED_BACK, TransactionState.NOT_FOUND
COMMIT, ROLLBACK = Resolution.COMMIT, Resolution.ROLLBACK
SEEDS = seeds(3, soak=300)


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
    reply = await cluster.ask(name, service_methods.DESCRIBE_BROKER, admin.DescribeBrokerRequest())
    return reply.transactions


async def log_end(cluster: SimulatedCluster, name: str = "a") -> int:
    return (await status_of(cluster, name)).log_end


def test_staged_messages_are_visible_only_once_committed() -> None:
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


def test_broker_is_asked_again_when_others_drop_its_connection() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",), latency_s=0.2) as cluster:
            await cluster.put_topic(TOPIC)
            config = ClientConfig(nameservers=(NAMESERVER,))
            async with ClientInstance(config, env=cluster.environment("sink")) as client:
                staged = StagedMessages.of([StagedMessage("a", TOPIC, PhysicalOffset(0), "id")])
                call = StagedCall(client, "sink", staged, retry=RetryPolicy(), timeout_s=10)
                asking = call.end("a", np.zeros(1, dtype=np.int64), COMMIT)
                await client.routes.route(TOPIC)
                connection = await client.broker("a")
                ended = asyncio.create_task(asking)
                await asyncio.sleep(0.01)
                client.forget("a", connection)
                await ended
                with pytest.raises(EndFailed) as failed:
                    call.check()
                assert failed.value.not_open == 1

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
def test_staged_messages_roll_back_only_after_their_immunity(restarts: bool) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.put_topic(TOPIC)
            # A live producer of the group would be asked, if anybody was.
            checked: list[StoredMessage] = []

            def check(message: StoredMessage) -> Resolution:
                checked.append(message)
                return COMMIT

            producer = TransactionProducer(
                GROUP,
                execute=lambda message, argument: Resolution.UNKNOWN,
                check=check,
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
                with pytest.raises(
                    EndFailed, match="rolled back already: its staging time"
                ) as failed:
                    await staging.end(staged, COMMIT)
                assert (failed.value.failures, failed.value.not_open) == (100, 100)
                await staging.end(staged, ROLLBACK)
            told = await described(cluster)
            assert (told.open, told.staged, told.expired, told.rolled_back) == (0, 0, 105, 105)
            assert (told.asked, told.alone, told.parked) == (0, 0, 0)
            assert not checked
            assert await seen(cluster) == []

    run_in_virtual_time(main())


def delayed_rows(now_ms: int) -> list[Message]:
    return [
        Message(TOPIC, b"level", delay_level=3),
        Message(TOPIC, b"after", deliver_after_ms=10_000),
        Message(TOPIC, b"at", deliver_at_ms=now_ms + 60_000),
        Message(TOPIC, b"past", deliver_at_ms=now_ms + 5_000),
        Message(TOPIC, b"now"),
    ]


@pytest.mark.parametrize("restarts", [False, True])
def test_delays_of_staged_messages_count_from_the_commit(restarts: bool) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster, producer_of(cluster) as producer:
            await cluster.put_topic(TOPIC)
            messages = delayed_rows(cluster.now_ms())
            staged = await producer.stage(messages, staged_for="q/1", immunity_s=600)
            await asyncio.sleep(30)
            await producer.end(staged, COMMIT)
            assert await seen(cluster) == [b"now", b"past"]
            if restarts:
                cluster.kill("a")
                await cluster.start("a")
            assert await producer.states(staged) == [COMMITTED] * 5
            await producer.end(staged, COMMIT)
            with pytest.raises(EndFailed, match="was committed already"):
                await producer.end(staged, ROLLBACK)
            await asyncio.sleep(12)
            assert await seen(cluster) == [b"after", b"level", b"now", b"past"]
            await asyncio.sleep(20)
            everything = sorted(message.body for message in messages)
            assert await seen(cluster) == everything
            if restarts:
                cluster.kill("a")
                await cluster.start("a")
            assert await producer.states(staged) == [COMMITTED] * 5
            await producer.end(staged, COMMIT)
            assert await seen(cluster) == everything

    run_in_virtual_time(main())


def test_concurrent_roll_back_and_end_have_one_winner() -> None:
    async def main(seed: int) -> set[TransactionState]:
        async with simulated_cluster(seed, brokers=("a",)) as cluster:
            await cluster.put_topic(TOPIC)
            async with producer_of(cluster) as producer:
                staged = await producer.stage(rows(60), staged_for="q/1", immunity_s=20)
                await asyncio.sleep(19.5 + cluster.random.random())

                async def commit(row: int) -> bool:
                    await asyncio.sleep(cluster.random.random() * 1.5)
                    try:
                        await producer.end(staged[row : row + 1], COMMIT)
                    except EndFailed as failed:
                        if "rolled back already" not in str(failed):
                            raise
                        return False
                    return True

                won = await asyncio.gather(*(commit(row) for row in range(60)))
                states = await producer.states(staged)
                assert states == [COMMITTED if each else ROLLED_BACK for each in won]
                expected = sorted(b"%d" % row for row in range(60) if won[row])
                assert await seen(cluster) == expected
                return set(states)

    found: set[TransactionState] = set()
    for seed in range(4):
        found |= run_in_virtual_time(main(seed))
    assert found == {COMMITTED, ROLLED_BACK}


@pytest.mark.parametrize("role", [BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER])
def test_promoted_slave_knows_staged_messages_and_their_immunity(role: BrokerRole) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "a-1"), role=role) as cluster:
            await cluster.put_topic(TOPIC)
            await caught_up(cluster, "a")
            async with producer_of(cluster) as producer:
                one = await producer.stage(rows(50), staged_for="q/1", immunity_s=600)
                two = await producer.stage(rows(50, start=100), staged_for="q/2", immunity_s=600)
                await asyncio.sleep(200)
                await producer.end(one[:20], COMMIT)
                await caught_up(cluster, "a")
                cluster.kill("a")
                await promote(cluster, "a-1", is_forced=True)
                states = await producer.states(one + two)
                assert states == [COMMITTED] * 20 + [OPEN] * 80
                await producer.end(one, COMMIT)
                assert await seen(cluster) == sorted(b"%d" % number for number in range(50))
                assert (await described(cluster, "a-1")).staged == 50
                await asyncio.sleep(370)
                assert await producer.states(two) == [OPEN] * 50
                await asyncio.sleep(40)
                assert await producer.states(two) == [ROLLED_BACK] * 50
                assert len(await seen(cluster)) == 50

    run_in_virtual_time(main())


@pytest.mark.parametrize("is_away", [False, True])
def test_batches_wait_for_slow_slaves_but_not_for_absent_ones(is_away: bool) -> None:
    async def main() -> None:
        slow: dict[str, Any] = {} if is_away else {"latency_s": 0.4, "slave_timeout_ms": 10}
        brokers, role = ("a", "a-1"), BrokerRole.SYNC_MASTER
        async with simulated_cluster(brokers=brokers, role=role, **slow) as cluster:
            await cluster.put_topic(TOPIC)
            await caught_up(cluster, "a")
            if is_away:
                cluster.kill("a-1")
            async with producer_of(cluster) as producer:
                for number in range(20):
                    start = number * 10
                    staged = await producer.stage(rows(10, start=start), staged_for=f"q/{number}")
                    assert await producer.states(staged) == [OPEN] * 10
                    await producer.end(staged, COMMIT)
            assert len(await seen(cluster)) == 200

    run_in_virtual_time(main())


def test_states_report_own_messages_and_change_nothing() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster, producer_of(cluster) as producer:
            await cluster.put_topic(TOPIC)
            staged = await producer.stage(rows(3), staged_for="q/1")
            end = await log_end(cluster)
            one = staged[0]
            wrong = [
                one,
                one._replace(message_id="0" * 32),
                one._replace(transaction=PhysicalOffset(one.transaction + 1)),
                one._replace(transaction=PhysicalOffset(1 << 40)),
            ]
            assert await producer.states(wrong) == [OPEN, NOT_FOUND, NOT_FOUND, NOT_FOUND]
            async with producer_of(cluster, "other", "others") as other:
                assert await other.states(staged) == [NOT_FOUND] * 3
                with pytest.raises(EndFailed, match="another producer group"):
                    await other.end(staged, COMMIT)
            await producer.end(staged[1:], ROLLBACK)
            async with producer_of(cluster, "other", "others") as other:
                assert await other.states(staged) == [NOT_FOUND] * 3
            end = await log_end(cluster)
            assert await producer.states(staged) == [OPEN, ROLLED_BACK, ROLLED_BACK]
            assert await producer.states(StagedMessages()) == []
            assert await log_end(cluster) == end
            await cluster.ask(
                "a", service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic=TOPIC)
            )
            assert await producer.states(staged[:1]) == [NOT_FOUND]
            with pytest.raises(EndFailed, match="was deleted"):
                await producer.end(staged[:1], COMMIT)

    run_in_virtual_time(main())


def test_staging_producer_retries_a_broker_that_keeps_refusing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, left = MessageWriter.store, ["the disk is slow"] * 7

    def failing(self: MessageWriter, *arguments: Any, **named: Any) -> PutResult:
        if left:
            raise refusal(ResponseCode.SYSTEM_BUSY, left.pop())
        return store(self, *arguments, **named)

    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster, producer_of(cluster) as producer:
            await cluster.put_topic(TOPIC)
            monkeypatch.setattr(MessageWriter, "store", failing)
            staged = await producer.stage(rows(40), staged_for="q/1", timeout_s=60)
            assert not left
            assert await producer.states(staged) == [OPEN] * 40

    run_in_virtual_time(main())


def test_errors_of_several_brokers_are_raised_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster, producer_of(cluster) as producer:
            await cluster.put_topic(TOPIC)
            staged = await producer.stage(rows(40), staged_for="q/1")
            assert len({one.broker_name for one in staged}) == 2
            for name in cluster.running:
                cluster.kill(name)
            with pytest.raises(Unreachable):
                await producer.states(staged, timeout_s=2)
            with pytest.raises(EndFailed) as failed:
                await producer.end(staged, ROLLBACK, timeout_s=2)
            assert (failed.value.failures, failed.value.not_open) == (40, 0)

            async def crash(*_: object, **__: object) -> None:
                raise ZeroDivisionError

            monkeypatch.setattr("ternmq_producer.staging.staged_call.StagedCall._ask", crash)
            with pytest.raises(ZeroDivisionError):
                await producer.states(staged)
            with pytest.raises(ZeroDivisionError):
                await producer.end(staged, ROLLBACK)

    run_in_virtual_time(main())


def test_broker_with_too_many_open_transactions_refuses_and_names_staged() -> None:
    async def main() -> None:
        async with (
            simulated_cluster(brokers=("a",), transactions_open_max=1000) as cluster,
            producer_of(cluster) as producer,
        ):
            await cluster.put_topic(TOPIC)
            with pytest.raises(StageFailed, match=r"broker\.transactions_open_max") as failed:
                await producer.stage(rows(3000), staged_for="q/1", timeout_s=20)
            staged = failed.value.staged
            assert 1000 <= len(staged) < 3000
            assert failed.value.retryable
            await producer.end(staged, ROLLBACK)
            assert (await described(cluster)).open == 0
            assert len(await producer.stage(rows(10), staged_for="q/1")) == 10

    run_in_virtual_time(main())


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("seed", SEEDS)
def test_batches_are_visible_whole_or_not_at_all_while_brokers_die(
    seed: int, mode: FlushMode
) -> None:
    async def batch(cluster: SimulatedCluster, number: int, decided: dict[int, bool]) -> None:
        """Stage a batch as a task does that may fail, and let its driver decide."""
        start = number * 1000
        async with producer_of(cluster, f"sink{number}") as producer:
            staged: Sequence[StagedMessage]
            try:
                staged = await producer.stage(
                    rows(40, start=start), staged_for=f"q/{number}", immunity_s=90
                )
            except TernError:
                return
            told = decode_staged(encode_staged(StagedMessages.of(staged)))
            if await producer.states(told) != [OPEN] * 40:
                return
            decided[number] = cluster.random.random() < 0.7
            await producer.end(told, COMMIT if decided[number] else ROLLBACK)

    async def main() -> None:
        async with simulated_cluster(seed, mode=mode) as cluster:
            await cluster.put_topic(TOPIC)
            decided: dict[int, bool] = {}
            async with asyncio.TaskGroup() as tasks:
                for number in range(12):
                    tasks.create_task(batch(cluster, number, decided))
                    await asyncio.sleep(cluster.random.random())
                if mode is FlushMode.SYNC:
                    await cluster.trouble(5, every_s=2)
                else:
                    await kills(cluster, 5)
            await asyncio.sleep(120)
            expected = sorted(
                b"%d" % row
                for number, commits in decided.items()
                if commits
                for row in range(number * 1000, number * 1000 + 40)
            )
            assert await seen(cluster) == expected, f"seed {seed}"
            assert decided, f"seed {seed}"
            for name in cluster.running:
                assert (await described(cluster, name)).open == 0

    run_in_virtual_time(main())


async def kills(cluster: SimulatedCluster, times: int) -> None:
    """Kill one broker after the other: what it wrote stays, flushed or not."""
    for _ in range(times):
        await asyncio.sleep(cluster.random.random() * 2)
        name = cluster.random.choice(cluster.running)
        cluster.kill(name)
        await asyncio.sleep(cluster.random.random() * 3)
        await cluster.start(name)


@pytest.mark.parametrize(
    ("staged_for", "immunity_s", "word"),
    [("", 60, "staged_for"), ("a b", 60, "staged_for"), ("q" * 201, 60, "staged_for"),
     ("é/1", 60, "staged_for"), ("q/1", 0, "immunity_s"), ("q/1", 1 << 31, "immunity_s")],
)  # fmt: skip
def test_unstageable_messages_are_refused_by_name(
    staged_for: str, immunity_s: int, word: str
) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster, producer_of(cluster) as producer:
            with pytest.raises(UsageError, match=word):
                await producer.stage(rows(1), staged_for=staged_for, immunity_s=immunity_s)
            with pytest.raises(UsageError, match="COMMIT or ROLLBACK"):
                await producer.end([], Resolution.UNKNOWN)
            cancels = Message(TOPIC, b"x", deliver_at_ms=5, cancels="A" * 32)
            with pytest.raises(StageFailed, match="cannot cancel") as failed:
                await producer.stage([*rows(2), cancels], staged_for="q/1")
            assert failed.value.first == 2
            assert "cannot cancel" in str(failed.value.reason)

    run_in_virtual_time(main())
