"""What a killed driver has staged, found and rolled back over a whole cluster."""

import asyncio

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.open_transactions import StagedRollback
from ternmq_model.errors import RefusedError, TernError, Unreachable, UsageError
from ternmq_model.message import Message
from ternmq_model.response_code import ResponseCode
from ternmq_model.transaction import STAGED_QUIET_MS, Resolution, TransactionState
from ternmq_producer.staging import EndFailed, StagingProducer
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import caught_up, promote

QUIET_S = STAGED_QUIET_MS / 1000 + 1

TOPIC = "flights"
COMMITTED, ROLLED_BACK = TransactionState.COMMITTED, TransactionState.ROLLED_BACK


def admin_of(cluster: SimulatedCluster) -> AdminClient:
    return AdminClient(nameserver=NAMESERVER, env=cluster.environment("tool"))


def producer_of(cluster: SimulatedCluster) -> StagingProducer:
    return StagingProducer("sink", nameserver=NAMESERVER, env=cluster.environment("sink"))


def rows(count: int) -> list[Message]:
    return [Message(TOPIC, b"%d" % number) for number in range(count)]


def test_left_behind_batch_is_rolled_back_at_every_broker_also_after_a_restart() -> None:
    async def main() -> None:
        async with (
            simulated_cluster() as cluster,
            producer_of(cluster) as producer,
            admin_of(cluster) as admin,
        ):
            await cluster.put_topic(TOPIC)
            left = await producer.stage(rows(3000), staged_for="q/7", immunity_s=3600)
            other = await producer.stage(rows(40), staged_for="q/70", immunity_s=3600)
            with pytest.raises(RefusedError, match="q/7 may be in use") as refused:
                await admin.roll_back_staged("q/7")
            assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
            cluster.kill("a")
            await cluster.start("a")
            await asyncio.sleep(QUIET_S)
            found = await admin.open_transactions(staged_for="q/7")
            assert [one.broker_name for one in found] == ["a", "b"]
            assert sum(one.count for one in found) == 3000
            for one in found:
                assert (one.staged_for, one.group, one.topic) == ("q/7", "sink", TOPIC)
                assert 60_000 <= one.quiet_ms <= one.oldest_ms
                assert one.left_ms is not None
                assert abs(one.left_ms + one.oldest_ms - 3_600_000) < 1000
            (at_b,) = await admin.open_transactions(staged_for="q/7", brokers=["b"])
            assert await admin.roll_back_staged("q/7", brokers=["b"]) == [
                StagedRollback("b", at_b.count, 0)
            ]
            (done,) = await admin.roll_back_staged("q/7")
            assert done == StagedRollback("a", 3000 - at_b.count, 0)
            assert await admin.roll_back_staged("q/7") == []
            assert set(await producer.states(left)) == {ROLLED_BACK}
            with pytest.raises(EndFailed, match="rolled back already"):
                await producer.end(left, Resolution.COMMIT)
            await producer.end(other, Resolution.COMMIT)
            assert await admin.open_transactions() == []
            assert len(await cluster.records(TOPIC)) == 40
            with pytest.raises(UsageError, match="must name the rows"):
                await admin.roll_back_staged("")

    run_in_virtual_time(main())


def test_forced_roll_back_beside_a_commit_counts_each_row_once() -> None:
    async def main() -> None:
        async with (
            simulated_cluster(latency_s=0.2) as cluster,
            producer_of(cluster) as producer,
            admin_of(cluster) as admin,
        ):
            await cluster.put_topic(TOPIC)
            staged = await producer.stage(rows(20_000), staged_for="q/7")
            await asyncio.sleep(QUIET_S)

            async def commit() -> None:
                for start in range(0, len(staged), 200):
                    await producer.end(staged[start : start + 200], Resolution.COMMIT)

            committing = asyncio.ensure_future(commit())
            await asyncio.sleep(1)
            with pytest.raises(RefusedError, match=r"q/7 may be in use: 0 s ago"):
                await admin.roll_back_staged("q/7")
            done = await admin.roll_back_staged("q/7", force=True)
            with pytest.raises(EndFailed, match="rolled back already"):
                await committing
            states = await producer.states(staged)
            assert set(states) == {COMMITTED, ROLLED_BACK}
            assert sum(one.rolled_back for one in done) == states.count(ROLLED_BACK)
            assert len(await cluster.records(TOPIC)) == states.count(COMMITTED)

    run_in_virtual_time(main())


