"""Producers that fail at once while no broker can be reached, and that tell whether one can."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from ternmq_model.errors import RequestTimedOut, TernError, TopicNotFound, Unreachable
from ternmq_model.message import Message, SendManyFailed
from ternmq_model.response_code import ResponseCode
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_producer.queue_selection.reachability import BrokerReachability
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.rpc import Call
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.toy_broker import ToyBroker
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC
from tests.support.toy_sending import Answer, SendServerStream


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
            assert await turns_to(producer, False) == 0
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


async def turns_to(producer: Producer, is_connected: bool) -> float:
    """Wait until the state is as said, without a send; return how many seconds that took."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while producer.is_connected != is_connected:
        await asyncio.sleep(0.01)
        assert loop.time() - began_s < 60, "it does not change"
    return loop.time() - began_s


def test_state_follows_last_broker_when_another_left_long_before() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer() as producer:
            await asyncio.gather(*(producer.send(message()) for _ in range(20)))
            cluster.untold = {"broker-0"}
            await cluster.stop(cluster.first)
            for _ in range(40):
                await producer.send(message())
                await asyncio.sleep(1)
            assert producer.is_connected
            reachable = {n: b.is_reachable for n, b in producer.statistics().brokers.items()}
            assert reachable == {"broker-0": False, "broker-1": True}
            await cluster.stop(cluster.brokers["broker-1"])
            assert await turns_to(producer, False) < 4
            assert not any(each.is_reachable for each in producer.statistics().brokers.values())

    run_in_virtual_time(main())


def test_state_of_an_idle_producer_follows_its_broker() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            await producer.send(message())
            await asyncio.sleep(60)
            for _ in range(3):
                await cluster.stop(cluster.first)
                assert await turns_to(producer, False) < 4
                await asyncio.sleep(60)
                await cluster.start(cluster.first)
                assert await turns_to(producer, True) < 4

    run_in_virtual_time(main())


def test_state_tells_that_no_nameserver_answers() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            cluster.network.partition("client", "nameserver")
            with pytest.raises(Unreachable):
                await producer.send(message())
            assert not producer.is_connected
            await asyncio.sleep(5)
            assert not producer.is_connected
            cluster.network.heal()
            assert await turns_to(producer, True) < 4
            await producer.send(message())
            assert await turns_to(producer, True) == 0

    run_in_virtual_time(main())


def test_state_stays_false_while_a_route_names_no_master() -> None:
    async def main() -> None:
        config = ProducerConfig(fail_fast=True)
        async with ToyCluster() as cluster, cluster.producer(config) as producer:
            master = cluster.members["broker-0"]
            cluster.members["broker-0"] = (replace(master[0], broker_id=1),)
            with pytest.raises(Unreachable):
                await producer.send(message())
            for _ in range(10):
                assert not producer.is_connected
                await asyncio.sleep(1)
            cluster.members["broker-0"] = master
            assert await turns_to(producer, True) < 40

    run_in_virtual_time(main())


@pytest.mark.parametrize("error", [RequestTimedOut("late"), Unreachable("gone")])
def test_reach_counts_a_topic_whose_route_nobody_told_as_away(error: TernError) -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            reachability = BrokerReachability(producer.client, {}, {})
            reachability.note(TOPIC, error)
            assert not reachability.is_connected()
            reachability.note(TOPIC, TopicNotFound(ResponseCode.TOPIC_NOT_EXIST, "no topic"))
            assert reachability.is_connected()

    run_in_virtual_time(main())


def test_state_comes_back_after_the_route_was_forgotten() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            await producer.send(message())
            cluster.untold = {"broker-0"}
            await cluster.stop(cluster.first)
            await asyncio.sleep(700)
            with pytest.raises(TopicNotFound):
                await producer.send(message())
            assert not producer.is_connected
            del cluster.members["broker-0"]  # it comes back at another address
            cluster.untold = set()
            await cluster.start(cluster.first)
            assert await turns_to(producer, True) < 4
            await producer.send(message())

    run_in_virtual_time(main())


def test_send_in_hand_fails_when_its_topic_has_no_master_any_more() -> None:
    async def main() -> None:
        config = ProducerConfig(send_timeout_s=200, fail_fast=True)
        loop = asyncio.get_running_loop()
        async with ToyCluster() as cluster, cluster.producer(config) as producer:
            await producer.send(message())
            cluster.first.sending.answer = lambda _: Answer(delay_s=150)
            sending = asyncio.ensure_future(producer.send(message()))
            await asyncio.sleep(1)
            cluster.members["broker-0"] = (replace(cluster.members["broker-0"][0], broker_id=1),)
            await asyncio.sleep(60)  # the route is asked again
            began_s = loop.time()
            await cluster.stop(cluster.first)
            with pytest.raises(Unreachable):
                await sending
            assert loop.time() - began_s < 5

    run_in_virtual_time(main())


@pytest.mark.parametrize("key", ["", "key"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_send_that_fails_at_once_lets_others_run(key: str, is_killed: bool) -> None:
    async def main() -> None:
        config = ProducerConfig(fail_fast=True)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with ToyCluster() as cluster, cluster.producer(config) as producer:
            await producer.send(message(key=key))
            if is_killed:
                await cluster.stop(cluster.first)
            else:  # a slave alone stays in the route
                cluster.members["broker-0"] = (
                    replace(cluster.members["broker-0"][0], broker_id=1),
                )
                await cluster.stop(cluster.first)
            await asyncio.sleep(10)
            counting = asyncio.ensure_future(count())
            await asyncio.sleep(0)
            before = turns
            for _ in range(100):
                with suppress(Unreachable):
                    await producer.send(message(key=key))
            counting.cancel()
            assert turns - before >= 100

    run_in_virtual_time(main())


async def hang(cluster: ToyCluster, broker: ToyBroker) -> asyncio.Event:
    """Let a broker accept connections and answer nothing to a producer until the event is set."""
    goes_on = asyncio.Event()
    serve, describe = broker.sending.send_stream, broker.describe_topic

    async def send_stream(batches: SendServerStream, call: Call) -> None:
        await goes_on.wait()
        await serve(batches, call)

    async def describe_topic(
        request: admin.DescribeTopicRequest, call: Call
    ) -> admin.DescribeTopicReply:
        await goes_on.wait()
        return await describe(request, call)

    await cluster.stop(broker)
    broker.describe_topic = describe_topic  # type: ignore[method-assign]
    broker.sending.send_stream = send_stream  # type: ignore[method-assign]
    await cluster.start(broker)
    return goes_on


def test_state_follows_broker_that_hung_and_came_back_into_the_route() -> None:
    async def main() -> None:
        config = ProducerConfig(send_timeout_s=30, fail_fast=True)
        async with ToyCluster(brokers=2) as cluster, cluster.producer(config) as producer:
            await asyncio.gather(*(producer.send(message()) for _ in range(20)))
            goes_on = await hang(cluster, cluster.first)
            cluster.untold = {"broker-0"}
            for _ in range(120):
                await producer.send(message())
                await asyncio.sleep(1)
            assert not producer.statistics().brokers["broker-0"].is_reachable
            goes_on.set()
            cluster.untold = set()
            await asyncio.sleep(60)
            assert producer.statistics().brokers["broker-0"].is_reachable
            await cluster.stop(cluster.brokers["broker-1"])
            await asyncio.sleep(5)
            assert producer.is_connected
            await producer.send(message())

    run_in_virtual_time(main())
