"""What a test sees of a cluster, and what its failed assertions say."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.consume_status import ReconsumeLater
from ternmq_model.errors import UsageError
from ternmq_model.message import Message
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