def test_driver_that_lives_commits_nothing_once_rows_are_rolled_back() -> None:
    async def main() -> None:
        async with (
            simulated_cluster() as cluster,
            producer_of(cluster) as producer,
            admin_of(cluster) as admin,
        ):
            await cluster.put_topic(TOPIC)
            staged = await producer.stage(rows(50), staged_for="q/7")
            await asyncio.sleep(QUIET_S)
            await admin.roll_back_staged("q/7")
            staged += await producer.stage(rows(50), staged_for="q/7")  # by a slow task of it
            states = await producer.states(staged)
            assert states == [ROLLED_BACK] * 50 + [TransactionState.OPEN] * 50

    run_in_virtual_time(main())


def test_slave_that_stands_in_is_named_and_its_promotion_makes_it_answer() -> None:
    async def main() -> None:
        async with simulated_cluster(
            brokers=("a", "a-1", "b"), role=BrokerRole.ASYNC_MASTER
        ) as cluster:
            await cluster.put_topic(TOPIC)
            await caught_up(cluster, "a")
            async with producer_of(cluster) as producer, admin_of(cluster) as admin:
                await producer.stage(rows(200), staged_for="q/7", immunity_s=3600)
                await caught_up(cluster, "a")
                await asyncio.sleep(QUIET_S)
                cluster.kill("a")
                found = await admin.open_transactions()
                assert [one.broker_name for one in found] == ["b"]
                (away,) = found.unreachable
                assert away.broker_name == "a"
                assert "is a slave" in away.reason
                with pytest.raises(Unreachable, match="is a slave"):
                    await admin.open_transactions(brokers=["a"])
                with pytest.raises(Unreachable):
                    await admin.roll_back_staged("q/7")
                assert sum(one.count for one in await admin.open_transactions()) == found[0].count
                await promote(cluster, "a-1", is_forced=True)
                done: list[StagedRollback] = []
                while not done:
                    try:
                        done = await admin.roll_back_staged("q/7")
                    except TernError:
                        await asyncio.sleep(1)
                assert [one.broker_name for one in done] == ["a", "b"]
                assert sum(one.rolled_back for one in done) == 200

    run_in_virtual_time(main())


def test_driver_that_begins_its_commit_beside_a_roll_back_commits_all_or_nothing() -> None:
    async def main() -> None:
        async with (
            simulated_cluster(latency_s=0.01) as cluster,
            producer_of(cluster) as producer,
            admin_of(cluster) as admin,
        ):
            await cluster.put_topic(TOPIC)
            ends = set[bool]()
            for number in range(20):
                staged = await producer.stage(rows(1500), staged_for=f"q/{number}")
                await asyncio.sleep(QUIET_S)
                work = asyncio.ensure_future(admin.roll_back_staged(f"q/{number}"))
                await asyncio.sleep(number * 0.005)
                is_open = set(await producer.states(staged)) == {TransactionState.OPEN}
                if is_open:
                    await producer.end(staged, Resolution.COMMIT)
                await asyncio.wait([work])
                states = set(await producer.states(staged))
                assert states == {COMMITTED} if is_open else COMMITTED not in states
                ends.add(work.exception() is None)
        assert ends == {True, False}

    run_in_virtual_time(main())


def test_broker_that_goes_away_in_a_roll_back_is_named_with_what_it_told() -> None:
    async def main() -> None:
        async with (
            simulated_cluster(brokers=("a",), latency_s=0.01) as cluster,
            producer_of(cluster) as producer,
            admin_of(cluster) as admin,
        ):
            await cluster.put_topic(TOPIC)
            await producer.stage(rows(20_000), staged_for="q/7", immunity_s=3600)
            await asyncio.sleep(QUIET_S)
            told: list[StagedRollback] = []

            def progress(done: StagedRollback) -> None:
                told.append(done)
                if len(told) == 1:
                    cluster.kill("a")

            named = r"broker a reported \d+ rolled back before; repeating"
            with pytest.raises(TernError, match=named):
                await admin.roll_back_staged("q/7", progress=progress)
            assert told[0].rolled_back > 0

    run_in_virtual_time(main())
