"""Producers that fail at once while no broker can be reached, and that tell whether one can."""

import asyncio

import pytest

from ternmq_model.errors import Unreachable
from ternmq_model.message import Message, SendManyFailed
from ternmq_producer.config import ProducerConfig
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC
from tests.support.virtual_time import run_in_virtual_time


def message(key: str = "") -> Message:
    return Message(TOPIC, b"x", sharding_key=key)


@pytest.mark.parametrize("key", ["", "key"])
def test_send_fails_at_once_while_no_broker_is_there_when_it_is_to(key: str) -> None:
    async def main() -> None:
        config = ProducerConfig(send_timeout_s=30, fail_fast=True)
        loop = asyncio.get_running_loop()
        async with ToyCluster(brokers=2) as cluster, cluster.producer(config) as producer:
            assert producer.is_connected
            await asyncio.gather(*(producer.send(message(key=key)) for _ in range(20)))
            assert producer.is_connected
            for broker in cluster.brokers.values():
                await cluster.stop(broker)
            await asyncio.sleep(5)
            began_s = loop.time()
            for _ in range(10):
                with pytest.raises(Unreachable) as told:
                    await producer.send(message(key=key))
                assert told.value.retryable
                assert not told.value.may_have_happened
            with pytest.raises(SendManyFailed):
                await producer.send_many([message(key=key)] * 3000)
            assert loop.time() - began_s < 3
            assert producer.is_connected == bool(key)  # the other broker was never tried
            assert producer.is_connected == bool(key and producer.is_connected)
            for broker in cluster.brokers.values():
                await cluster.start(broker)
            await asyncio.sleep(2)
            assert producer.is_connected
            await producer.send(message(key=key))
        assert not producer.is_connected

    run_in_virtual_time(main())


def test_send_that_fails_fast_goes_to_another_broker_first() -> None:
    async def main() -> None:
        config = ProducerConfig(send_timeout_s=30, fail_fast=True)
        async with ToyCluster(brokers=2) as cluster, cluster.producer(config) as producer:
            await asyncio.gather(*(producer.send(message()) for _ in range(20)))
            await cluster.stop(cluster.first)
            for _ in range(20):
                assert (await producer.send(message())).queue.broker_name == "broker-1"
                assert producer.is_connected

    run_in_virtual_time(main())
