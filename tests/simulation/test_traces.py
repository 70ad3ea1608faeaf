"""Traces over a cluster: what clients did with messages, found again; and nobody is the slower."""

import asyncio

from ternmq_client.config import ClientConfig
from ternmq_client.tracing.trace_records import ConsumeBegan, ConsumeEnded, MessageSent, decode
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.message import Message
from ternmq_model.names import TRACE_TOPIC
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

TRACED = ClientConfig(nameservers=(NAMESERVER,), trace=True)
FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


async def send_and_consume(cluster: SimulatedCluster) -> str:
    """Send one message and consume it; return its id."""
    got = asyncio.Event()

    async def take(_: StoredMessage) -> None:
        got.set()

    await cluster.put_topic("orders", 1)
    async with (
        cluster.producer(client=TRACED) as producer,
        PushConsumer(
            "G",
            "orders",
            listener=take,
            config=FIRST,
            client=TRACED,
            env=cluster.environment("consumer"),
        ),
    ):
        sent = await producer.send(Message("orders", b"body", keys=("order-1",)))
        await got.wait()
    return sent.message_id


def test_message_can_be_traced_from_its_sender_to_its_consumer() -> None:
    async def main() -> None:
        async with simulated_cluster(trace_topic_enabled=True) as cluster:
            message_id = await send_and_consume(cluster)
            await asyncio.sleep(1)
            found = [message for _, message in await cluster.records(TRACE_TOPIC)]
            assert all({message_id, "order-1"} == set(trace.keys) for trace in found)
            records = [one for trace in found for one in decode(trace.body.decode())]
            assert {one.message_id for one in records} == {message_id}
            assert sorted(type(one).__name__ for one in records) == [
                kind.__name__ for kind in (ConsumeBegan, ConsumeEnded, MessageSent)
            ]

    run_in_virtual_time(main())


def test_messages_flow_without_a_trace_topic() -> None:
    async def main() -> None:
        async with simulated_cluster() as cluster:
            began_s = asyncio.get_running_loop().time()
            assert await send_and_consume(cluster)
            assert asyncio.get_running_loop().time() - began_s < 5

    run_in_virtual_time(main())
