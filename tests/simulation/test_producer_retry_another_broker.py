"""Messages that one broker stored less safely than asked, and another one takes as well."""

import asyncio
from dataclasses import replace

from ternmq_model.message import Message, SendResult, SendStatus
from ternmq_producer.config import ProducerConfig
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC
from tests.support.toy_sending import Answer

CONFIG = ProducerConfig(retry_another_broker_when_not_ok=True)
NO_SLAVE = 11
ILLEGAL = 13


def stored(cluster: ToyCluster) -> list[int]:
    return [len(broker.bodies) for broker in cluster.brokers.values()]


def test_another_broker_stores_a_message_stored_without_a_slave() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer(CONFIG) as producer:
            cluster.first.sending.answer = lambda _: Answer(code=NO_SLAVE)
            for number in range(6):
                result = await producer.send(Message(TOPIC, b"%d" % number))
                assert result.status is SendStatus.SEND_OK
                assert result.queue.broker_name == "broker-1"
            assert len(cluster.brokers["broker-1"].bodies) == 6
            assert set(cluster.first.bodies) < set(cluster.brokers["broker-1"].bodies)
            assert producer.statistics().buffered_bytes == 0

    run_in_virtual_time(main())


def test_another_broker_stores_many_messages_that_travelled_together() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer(CONFIG) as producer:
            cluster.first.sending.answer = lambda _: Answer(code=NO_SLAVE)
            sent = [await producer.enqueue(Message(TOPIC, b"%d" % each)) for each in range(200)]
            for result in await asyncio.gather(*sent):
                assert result.status is SendStatus.SEND_OK
                assert result.queue.broker_name == "broker-1"
            assert len(cluster.brokers["broker-1"].bodies) == 200
            assert producer.statistics().buffered_bytes == 0

    run_in_virtual_time(main())


def test_message_is_stored_when_no_broker_has_a_slave() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer(CONFIG) as producer:
            for broker in cluster.brokers.values():
                broker.sending.answer = lambda _: Answer(code=NO_SLAVE)
            result = await producer.send(Message(TOPIC, b"x"))
            assert result.status is SendStatus.SLAVE_NOT_AVAILABLE
            assert sum(stored(cluster)) == CONFIG.attempts_max
            cluster.brokers["broker-1"].sending.answer = lambda _: Answer(
                code=ILLEGAL if b"y" in cluster.first.bodies else NO_SLAVE
            )
            refused = await producer.send(Message(TOPIC, b"y"))
            assert refused.status is SendStatus.SLAVE_NOT_AVAILABLE
            assert producer.statistics().buffered_bytes == 0

    run_in_virtual_time(main())


def test_atomic_batch_stored_without_a_slave_goes_once() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer(CONFIG) as producer:
            for broker in cluster.brokers.values():
                broker.sending.answer = lambda _: Answer(code=NO_SLAVE)
            results = await producer.send_batch([Message(TOPIC, b"x"), Message(TOPIC, b"y")])
            assert {each.status for each in results} == {SendStatus.SLAVE_NOT_AVAILABLE}
            assert sum(stored(cluster)) == 2

    run_in_virtual_time(main())


def test_silent_broker_costs_time_and_not_the_result() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer(CONFIG) as producer:
            cluster.first.sending.answer = lambda _: Answer(code=NO_SLAVE)
            cluster.brokers["broker-1"].sending.answer = lambda _: Answer(is_silent=True)
            sends = [producer.send(Message(TOPIC, b"%d" % n), timeout_s=1) for n in range(8)]
            results = await asyncio.gather(*sends, return_exceptions=True)
            told = [result for result in results if isinstance(result, SendResult)]
            assert len(told) == len(cluster.first.bodies) >= 2
            assert {result.status for result in told} == {SendStatus.SLAVE_NOT_AVAILABLE}
            assert all(result.queue.broker_name == "broker-0" for result in told)

    run_in_virtual_time(main())


def test_ordered_unrepeatable_or_single_broker_sends_go_once() -> None:
    async def main() -> None:
        for brokers, config, key in (
            (2, ProducerConfig(), ""),
            (2, replace(CONFIG, duplicates_allowed=False), ""),
            (2, CONFIG, "key"),
            (1, CONFIG, ""),
        ):
            async with (
                ToyCluster(brokers=brokers) as cluster,
                cluster.producer(config) as producer,
            ):
                for broker in cluster.brokers.values():
                    broker.sending.answer = lambda _: Answer(code=NO_SLAVE)
                result = await producer.send(Message(TOPIC, b"x", sharding_key=key))
                assert result.status is SendStatus.SLAVE_NOT_AVAILABLE
                assert sum(stored(cluster)) == 1
                await producer.send_many([Message(TOPIC, b"y")])
                assert sum(stored(cluster)) == 2

    run_in_virtual_time(main())
