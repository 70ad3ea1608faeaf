"""Staging while a NameServer or a broker is away."""

import asyncio
from typing import Any

import pytest

from ternmq_broker.send.message_writer import MessageWriter
from ternmq_model.errors import TernError, refusal
from ternmq_model.message import Message
from ternmq_model.response_code import ResponseCode
from ternmq_model.transaction import Resolution, TransactionState
from ternmq_producer.staging import EndFailed, StageFailed, StagingProducer
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

TOPIC = "flights"


def producer_of(cluster: SimulatedCluster) -> StagingProducer:
    return StagingProducer("sink", nameserver=NAMESERVER, env=cluster.environment("sink"))


def rows(count: int) -> list[Message]:
    return [Message(TOPIC, b"%d" % number) for number in range(count)]


@pytest.mark.parametrize("who", ["nameserver", "broker", "both"])
def test_fresh_producer_stages_each_message_once_when_services_return(who: str) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.put_topic(TOPIC)
            if who != "broker":
                await cluster.nameservers.stop("ns")
            if who != "nameserver":
                await cluster.stop("a")
            async with producer_of(cluster) as producer:
                asked = asyncio.create_task(
                    producer.stage(rows(300), staged_for="q/1", timeout_s=60)
                )
                await asyncio.sleep(15)
                if who != "broker":
                    await cluster.nameservers.start("ns")
                if who != "nameserver":
                    await cluster.start("a")
                staged = await asked
                assert await producer.states(staged) == [TransactionState.OPEN] * 300
                await producer.end(staged, Resolution.COMMIT)
            bodies = [message.body for _, message in await cluster.records(TOPIC)]
            assert sorted(bodies) == sorted(message.body for message in rows(300))

    run_in_virtual_time(main())


def test_staging_in_vain_names_who_is_away_and_for_how_long() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.put_topic(TOPIC)
            async with producer_of(cluster) as producer:
                staged = await producer.stage(rows(3), staged_for="q/1")
                cluster.kill("a")
                with pytest.raises(StageFailed, match=r"broker a: .*; for 20 s \(retryTimeout\)"):
                    await producer.stage(rows(3), staged_for="q/1", timeout_s=20)
                with pytest.raises(TernError, match=r"broker a: .*; for 20 s \(retryTimeout\)"):
                    await producer.states(staged, timeout_s=20)
            await cluster.nameservers.stop("ns")
            async with producer_of(cluster) as fresh:
                with pytest.raises(StageFailed, match=r"3 of 3 .* ns:9876.*; for 20 s"):
                    await fresh.stage(rows(3), staged_for="q/1", timeout_s=20)

    run_in_virtual_time(main())


def test_broker_that_is_lost_in_every_attempt_is_not_called_a_matter_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster, producer_of(cluster) as producer:

            def lost(*_: object, **_named: object) -> None:
                cluster.network.cut("a", "sink")
                raise refusal(ResponseCode.SYSTEM_BUSY, "nobody hears this")

            await cluster.put_topic(TOPIC)
            monkeypatch.setattr(MessageWriter, "store", lost)
            with pytest.raises(StageFailed, match="cut") as failed:
                await producer.stage(rows(3), staged_for="q/1", timeout_s=600)
            assert "retryTimeout" not in str(failed.value)

    run_in_virtual_time(main())


def test_routes_of_many_new_topics_are_asked_side_by_side() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster, producer_of(cluster) as producer:
            await producer.stage(rows(1), staged_for="q/1")
            begun_ms = cluster.now_ms()
            many = [Message(f"flights{number}", b"x") for number in range(200)]
            await producer.stage(many, staged_for="q/1")
            assert cluster.now_ms() - begun_ms < 100

    run_in_virtual_time(main())


def test_commit_over_many_topics_ends_in_time_while_nameserver_hangs_and_names_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            topics = [f"flights{number}" for number in range(20)]
            for topic in topics:
                await cluster.put_topic(topic, queues=1)
            async with producer_of(cluster) as producer:
                staged = await producer.stage(
                    [Message(topic, b"x") for topic in topics], staged_for="q/1"
                )
            cluster.network.partition("ns", "sink", one_way=True)
            asked: Any
            for verb, options in (("states", ()), ("end", (Resolution.COMMIT,))):
                async with producer_of(cluster) as fresh:
                    begun_ms = cluster.now_ms()
                    caplog.clear()
                    asked = getattr(fresh, verb)(staged, *options, timeout_s=10)
                    with pytest.raises(TernError, match=r"ns:9876.*; for 1\d s \(retryTimeout\)"):
                        await asked
                    assert 10_000 <= cluster.now_ms() - begun_ms < 12_000
                    assert "reason=no nameserver answers: ns:9876" in caplog.text
            async with producer_of(cluster) as fresh:
                asked = asyncio.create_task(fresh.end(staged, Resolution.COMMIT, timeout_s=10))
                await asyncio.sleep(7)
                cluster.network.heal()
                await asked
                assert await fresh.states(staged) == [TransactionState.COMMITTED] * len(topics)

    run_in_virtual_time(main())


def test_answer_of_broker_that_hangs_is_waited_for_no_longer_than_the_limit() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster, producer_of(cluster) as producer:
            await cluster.put_topic(TOPIC)
            staged = await producer.stage(rows(3), staged_for="q/1")
            cluster.disk_s["a"] = 60
            begun_ms = cluster.now_ms()
            with pytest.raises(EndFailed, match=r"broker a: .*; for 5 s \(retryTimeout\)"):
                await producer.end(staged, Resolution.COMMIT, timeout_s=5)
            assert 5_000 <= cluster.now_ms() - begun_ms < 6_000

    run_in_virtual_time(main())


def test_commit_finds_broker_that_returned_though_a_known_route_lacks_it() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "b")) as cluster:
            await cluster.put_topic(TOPIC)
            async with producer_of(cluster) as producer:
                staged = await producer.stage(rows(10_000), staged_for="q/1")
            await cluster.stop("b")
            async with producer_of(cluster) as fresh:
                await fresh.stage(rows(3), staged_for="q/2")
                await asyncio.sleep(7)
                await cluster.start("b")
                begun_ms = cluster.now_ms()
                await fresh.end(staged, Resolution.COMMIT)
                assert cluster.now_ms() - begun_ms < 5_000

    run_in_virtual_time(main())


def test_illegal_topic_is_refused_at_once_though_nobody_answers() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.nameservers.stop("ns")
            async with producer_of(cluster) as producer:
                begun_ms = cluster.now_ms()
                with pytest.raises(StageFailed, match="no topic"):
                    await producer.stage(
                        [Message("no topic", b"x")], staged_for="q/1", timeout_s=60
                    )
                assert cluster.now_ms() - begun_ms < 100

    run_in_virtual_time(main())
