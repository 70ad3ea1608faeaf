"""Producers of a broker name whose master is away while a slave is there."""

import asyncio

import pytest

from ternmq_model.errors import Unreachable
from ternmq_model.message import Message
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_producer.transactions.transaction_producer import TransactionProducer
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.numbered import TOPIC, numbered
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster
from tests.support.simulated_replicas import start_slave


async def stored_at(cluster: SimulatedCluster, name: str) -> int:
    """Return how many messages a member has."""
    request = admin.DescribeTopicRequest(topic=TOPIC)
    reply = await cluster.ask(name, service_methods.DESCRIBE_TOPIC, request)
    return sum(status.max_offset for status in reply.queues)


def producer_of(cluster: SimulatedCluster, timeout_s: float = 3.0) -> Producer:
    config = ProducerConfig(send_timeout_s=timeout_s)
    return Producer("p", nameserver=NAMESERVER, config=config, env=cluster.environment("p"))


@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize("is_known_to_be_away", [True, False])
def test_send_without_master_fails_undone_and_says_why(key: str, is_known_to_be_away: bool) -> None:
    async def main() -> None:
        async with numbered() as (cluster, _):
            await start_slave(cluster)
            async with producer_of(cluster) as producer:
                await producer.send(Message(TOPIC, b"0", sharding_key=key))
                if is_known_to_be_away:
                    await cluster.stop("a")
                    await asyncio.sleep(3)
                else:
                    cluster.network.partition("p", "a")
                    await asyncio.sleep(20)
                with pytest.raises(Unreachable) as why:
                    await producer.send(Message(TOPIC, b"1", sharding_key=key))
                assert not why.value.may_have_happened
                told = "master" if is_known_to_be_away else "broker a: "
                assert told in str(why.value)
                cluster.network.heal()
                if is_known_to_be_away:
                    await cluster.start("a")
                await asyncio.sleep(3)
                await producer.send(Message(TOPIC, b"1", sharding_key=key))
            assert await stored_at(cluster, "a") == 2

    run_in_virtual_time(main())


def test_send_with_time_left_waits_for_master() -> None:
    async def main() -> None:
        async with numbered() as (cluster, _):
            await start_slave(cluster)
            async with producer_of(cluster, timeout_s=30) as producer:
                await producer.send(Message(TOPIC, b"0", sharding_key="k"))
                await cluster.stop("a")
                sending = asyncio.ensure_future(
                    producer.send(Message(TOPIC, b"1", sharding_key="k"))
                )
                await asyncio.sleep(10)
                assert not sending.done()
                await cluster.start("a")
                assert (await sending).queue_offset == 1

    run_in_virtual_time(main())


def test_end_of_transaction_waits_for_master() -> None:
    async def main() -> None:
        async with numbered() as (cluster, _):
            await start_slave(cluster)

            async def execute(message: Message, argument: object) -> Resolution:
                await cluster.stop("a")
                asyncio.get_running_loop().call_later(10, returned.set)
                return Resolution.COMMIT

            async def check(message: StoredMessage) -> Resolution:
                raise AssertionError("is not asked: the end is told first")

            returned = asyncio.Event()
            config = ProducerConfig(send_timeout_s=30)
            producer = TransactionProducer(
                "p",
                execute=execute,
                check=check,
                nameserver=NAMESERVER,
                config=config,
                env=cluster.environment("p"),
            )
            async with producer:
                sending = asyncio.ensure_future(producer.send(Message(TOPIC, b"0")))
                await returned.wait()
                assert not sending.done()
                assert await stored_at(cluster, "a-1") == 0
                await cluster.start("a")
                assert (await sending).resolution is Resolution.COMMIT
                await asyncio.sleep(2)
            assert await stored_at(cluster, "a") == 1

    run_in_virtual_time(main())
