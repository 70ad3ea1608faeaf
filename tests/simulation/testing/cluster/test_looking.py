"""Looks of a test into a cluster, and texts of its failed assertions."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from ternmq_consumer.config import ConsumeFrom, PullConsumerConfig, PushConsumerConfig
from ternmq_consumer.consume_status import ReconsumeLater
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_model.errors import IllegalName, UsageError
from ternmq_model.message import Message
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import sql
from ternmq_testing.cluster.cluster import Cluster

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


async def fill(cluster: Cluster, count: int) -> None:
    async with cluster.producer("p") as producer:
        for number in range(count):
            properties = {"amount": str(3 * number)}
            await producer.send(
                Message("orders", b"order %d" % number, keys=[f"k{number}"], properties=properties)
            )


def test_expectation_lists_what_matches_and_what_does_not() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            await fill(cluster, 4)
            found = cluster.expect("orders", count=2, where="amount > 5")
            assert {each.body for each in found} == {b"order 2", b"order 3"}
            with pytest.raises(AssertionError) as failure:
                cluster.expect("orders", count=3, where="amount > 5")
            text = str(failure.value)
            assert "expected 3 messages in 'orders' where amount > 5, found 2" in text
            assert 'order 3, keys k3, {"amount": "9"}' in text
            assert "2 do not match" in text
            with pytest.raises(AssertionError, match="expected messages in 'nothing', found 0"):
                cluster.expect("nothing")
            with pytest.raises(UsageError):
                cluster.expect("orders", where="amount >")

    run(main())


def test_settled_waits_for_consumers_that_came_before_their_topic() -> None:
    async def main() -> None:
        bodies: list[bytes] = []

        async def listen(message: StoredMessage) -> None:
            bodies.append(message.body)

        async with (
            Cluster() as cluster,
            cluster.push_consumer("g", "orders", listener=listen, config=FIRST),
        ):
            await cluster.settled()  # nobody waits for a topic that may never come
            await fill(cluster, 1)
            late = r"g \(has no queue of orders yet\)"
            with pytest.raises(AssertionError, match=late):
                await cluster.settled(timeout_s=0)
            await cluster.settled()
            assert bodies == [b"order 0"]
        async with (
            Cluster() as cluster,
            cluster.push_consumer("g", "orders", listener=listen, config=FIRST),
        ):
            cluster.freeze()
            await fill(cluster, 1)
            with pytest.raises(AssertionError, match="of orders yet; time is frozen: call `advan"):
                await cluster.settled(timeout_s=0)

    run(main())


@pytest.mark.parametrize("wanted", ["placed", sql("TAGS = 'placed'")])
def test_settled_passes_messages_that_a_group_filters_out(wanted: Any) -> None:
    async def main() -> None:
        async def listen(_message: StoredMessage) -> None: ...

        async with Cluster() as cluster, cluster.producer("p") as producer:
            await producer.send(Message("orders", b"1", tags="placed"))
            consumer = cluster.push_consumer("g", {"orders": wanted}, listener=listen, config=FIRST)
            async with consumer:
                await cluster.settled()
                for _ in range(9):
                    await producer.send(Message("orders", b"2", tags="paid"))
                await cluster.settled(timeout_s=2)  # the pulls of the consumer last longer
                assert cluster.lag("g") == 0

    run(main())


def test_settled_waits_for_groups_and_names_those_behind() -> None:
    async def main() -> None:
        held = asyncio.Event()

        async def listen(_message: object) -> None:
            await held.wait()

        async with Cluster() as cluster:
            await fill(cluster, 4)
            async with cluster.push_consumer("g", "orders", listener=listen, config=FIRST):
                with pytest.raises(AssertionError, match=r"not settled within 0\.3 s: g \(orders"):
                    await cluster.settled(timeout_s=0.3)
                assert cluster.lag("g") == 4
                held.set()
                await cluster.settled()
                assert cluster.lag("g") == 0

    run(main())


@pytest.mark.parametrize("commits_itself", [False, True])
def test_settled_waits_for_members_that_poll(commits_itself: bool) -> None:
    async def main() -> None:
        config = PullConsumerConfig(
            consume_from=ConsumeFrom.FIRST_OFFSET, auto_commit=commits_itself
        )
        bodies: list[bytes] = []

        async def poll(consumer: PullConsumer) -> None:
            while True:
                bodies.extend(
                    [each.body for each in await consumer.poll(timeout_s=0.1, messages_max=3)]
                )
                if not commits_itself:
                    await consumer.commit()

        async with Cluster() as cluster, cluster.pull_consumer("g", config=config) as consumer:
            await fill(cluster, 20)
            await consumer.subscribe("orders")
            with pytest.raises(AssertionError, match=r"not settled within 0\.3 s: g \(orders"):
                await cluster.settled(timeout_s=0.3)
            polling = asyncio.create_task(poll(consumer))
            await cluster.settled()
            assert len(bodies) == 20
            assert cluster.lag("g") == 0
            polling.cancel()

    run(main())


def test_topics_exist_when_the_cluster_is_open() -> None:
    async def main() -> None:
        took: list[StoredMessage] = []
        async with (
            Cluster(brokers=2, topics=["orders", "bills"]) as cluster,
            cluster.push_consumer("g", {"orders": "*", "bills": "*"}, listener=took.append),
        ):
            cluster.freeze()  # waiting for a topic would not end
            await fill(cluster, 4)
            await cluster.settled()
            assert len(took) == 4
        with pytest.raises(IllegalName):
            Cluster(topics=["no name"])
        with pytest.raises(UsageError, match="must be names"):
            Cluster(topics="orders")

    run(main())


def test_dead_letters_after_sixteen_retries() -> None:
    async def main() -> None:
        tries: list[int] = []

        async def listen(message: Any) -> ReconsumeLater:
            tries.append(message.reconsume_times)
            return ReconsumeLater()

        async with Cluster() as cluster:
            await fill(cluster, 1)
            async with cluster.push_consumer("g", "orders", listener=listen, config=FIRST):
                await cluster.settled()
                await cluster.advance("5h")
            assert tries == list(range(17))
            (letter,) = cluster.dead_letters("g")
            assert letter.body == b"order 0"

    run(main())


def test_messages_that_wait_for_their_time_are_told() -> None:
    async def main() -> None:
        async with Cluster() as cluster, cluster.producer("p") as producer:
            await producer.send(Message("orders", b"1", deliver_after_ms=3_600_000))
            hint = "found 0\nmessages wait for their time"
            with pytest.raises(AssertionError, match=hint):
                cluster.expect("orders")
            with pytest.raises(AssertionError, match=r"found 0$"):
                cluster.expect("others")
            await cluster.advance("1h")
            with pytest.raises(AssertionError) as failure:
                cluster.expect("orders", count=2)
            assert "wait for" not in str(failure.value)

    run(main())


def test_broker_that_is_away_is_named() -> None:
    async def main() -> None:
        async with Cluster(brokers=2, topics=["orders"]) as cluster:
            await fill(cluster, 4)
            await cluster.broker("broker-a").crash()
            with pytest.raises(AssertionError) as failure:
                cluster.expect("orders", count=5)
            uncounted = "broker-a does not run: its messages are not counted"
            assert str(failure.value).endswith(uncounted)
            await cluster.settled()
            assert cluster.report().startswith("broker-a does not run\nbroker-b runs\n")
            cluster.freeze()
            cluster.broker("broker-b").pause()
            for timeout_s in (0, 0.1):
                with pytest.raises(AssertionError, match="broker-a does not run; broker-b is paus"):
                    await cluster.settled(timeout_s=timeout_s)
            assert "\nbroker-b is paused\n" in cluster.report()
            await cluster.broker("broker-b").crash()
            with pytest.raises(AssertionError, match="broker-b does not run"):
                await cluster.settled(timeout_s=0.1)

    run(main())


def test_report_has_topics_groups_dead_letters_and_events() -> None:
    async def main() -> None:
        async def listen(_message: object) -> ReconsumeLater:
            return ReconsumeLater(-1)

        async with Cluster() as cluster:
            await fill(cluster, 2)
            async with cluster.push_consumer("g", "orders", listener=listen, config=FIRST):
                await cluster.settled()
            report = cluster.report()
        for line in ("topic orders: 2 messages", "group g: lag 0, 2 dead letters", "order 1"):
            assert line in report
        assert "broker-a serves" in report

    run(main())


def test_messages_of_consumers_that_left_without_an_answer_are_leaks() -> None:
    async def main() -> None:
        called = asyncio.Event()

        async def listen(_message: object) -> None:
            called.set()
            await asyncio.Event().wait()

        config = replace(FIRST, close_wait_s=0.05)
        async with Cluster() as cluster:
            await fill(cluster, 1)
            async with cluster.push_consumer("hangs", "orders", listener=listen, config=config):
                await called.wait()
            async with cluster.push_consumer("breaks", "orders", config=FIRST) as consumer:
                async for _ in consumer:
                    break
            (queue,) = {each.queue for each in cluster.messages("orders")}
            took = f"took 1 messages of {queue} and never answered"
            assert cluster.leaks() == [f"group hangs {took}", f"group breaks {took}"]
            assert cluster.leaks("clients") == []
            for group in ("hangs", "breaks"):
                async with cluster.push_consumer(
                    group, "orders", listener=lambda _: None, config=FIRST
                ):
                    await cluster.settled()
            assert cluster.leaks() == []

    run(main())


def test_polled_messages_are_answered_by_a_commit() -> None:
    async def main() -> None:
        async with Cluster() as cluster:
            await fill(cluster, 3)
            for does_commit in (False, True):
                async with cluster.pull_consumer("g") as consumer:
                    consumer.assign({each.queue for each in cluster.messages("orders")})
                    polled = 0
                    while polled < 3:
                        polled += len(await consumer.poll(timeout_s=1))
                    if does_commit:
                        await consumer.commit()
                assert bool(cluster.leaks()) is not does_commit

    run(main())
