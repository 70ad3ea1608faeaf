"""What clients make of a broker that leaves in order, and of the one that takes its place."""

import asyncio
import logging
from functools import partial

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import TopicNotFound
from ternmq_model.message import Message, SendResult
from ternmq_model.queue import MessageQueue
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import promote, replicated

TOPIC = "orders"
PATIENT = ProducerConfig(send_timeout_s=40)
FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


def consumer_of(cluster: SimulatedCluster) -> PushConsumer:
    return PushConsumer(
        "readers",
        TOPIC,
        nameserver=NAMESERVER,
        env=cluster.environment("c1"),
        config=FIRST,
        listener=cluster.listener("readers"),
    )


async def send_meanwhile(
    cluster: SimulatedCluster, producer: Producer, stop: asyncio.Event
) -> list[object]:
    """Begin a send every 50 ms, whatever became of those before; return what is no result."""
    sends: list[asyncio.Task[object]] = []
    while not stop.is_set():
        sends.append(asyncio.ensure_future(cluster.send(producer, TOPIC)))
        await asyncio.sleep(0.05)
    return [each for each in await asyncio.gather(*sends) if not isinstance(each, SendResult)]


@pytest.mark.parametrize("brokers", [("a",), ("a", "b")])
@pytest.mark.parametrize("with_nameserver", [False, True])
def test_restarted_broker_costs_no_send_no_queue_and_no_second_delivery(
    brokers: tuple[str, ...], with_nameserver: bool
) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=brokers) as cluster:
            await cluster.put_topic(TOPIC, 2)
            producer = cluster.producer(config=PATIENT)
            async with producer, consumer_of(cluster) as consumer:
                await consumer.assigned()
                owned = consumer.assignment()
                stop = asyncio.Event()
                sending = asyncio.ensure_future(send_meanwhile(cluster, producer, stop))
                for away_s in (0.5, 4.0, 12.0):
                    await asyncio.sleep(3)
                    await cluster.stop("a")
                    if with_nameserver:
                        await cluster.nameservers.stop("ns")
                        await cluster.nameservers.start("ns")
                    await asyncio.sleep(away_s)
                    assert consumer.assignment() == owned
                    await cluster.start("a")
                stop.set()
                assert await sending == []
                await cluster.consumed("readers", timeout_s=10)
                assert consumer.assignment() == owned
            assert len(cluster.history.deliveries) == len(cluster.history.sent)

    run_in_virtual_time(main())


def test_deleted_topic_is_reported_as_such_at_once() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.put_topic(TOPIC, 2)
            config = ProducerConfig(send_timeout_s=40, creates_topics=False)
            async with cluster.producer(config=config) as producer:
                await producer.send(Message(TOPIC, b"x"))
                client = await cluster.connect("a")
                await client.call(
                    service_methods.DELETE_TOPIC, admin.DeleteTopicRequest(topic=TOPIC)
                )
                await client.connection.close()
                began_s = asyncio.get_running_loop().time()
                with pytest.raises(TopicNotFound):
                    await producer.send(Message(TOPIC, b"x"))
                assert asyncio.get_running_loop().time() - began_s < 3

    run_in_virtual_time(main())


@pytest.mark.parametrize("seed", range(6))
def test_new_master_is_read_and_written_soon_after_a_switch_over(seed: int) -> None:
    async def main() -> None:
        async with simulated_cluster(seed, brokers=("a", "b")) as cluster:
            await cluster.put_topic(TOPIC, 2)
            await cluster.start("a-1")
            await replicated(cluster)
            producer = cluster.producer(config=PATIENT)
            async with producer, consumer_of(cluster) as consumer:
                await consumer.assigned()
                await producer.send(Message(TOPIC, b"first"), queue=MessageQueue(TOPIC, "a", 0))
                await asyncio.sleep(20 + seed)
                await cluster.stop("a")
                await asyncio.sleep(1)
                await promote(cluster, "a-1")
                began_s = asyncio.get_running_loop().time()
                for queue in (MessageQueue(TOPIC, "a", queue_id) for queue_id in range(2)):
                    send = partial(producer.send, queue=queue)
                    assert isinstance(await cluster.send(send, TOPIC), SendResult)
                await cluster.consumed("readers", timeout_s=10)
                assert asyncio.get_running_loop().time() - began_s < 3

    run_in_virtual_time(main())


def test_restart_of_a_broker_is_one_warning_for_all_clients(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a",)) as cluster:
            await cluster.put_topic(TOPIC, 2)
            producer = cluster.producer(config=PATIENT)
            async with producer, consumer_of(cluster) as consumer:
                await consumer.assigned()
                await cluster.send(producer, TOPIC)
                await asyncio.sleep(10)
                caplog.clear()
                is_over = asyncio.Event()
                sending = asyncio.ensure_future(send_meanwhile(cluster, producer, is_over))
                await asyncio.sleep(0.5)
                await cluster.stop("a")
                await asyncio.sleep(4)
                await cluster.start("a")
                is_over.set()
                assert await sending == []
                await asyncio.sleep(10)
                clients = ("ternmq_client", "ternmq_producer", "ternmq_consumer")
                warnings = [
                    record.getMessage()
                    for record in caplog.records
                    if record.levelno >= logging.WARNING and record.name.startswith(clients)
                ]
                assert len(warnings) == 1, warnings
                assert "broker is unreachable" in warnings[0]

    run_in_virtual_time(main())


def test_deletion_names_the_broker_that_will_bring_the_topic_back() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=("a", "b")) as cluster:
            await cluster.put_topic(TOPIC, 2)
            await asyncio.sleep(2)
            async with AdminClient(nameserver=NAMESERVER, env=cluster.environment("tool")) as admin:
                await cluster.stop("b")
                deleted = await admin.delete_topic(TOPIC)
                assert deleted == ["a"]
                assert [each.broker_name for each in deleted.unreachable] == ["b"]
                assert str(deleted.unreachable[0]).startswith("broker b: has left lately")
                await cluster.start("b")
                await asyncio.sleep(2)
                deleted = await admin.delete_topic(TOPIC)
                assert (deleted, deleted.unreachable) == (["b"], ())

    run_in_virtual_time(main())
