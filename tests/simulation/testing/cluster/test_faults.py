"""Lost answers: the effect is there, and the sender's retry finds it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.consume_status import ReconsumeLater
from ternmq_model.message import Message
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.cluster.cluster import Cluster

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


@pytest.mark.parametrize("flush", ["async", "sync"])
@pytest.mark.parametrize("network", ["memory", "grpc"])
def test_lost_answer_of_a_send_stores_the_message_once(network: str, flush: str) -> None:
    async def main() -> None:
        async with (
            Cluster(network=network, flush=flush) as cluster,
            cluster.producer("p") as producer,
        ):
            await producer.send(Message("orders", b"1"))
            cluster.drop_answers("SendStream", next=1)
            await producer.send(Message("orders", b"2"))
            cluster.expect("orders", count=2)
            assert any("an answer of SendStream was lost" in each for each in cluster.events)

    run(main())


def test_lost_answer_of_a_return_redelivers_the_message() -> None:
    async def main() -> None:
        tries: list[int] = []

        def listen(message: StoredMessage) -> ReconsumeLater | None:
            tries.append(message.reconsume_times)
            return ReconsumeLater(1) if not message.reconsume_times else None

        async with Cluster() as cluster, cluster.producer("p") as producer:
            await producer.send(Message("orders", b"1"))
            cluster.drop_answers("SendBack", next=1)
            async with cluster.push_consumer("g", "orders", listener=listen, config=FIRST):
                await cluster.settled()
                await cluster.advance("1m")
                await cluster.settled()
        assert set(tries) == {0, 1}

    run(main())
