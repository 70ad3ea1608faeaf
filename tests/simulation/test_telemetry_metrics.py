"""Metrics of clients by OpenTelemetry, compared with counted truth."""

import asyncio

import pytest

from ternmq_client.config import ClientConfig
from ternmq_consumer.config import ConsumeFrom, PullConsumerConfig, PushConsumerConfig
from ternmq_consumer.consume_status import ConsumeStatus
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import TernError
from ternmq_model.message import Message
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.otlp_receiver import ExportedTelemetry, exported_telemetry
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

DURATION = "messaging.client.operation.duration"
SENT = "messaging.client.sent.messages"
CONSUMED = "messaging.client.consumed.messages"
PROCESS = "messaging.process.duration"


async def send_some(cluster: SimulatedCluster, client: ClientConfig) -> None:
    """Send 7 messages to `orders` and 2 to `bills`, and lose one."""
    for topic in ("orders", "bills"):
        await cluster.put_topic(topic, 1)
    async with cluster.producer(client=client) as producer:
        await producer.send(Message("orders", b"1"))
        await producer.send_many([Message("orders", b"2")] * 3)
        await producer.send_columns("orders", [b"3", b"4"])
        await producer.send_one_way(Message("orders", b"5"))
        await producer.send_batch([Message("bills", b"1"), Message("bills", b"2")])
    async with cluster.producer(host="late", client=client) as producer:
        await producer.flush()


async def consume(cluster: SimulatedCluster, client: ClientConfig, count: int) -> None:
    """Consume `count` messages of `orders`, the first one twice."""
    done = asyncio.Event()
    got: list[StoredMessage] = []

    async def take(message: StoredMessage) -> ConsumeStatus:
        got.append(message)
        if len(got) == count + 1:
            done.set()
        return ConsumeStatus.RECONSUME_LATER if len(got) == 1 else ConsumeStatus.SUCCESS

    config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
    env = cluster.environment("consumer")
    async with PushConsumer("G", "orders", listener=take, config=config, client=client, env=env):
        await done.wait()


def test_counts_and_durations_are_those_of_the_messages() -> None:
    with exported_telemetry(trace_ratio=0) as exports:
        client = ClientConfig(nameservers=(NAMESERVER,), telemetry=exports.telemetry)

        async def main() -> None:
            async with simulated_cluster() as cluster:
                await send_some(cluster, client)
                await consume(cluster, client, 7)

        run_in_virtual_time(main())
        receiver = exports.flush()
    orders = {"messaging_destination_name": "orders"}
    group = {"messaging_consumer_group_name": "G"}
    assert receiver.total(SENT, **orders) == 7
    assert receiver.total(SENT, messaging_destination_name="bills") == 2
    assert receiver.total(CONSUMED, **orders, **group) == 8
    assert receiver.total(PROCESS, **orders, **group) == 8
    assert receiver.total(PROCESS, error_type="RECONSUME_LATER") == 1
    for operation in ("send", "receive", "settle"):
        assert receiver.total(DURATION, messaging_operation_name=operation) > 0, operation
    places = [given for name, given, *_ in receiver.metrics if name == DURATION]
    assert all(given["messaging.system"] == "rocketmq" for given in places)
    assert all("server.port" in given for given in places if "error.type" not in given)


@pytest.mark.parametrize("verb", ["poll", "poll_columns"])
def test_polled_messages_are_counted(verb: str) -> None:
    with exported_telemetry() as exports:
        client = ClientConfig(nameservers=(NAMESERVER,), telemetry=exports.telemetry)

        async def main() -> None:
            async with simulated_cluster() as cluster:
                await send_some(cluster, client)
                env = cluster.environment("consumer")
                config = PullConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
                async with PullConsumer("G", config=config, client=client, env=env) as consumer:
                    consumer.assign(await consumer.queues("orders"))
                    left = 7
                    while left:
                        found = await getattr(consumer, verb)()
                        left -= found.num_rows if verb == "poll_columns" else len(found)

        run_in_virtual_time(main())
        receiver = exports.flush()
    assert receiver.total(CONSUMED, messaging_destination_name="orders") == 7


def test_messages_that_were_not_stored_are_counted_with_their_error() -> None:
    with exported_telemetry() as exports:
        client = ClientConfig(nameservers=(NAMESERVER,), telemetry=exports.telemetry)

        async def main() -> None:
            async with simulated_cluster(brokers=["a"]) as cluster:
                await cluster.put_topic("orders", 1)
                async with cluster.producer(client=client) as producer:
                    await producer.send(Message("orders", b"1"))
                    cluster.kill("a")
                    with pytest.raises(TernError) as caught:
                        await producer.send(Message("orders", b"1"), timeout_s=1)
                    errors.append(type(caught.value).__name__)

        errors: list[str] = []
        run_in_virtual_time(main())
        receiver = exports.flush()
    assert receiver.total(SENT) == 2
    assert receiver.total(SENT, error_type=errors[0]) == 1


def test_counts_of_closed_clients_stay() -> None:
    with exported_telemetry() as exports:
        run_in_virtual_time(_send_twice(exports))
        assert exports.flush().total(SENT) == 2


async def _send_twice(exports: ExportedTelemetry) -> None:
    client = ClientConfig(nameservers=(NAMESERVER,), telemetry=exports.telemetry)
    async with simulated_cluster() as cluster:
        await cluster.put_topic("orders", 1)
        for host in ("one", "two"):
            async with cluster.producer(host, client=client) as producer:
                await producer.send(Message("orders", b"1"))
