"""Requests and their replies, through a broker between producer and consumer."""

import asyncio

import pytest

from ternmq_client.reply_message import is_request
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import (
    ClientNotOnline,
    ClosedError,
    IllegalMessage,
    RequestTimedOut,
    UsageError,
)
from ternmq_model.message import Message
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

TOPIC = "questions"
REPLIES = "DefaultCluster_REPLY_TOPIC"


class Answerer:
    """Consumes requests and answers each, after a while, with its body reversed."""

    def __init__(self, cluster: SimulatedCluster, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.seen: list[StoredMessage] = []
        self.failures: list[Exception] = []
        self.consumer = PushConsumer(
            "answerers",
            TOPIC,
            listener=self.answer,
            nameserver=NAMESERVER,
            config=PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET),
            env=cluster.environment("answerer"),
        )

    async def answer(self, message: StoredMessage) -> None:
        self.seen.append(message)
        await asyncio.sleep(self.delay_s)
        try:
            await self.consumer.reply(message, message.body[::-1], properties={"how": "reversed"})
        except (ClientNotOnline, UsageError) as error:
            self.failures.append(error)


@pytest.mark.parametrize("brokers", [["a"], ["a", "b"]])
def test_each_request_gets_its_own_reply(brokers: list[str]) -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=brokers) as cluster:
            await cluster.put_topic(TOPIC)
            answerer = Answerer(cluster)
            async with answerer.consumer, cluster.producer() as producer:
                replies = await asyncio.gather(
                    *(
                        producer.request(Message(TOPIC, b"%03d" % n, tags="t"), timeout_s=10)
                        for n in range(50)
                    )
                )
                assert [each.body for each in replies] == [(b"%03d" % n)[::-1] for n in range(50)]
                assert {reply.topic for reply in replies} == {REPLIES}
                assert all(reply.properties["how"] == "reversed" for reply in replies)
                assert all(is_request(message) for message in answerer.seen)
                assert producer.statistics().late_replies == 0
            stored = [each.body for _, each in await cluster.records(REPLIES)]
            assert len(stored) == 50

    run_in_virtual_time(main())


def test_late_reply_is_dropped_and_counted() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"], store_replies=False) as cluster:
            await cluster.put_topic(TOPIC)
            answerer = Answerer(cluster, delay_s=5)
            async with answerer.consumer, cluster.producer() as producer:
                began = asyncio.get_running_loop().time()
                with pytest.raises(RequestTimedOut, match="no reply within 2 s") as told:
                    await producer.request(Message(TOPIC, b"x"), timeout_s=2)
                assert told.value.may_have_happened
                assert 1.99 <= asyncio.get_running_loop().time() - began < 2.1
                await asyncio.sleep(6)
                assert producer.statistics().late_replies == 1
                answerer.delay_s = 0
                reply = await producer.request(Message(TOPIC, b"abc"), timeout_s=2)
                assert reply.body == b"cba"
            assert not answerer.failures
            assert not await cluster.records(REPLIES)

    run_in_virtual_time(main())


def test_replier_learns_that_the_requester_is_gone() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"]) as cluster:
            await cluster.put_topic(TOPIC)
            answerer = Answerer(cluster, delay_s=3)
            async with answerer.consumer:
                producer = cluster.producer()
                async with producer:
                    asking = cluster.tasks.spawn(
                        producer.request(Message(TOPIC, b"x"), timeout_s=20), "ask"
                    )
                    await asyncio.sleep(1)
                    asking.cancel()
                await asyncio.sleep(5)
            (failure,) = answerer.failures
            assert isinstance(failure, ClientNotOnline)
            assert not failure.retryable

    run_in_virtual_time(main())


def test_closing_the_producer_ends_its_requests() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"]) as cluster:
            await cluster.put_topic(TOPIC)
            async with cluster.producer() as producer:

                async def ask() -> BaseException | None:
                    try:
                        await producer.request(Message(TOPIC, b"x"), timeout_s=20)
                    except ClosedError as error:
                        return error
                    return None

                asking = cluster.tasks.spawn(ask(), "ask")
                await asyncio.sleep(1)
            assert isinstance(await asking, ClosedError)

    run_in_virtual_time(main())


def test_request_without_a_broker_times_out_unsent() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"]) as cluster, cluster.producer() as producer:
            cluster.network.partition("producer", "ns")
            began_s = asyncio.get_running_loop().time()
            with pytest.raises(RequestTimedOut, match="not sent") as told:
                await producer.request(Message(TOPIC, b"x"), timeout_s=0.5)
            assert asyncio.get_running_loop().time() - began_s < 0.6
            assert not told.value.may_have_happened

    run_in_virtual_time(main())


def test_reply_to_plain_message_is_refused() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"]) as cluster:
            await cluster.put_topic(TOPIC)
            answerer = Answerer(cluster)
            async with answerer.consumer, cluster.producer() as producer:
                await producer.send(Message(TOPIC, b"x"))
                await asyncio.sleep(1)
                (failure,) = answerer.failures
                assert isinstance(failure, UsageError)
                assert not is_request(answerer.seen[0])
                with pytest.raises(IllegalMessage):
                    await producer.request(Message(TOPIC, b"x", tags="a||b"))
                reply = await producer.request(Message(TOPIC, b"x"), timeout_s=2)
                with pytest.raises(IllegalMessage, match="is reserved"):
                    await answerer.consumer.reply(
                        answerer.seen[-1], b"", properties={"CORRELATION_ID": "1"}
                    )
                assert reply.body == b"x"

    run_in_virtual_time(main())
