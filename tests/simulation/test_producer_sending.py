"""Producers over a network without faults: batches, queues, order, memory."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import Any, cast
from unittest import mock

import pytest

from ternmq_model.errors import ClosedError, IllegalMessage, TopicNotFound, Unreachable, UsageError
from ternmq_model.message import Message, SendManyFailed, SendResult, SendStatus
from ternmq_model.queue import MessageQueue
from ternmq_model.route import BrokerMember
from ternmq_producer.config import ProducerConfig
from ternmq_producer.queue_selection.selectors import QueueSelector
from ternmq_testing.memory.memory_connection import MemoryClientStream
from ternmq_testing.time.virtual_time import EPOCH_MS, run_in_virtual_time
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC
from tests.support.toy_sending import Answer


def message(body: bytes = b"x", key: str = "") -> Message:
    return Message(TOPIC, body, tags="TagA", sharding_key=key)


def test_message_arrives_as_it_was_sent() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            sent = Message(
                TOPIC,
                b"hello",
                tags="AA",
                keys=["N123", "17"],
                properties={"origin": "JFK"},
                flag=-7,
            )
            result = await producer.send(sent)
            (record,) = cluster.first.sending.batches[0].records
            assert record.body == b"hello"
            assert record.flag == -7
            assert (
                record.properties.items()
                >= {
                    "TAGS": "AA",
                    "KEYS": "N123 17",
                    "origin": "JFK",
                    "CLUSTER": "toy",
                }.items()
            )
            assert record.born_at_ms >= EPOCH_MS
            assert result.status is SendStatus.SEND_OK
            assert result.message_id == record.message_id
            assert result.queue == record.queue
            assert record.queue == MessageQueue(TOPIC, "broker-0", record.queue.queue_id)
            assert (result.queue_offset, result.physical_offset) == (0, 0)

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("body_bytes", "order"), [(1, ["answer", "read"]), (64 << 10, ["read", "answer"])]
)
def test_sender_of_little_has_its_answer_before_the_next_read_begins(
    body_bytes: int, order: list[str]
) -> None:
    sent = message(Random(1).randbytes(body_bytes))  # no compression makes it small

    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            await producer.send(sent)
            await asyncio.sleep(0.01)
            events: list[str] = []
            read = MemoryClientStream[Any, Any].read

            async def note(stream: MemoryClientStream[Any, Any]) -> object:
                events.append("read")
                return await read(stream)

            with mock.patch.object(MemoryClientStream, "read", note):
                await producer.send(sent)
                events.append("answer")
                await asyncio.sleep(0.01)
            assert events == order

    run_in_virtual_time(main())


def test_lone_message_leaves_at_once_and_concurrent_ones_batch() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            broker = cluster.first
            await producer.send(message())
            broker.sending.answer = lambda _: Answer(delay_s=0.1)
            await asyncio.gather(*(producer.send(message(b"%d" % n)) for n in range(100)))
            sizes = [len(batch.records) for batch in broker.sending.batches]
            assert sizes[0] == 1
            assert sum(sizes) == 101
            assert len(sizes) <= 4
            assert broker.sending.unanswered_max <= 2

    run_in_virtual_time(main())


def test_messages_go_to_all_queues_of_all_brokers_in_turn() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2, queues=3) as cluster, cluster.producer() as producer:
            results = [await producer.send(message()) for _ in range(12)]
            counts = {result.queue: 0 for result in results}
            for result in results:
                counts[result.queue] += 1
            assert set(counts.values()) == {2}
            assert len(counts) == 6
            many = await producer.send_many([message() for _ in range(600)])
            for result in many:
                counts[result.queue] += 1
            assert set(counts.values()) == {102}

    run_in_virtual_time(main())


def test_messages_of_one_key_stay_in_order_on_one_queue() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer() as producer:
            for broker in cluster.brokers.values():
                broker.sending.answer = lambda _: Answer(delay_s=cluster.random.uniform(0, 0.02))

            async def write(key: str) -> list[SendResult]:
                futures: list[asyncio.Future[SendResult]] = []
                for number in range(50):
                    future = await producer.enqueue(message(b"%d" % number, key))
                    futures.append(future)
                    if number % 7 == 0:
                        await asyncio.sleep(0.003)
                return await asyncio.gather(*futures)

            for results in await asyncio.gather(*(write(f"key-{n}") for n in range(20))):
                assert len({result.queue for result in results}) == 1
                offsets = [result.queue_offset for result in results]
                assert offsets == sorted(offsets)

    run_in_virtual_time(main())


def test_send_many_gives_results_in_the_order_of_its_messages() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer() as producer:
            sent = [message(b"%d" % n, "key" if n % 5 == 0 else "") for n in range(5000)]
            results = await producer.send_many(sent)
            stored = {
                (queue, message.queue_offset): message.body
                for broker in cluster.brokers.values()
                for queue in broker.queues
                for message in broker.messages(queue)
            }
            assert len(results) == len(stored) == 5000
            for one, result in zip(sent, results, strict=True):
                assert stored[result.queue, result.queue_offset] == one.body
            assert results[-1] == results[4999]
            assert results[1:3] == [results[1], results[2]]
            keyed = results[::5]
            assert len({result.queue for result in keyed}) == 1
            offsets = [result.queue_offset for result in keyed]
            assert offsets == sorted(offsets)
            assert len({result.message_id for result in results}) == 5000

    run_in_virtual_time(main())


def test_send_many_of_nothing_returns_nothing() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            assert list(await producer.send_many([])) == []

    run_in_virtual_time(main())


def test_large_messages_travel_alone_and_batches_stay_within_limits() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            bodies = [b"x" * size for size in (4 << 20, 10, 600_000, 600_000, 1 << 20, 10)]
            await asyncio.gather(*(producer.send(message(body)) for body in bodies))
            await producer.send_many([message(body) for body in bodies])
            assert len(cluster.first.bodies) == 12  # sizes are checked as batches come

    run_in_virtual_time(main())


def _no_queue(*_: object) -> None:
    """Forget to return anything."""


def test_queue_may_be_chosen_by_the_caller_or_a_selector() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            queue = MessageQueue(TOPIC, "broker-0", 2)
            assert (await producer.send(message(), queue=queue)).queue == queue
            picked = await producer.send(message(), selector=lambda queues, _: queues[3])
            assert picked.queue.queue_id == 3
            with pytest.raises(UsageError, match="cannot go to"):
                await producer.send(message(), queue=MessageQueue("other", "broker-0", 0))
            with pytest.raises(UsageError, match="was chosen for 'flights'"):
                await producer.send(message(), selector=cast("QueueSelector", _no_queue))
            with pytest.raises(UsageError, match="exclude each other"):
                await producer.send(message(), queue=queue, selector=lambda queues, _: queues[0])
            with pytest.raises(ZeroDivisionError):
                await producer.send(message(), selector=lambda queues, _: queues[1 // 0])
            await producer.send(message())
            assert producer.buffered_bytes == 0

    run_in_virtual_time(main())


def test_memory_is_bounded_and_senders_wait_for_space() -> None:
    async def main() -> None:
        async with (
            ToyCluster() as cluster,
            cluster.producer(ProducerConfig(buffer_bytes=100_000, compression=None)) as producer,
        ):
            cluster.first.sending.answer = lambda _: Answer(delay_s=0.05)
            most = 0

            async def write() -> None:
                nonlocal most
                for _ in range(5):
                    await producer.send(message(b"x" * 9_000))
                    most = max(most, producer.buffered_bytes)

            await asyncio.gather(*(write() for _ in range(50)))
            assert 80_000 < most <= 100_000
            assert producer.buffered_bytes == 0
            assert len(cluster.first.bodies) == 250

    run_in_virtual_time(main())


def test_unsendable_message_fails_and_names_the_culprit() -> None:
    async def main() -> None:
        plain = ProducerConfig(compression=None)
        async with ToyCluster() as cluster, cluster.producer(plain) as producer:
            cluster.first.sending.opened.properties_bytes_max = 1000
            cluster.first.sending.opened.body_bytes_max = 50_000
            bad = [
                (Message(TOPIC, b"x" * ((4 << 20) + 1)), "body has 4194305"),
                (Message(TOPIC, b"x", properties={"a": "b" * 1001}), "properties have"),
                (Message(TOPIC, b"x" * 50_001), "at most 50000"),
                (Message(TOPIC, b"x", properties={"a\x01": "b"}), "0x01"),
                (Message(TOPIC, "text"), "body is str"),  # type: ignore[arg-type]
                (Message(TOPIC, b"", tags=["a"]), "tags is one"),  # type: ignore[arg-type]
                (Message(TOPIC, b"x", flag=1 << 31), "of 32 bits"),
            ]
            for _ in range(2):  # before and after the stream is open
                for one, words in bad:
                    with pytest.raises(IllegalMessage, match=words):
                        await producer.send(one)
                await producer.send(message())
            assert len(cluster.first.bodies) == 2
            assert producer.buffered_bytes == 0

    run_in_virtual_time(main())


def test_unknown_topic_is_created_by_its_first_message_or_fails() -> None:
    async def main() -> None:
        async with ToyCluster(queues=8) as cluster:
            async with cluster.producer() as producer:
                with pytest.raises(TopicNotFound, match="no topic new"):
                    await producer.send(Message("new", b"x"))
                cluster.put_topic("TBW102", 8)
                queues = {(await producer.send(Message("new", b"x"))).queue for _ in range(8)}
                assert len(queues) == 4
                assert cluster.first.sending.opens[0].auto_create.template_topic == "TBW102"
                cluster.put_topic("new", 2)
                await asyncio.sleep(5)
                queues = {(await producer.send(Message("new", b"x"))).queue for _ in range(8)}
                assert len(queues) == 2
            config = ProducerConfig(creates_topics=False)
            async with cluster.producer(config) as producer:
                with pytest.raises(TopicNotFound):
                    await producer.send(Message("newer", b"x"))

    run_in_virtual_time(main())


def test_topic_is_created_by_a_send_once_a_master_returns() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            cluster.put_topic("TBW102", 8)
            (master,) = cluster.members["broker-0"]
            cluster.members["broker-0"] = (BrokerMember(1, master.endpoints),)
            with pytest.raises(Unreachable, match="has a master"):
                await producer.send(Message("new", b"x"))
            cluster.members["broker-0"] = (master,)
            assert (await producer.send(Message("new", b"x"))).status is SendStatus.SEND_OK

    run_in_virtual_time(main())


def test_closing_waits_for_answers_and_says_goodbye() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster:
            broker = cluster.first
            broker.sending.answer = lambda _: Answer(delay_s=1)
            async with cluster.producer() as producer:
                future = await producer.enqueue(message())
            assert future.result().status is SendStatus.SEND_OK
            assert broker.sessions.goodbyes == 1
            assert list(broker.sessions.hellos[0].producer_groups) == ["senders"]
            assert list(broker.sessions.heartbeats[-1].producer_groups) == []
            with pytest.raises(ClosedError):
                await producer.send(message())

    run_in_virtual_time(main())


def test_enqueue_fills_batches_before_the_loop_gets_a_turn() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            broker = cluster.first.sending
            await producer.send(message())
            broker.batches.clear()
            sent = [await producer.enqueue(message(b"%d" % each)) for each in range(2048)]
            await asyncio.gather(*sent)
            assert sum(len(batch.records) for batch in broker.batches) == 2048
            assert len(broker.batches[0].records) >= 500

    run_in_virtual_time(main())


def test_closing_does_not_wait_for_ever() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster:
            cluster.first.sending.answer = lambda _: Answer(is_silent=True)
            async with cluster.producer() as producer:
                future = await producer.enqueue(message(), timeout_s=60)
            error = future.exception()
            assert isinstance(error, ClosedError)
            assert error.may_have_happened
            assert asyncio.get_running_loop().time() < 10

    run_in_virtual_time(main())


def test_cancelled_sender_leaves_no_trace() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            await producer.send(message())
            cluster.first.sending.answer = lambda _: Answer(delay_s=0.5)
            many = [message(b"many")] * 3000
            for coroutine in (producer.send(message()), producer.send_many(many)):
                task = asyncio.ensure_future(coroutine)
                await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await producer.flush()
            assert producer.buffered_bytes == 0
            await producer.send(message())

    run_in_virtual_time(main())


def test_changed_route_is_followed() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster:
            cluster.put_topic(TOPIC, 4, ["broker-0"])
            async with cluster.producer() as producer:
                await producer.send(message())
                cluster.put_topic(TOPIC, 4)
                await asyncio.sleep(35)
                results = [await producer.send(message()) for _ in range(8)]
                assert {result.queue.broker_name for result in results} == {"broker-0", "broker-1"}

    run_in_virtual_time(main())


Slip = Callable[[Any, Message], Awaitable[object]]

SLIPS: list[tuple[Slip, str]] = [
    (lambda producer, _: producer.send("text"), "'text' is no message: write Message("),
    (lambda producer, _: producer.enqueue(b"text"), "is no message"),
    (lambda producer, _: producer.send_one_way(None), "None is no message"),
    (lambda producer, _: producer.request("text"), "is no message"),
    (lambda producer, _: producer.send_batch(["text"]), "is no message"),
    (lambda producer, sent: producer.send_batch(sent), "is no list of messages"),
    (lambda producer, sent: producer.send_many([sent, "text"]), "'text' is no message"),
    (lambda producer, sent: producer.send_many(sent), "is no list of messages"),
    (lambda producer, sent: producer.send_many(each for each in [sent]), "is no list"),
    (
        lambda producer, sent: producer.send(sent, timeout_s="3"),
        "timeout_s='3' must be seconds",
    ),
    (
        lambda producer, sent: producer.send(sent, timeout_s=timedelta(seconds=3)),
        "write span.total_seconds()",
    ),
    (lambda producer, sent: producer.send(sent, selector=5), "selector=5 must be a function"),
    (
        lambda producer, sent: producer.send(sent, selector=lambda: None),
        "must take 2 arguments",
    ),
    (lambda producer, _: producer.send(Message(TOPIC, b"", flag=cast("int", 1.5))), "flag 1.5"),
]


@pytest.mark.parametrize(("send", "told"), SLIPS)
def test_slip_in_a_send_is_refused_and_the_producer_goes_on(send: Slip, told: str) -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            await producer.send(message())
            with pytest.raises(UsageError) as refused:
                await send(producer, message())
            assert told in str(refused.value)
            await producer.send(message())
            assert sum(len(batch.records) for batch in cluster.first.sending.batches) == 2

    run_in_virtual_time(main())


@pytest.mark.parametrize("topic", [["A"], None, "no topic"])
def test_send_many_refuses_an_illegal_topic_beside_sharding_keys_alone(topic: object) -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            illegal = Message(cast("str", topic), b"", sharding_key="key")
            with pytest.raises(SendManyFailed) as failed:
                await producer.send_many([Message(TOPIC, b"a", sharding_key="key"), illegal])
            first, second = failed.value.results
            assert isinstance(first, SendResult)
            assert isinstance(second, UsageError)

    run_in_virtual_time(main())
