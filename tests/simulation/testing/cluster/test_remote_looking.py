"""A cluster's content as its brokers tell it, beside what its stores have."""

import asyncio

import pytest

from ternmq import (
    ConsumeFrom,
    Message,
    PushConsumerConfig,
    ReconsumeLater,
    StoredMessage,
)
from ternmq.testing import Cluster
from ternmq_testing.cluster.remote_looking import RemoteLook


def test_look_finds_what_the_stores_have() -> None:
    async def main() -> None:
        async with (
            Cluster(brokers=2) as cluster,
            cluster.producer("shop") as producer,
            cluster.admin() as admin,
        ):
            look = RemoteLook(admin)
            assert await look.messages("orders") == []
            for number in range(20):
                await producer.send(Message("orders", b"%d" % number))
            found = await look.messages("orders")
            assert [each.message_id for each in found] == [
                each.message_id for each in cluster.messages("orders")
            ]
            assert len({each.queue for each in found}) > 1
            assert await look.lags("nobody") == {}

    asyncio.run(main())


def test_settled_waits_for_what_a_group_has_in_hand() -> None:
    async def main() -> None:
        may_go_on = asyncio.Event()

        async def consume(message: StoredMessage) -> None:
            await may_go_on.wait()

        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        async with (
            Cluster() as cluster,
            cluster.producer("shop") as producer,
            cluster.admin() as admin,
        ):
            look = RemoteLook(admin)
            for number in range(4):
                await producer.send(Message("orders", b"%d" % number))
            async with cluster.push_consumer("readers", "orders", listener=consume, config=config):
                with pytest.raises(AssertionError, match=r"s: readers \(orders@broker-a"):
                    await look.settled(0.2)
                assert sum((await look.lags("readers")).values()) == 4
                may_go_on.set()
                await look.settled(60.0)
                assert await look.lags("readers") == {}
            assert (
                await look.report()
                == "topic orders: 4 messages\ngroup readers: lag 0, 0 dead letters"
            )

    asyncio.run(main())


def test_look_finds_dead_letters() -> None:
    async def main() -> None:
        async def consume(message: StoredMessage) -> ReconsumeLater:
            return ReconsumeLater()

        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        async with (
            Cluster() as cluster,
            cluster.producer("shop") as producer,
            cluster.admin() as admin,
        ):
            await producer.send(Message("orders", b"book"))
            async with cluster.push_consumer("readers", "orders", listener=consume, config=config):
                await cluster.advance("6h")
            look = RemoteLook(admin)
            assert [each.body for each in await look.dead_letters("readers")] == [b"book"]
            assert "group readers: lag 0, 1 dead letters" in await look.report()

    asyncio.run(main())


def test_unanswered_are_below_what_was_taken_and_not_committed() -> None:
    async def main() -> None:
        async def consume(message: StoredMessage) -> None:
            pass

        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        async with (
            Cluster() as cluster,
            cluster.producer("shop") as producer,
            cluster.admin() as admin,
        ):
            await producer.send(Message("orders", b"book"))
            async with cluster.push_consumer("readers", "orders", listener=consume, config=config):
                await cluster.settled()
            look = RemoteLook(admin)
            (queue,) = {each.queue for each in cluster.messages("orders")}
            assert await look.unanswered({("readers", queue): 1}) == []
            assert await look.unanswered({("readers", queue): 3}) == [("readers", queue, 2)]
            assert await look.unanswered({("nobody", queue): 3}) == []

    asyncio.run(main())


def test_settled_waits_for_consumers_that_came_before_their_topic() -> None:
    async def main() -> None:
        bodies: list[bytes] = []

        async def consume(message: StoredMessage) -> None:
            bodies.append(message.body)

        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        async with (
            Cluster() as cluster,
            cluster.producer("shop") as producer,
            cluster.admin() as admin,
            cluster.push_consumer("readers", "orders", listener=consume, config=config),
        ):
            look = RemoteLook(admin, consumed=lambda: {"readers": {"orders"}})
            await look.settled(60.0)
            await producer.send(Message("orders", b"book"))
            with pytest.raises(AssertionError, match=r"readers \(has no queue of orders yet\)"):
                await look.settled(0)
            await look.settled(60.0)
            assert bodies == [b"book"]

    asyncio.run(main())
