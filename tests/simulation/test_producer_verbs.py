"""One-way sends, whole batches, compression, interceptors and the avoiding of slow brokers."""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable
from dataclasses import replace

import pytest

from ternmq_client.interceptors import SendEvent
from ternmq_model.errors import (
    BrokerBusy,
    ClosedError,
    IllegalMessage,
    MessageRefused,
    SendVetoed,
    TernError,
    Unreachable,
)
from ternmq_model.message import Message, SendManyFailed, SendStatus
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_producer.batch.bulk import SendResults
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_producer.queue_selection.selectors import ByKey, ByMachineRoom
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import CLUSTER_STORE, SimulatedCluster, simulated_cluster
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC
from tests.support.toy_sending import Answer, SentBatch

BUSY = int(ResponseCode.SYSTEM_BUSY)
TEXT = b"".join(b"flight %d from EWR to IAH;" % n for n in range(400))


def message(body: bytes = b"x", **fields: object) -> Message:
    return Message(TOPIC, body, **fields)  # type: ignore[arg-type]


class Watching:
    """An interceptor that marks messages, refuses some, and remembers what it was told."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.events: list[SendEvent] = []

    def before_send(self, message: Message) -> Message:
        self.seen.append(message.body)
        if message.body == b"no":
            raise ValueError("not this one")
        return replace(message, properties={**message.properties, "seen": "yes"})

    def after_send(self, event: SendEvent) -> None:
        self.events.append(event)


def test_sends_one_way_leave_and_count_their_failures() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster:
            producer = cluster.producer()
            async with producer:
                for number in range(20):
                    await producer.send_one_way(message(b"%d" % number))
                await producer.flush()
                assert len(cluster.first.bodies) == 20
                assert producer.statistics().one_way_failures == 0
                cluster.first.sending.answer = lambda _: Answer(refused={1: 13})
                for _ in range(3):
                    await producer.send_one_way(message())
                await producer.flush()
                told = producer.statistics()
                assert told.one_way_failures == 1
                assert told.buffered_bytes == 0
                assert told.brokers["broker-0"].stored == 22
                assert told.brokers["broker-0"].failures == 1
                with pytest.raises(IllegalMessage):
                    await producer.send_one_way(message(tags="a||b"))
                assert producer.statistics().one_way_failures == 1
            with pytest.raises(ClosedError):
                await producer.send_one_way(message())

    run_in_virtual_time(main())


async def lying(cluster: SimulatedCluster) -> list[tuple[MessageQueue, int, bytes]]:
    return [(queue, each.queue_offset, each.body) for queue, each in await cluster.records(TOPIC)]


def test_batch_lies_together_in_one_queue_and_reports_each_place() -> None:
    async def main() -> None:
        async with simulated_cluster(brokers=["a"]) as cluster, cluster.producer() as producer:
            others = [cluster.tasks.spawn(producer.send(message()), "send") for _ in range(50)]
            sent = [message(b"%d" % n, tags="t") for n in range(100)]
            results = await producer.send_batch(sent)
            await asyncio.wait(others)
            queue = results[0].queue
            assert {result.queue for result in results} == {queue}
            first = results[0].queue_offset
            assert [result.queue_offset for result in results] == list(range(first, first + 100))
            assert len({result.message_id for result in results}) == 100
            assert all(result.status is SendStatus.SEND_OK for result in results)
            kept = {place[:2]: place[2] for place in await lying(cluster)}
            assert [kept[queue, first + n] for n in range(100)] == [b"%d" % n for n in range(100)]
            chosen = MessageQueue(TOPIC, "a", 2)
            assert (await producer.send_batch(sent, queue=chosen))[0].queue == chosen
            keyed = [message(sharding_key="k") for _ in range(3)]
            by_key = await producer.send_batch(deque(keyed))
            assert by_key[0].queue == (await producer.send(keyed[0])).queue
            assert producer.buffered_bytes == 0

    run_in_virtual_time(main())


@pytest.mark.parametrize("key", ["", "k"])
def test_batches_survive_broken_streams_whole_and_once(key: str) -> None:
    async def main() -> None:
        config = ProducerConfig(send_timeout_s=60, attempts_max=30)
        async with (
            simulated_cluster(3, brokers=["a"]) as cluster,
            cluster.producer(config=config) as producer,
        ):
            sending = [
                cluster.tasks.spawn(
                    producer.send_batch(
                        [message(b"%d.%d" % (batch, n), sharding_key=key) for n in range(20)]
                    ),
                    "send",
                )
                for batch in range(30)
            ]
            singles = [
                cluster.tasks.spawn(producer.send(message(b"s%d" % n, sharding_key=key)), "send")
                for n in range(30)
            ]
            for _ in range(6):
                await asyncio.sleep(0.003)
                cluster.network.cut("producer", "a")
            await asyncio.wait([*sending, *singles])
            kept = sorted(await lying(cluster))
            assert len(kept) == 630
            bodies = [body for _, _, body in kept]
            for batch, task in enumerate(sending):
                begin = bodies.index(b"%d.0" % batch)
                assert bodies[begin : begin + 20] == [b"%d.%d" % (batch, n) for n in range(20)]
                assert task.result()[0].queue_offset == kept[begin][1]
            if key:
                assert [body for body in bodies if body.endswith(b".0")] == [
                    b"%d.0" % batch for batch in range(30)
                ]

    run_in_virtual_time(main())


def test_illegal_batch_is_refused_and_not_sent() -> None:
    async def main() -> None:
        store = replace(CLUSTER_STORE, commit_log_file_bytes=16 << 20)
        async with (
            simulated_cluster(brokers=["a"], store=store) as cluster,
            cluster.producer() as producer,
        ):
            for wrong, words in (
                ([], "at least one"),
                ([message(), Message("Other", b"")], "one topic"),
                ([message(), message(delay_level=3)], "delayed"),
                ([message(sharding_key="a"), message(sharding_key="b")], "one queue"),
                ([message(os.urandom(1 << 20))] * 4, "at most 4194304"),
                ([message(), message(tags="a||b")], "tag"),
                ([Message("%RETRY%g", b"")], "cannot go to"),
            ):
                with pytest.raises(IllegalMessage, match=words):
                    await producer.send_batch(wrong)
            fits = (4 << 20) // 8 - 300
            assert len(await producer.send_batch([message(bytes(fits))] * 8)) == 8
            # It is known only with what the broker adds that this is too long.
            with pytest.raises(IllegalMessage, match="at most 4194304"):
                await producer.send_batch([message(bytes((4 << 20) // 8 - 120))] * 8)
            assert len(await lying(cluster)) == 8
            assert producer.buffered_bytes == 0

    run_in_virtual_time(main())


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd", None])
def test_long_bodies_travel_compressed_and_arrive_unchanged(compression: str | None) -> None:
    if compression in ("lz4", "zstd"):
        pytest.importorskip({"lz4": "lz4.frame", "zstd": "zstandard"}[compression])

    async def main() -> None:
        config = ProducerConfig(compression=compression)  # type: ignore[arg-type]
        async with (
            simulated_cluster(brokers=["a"]) as cluster,
            cluster.producer(config=config) as producer,
        ):
            noise = os.urandom(5000)
            bodies = [b"short", TEXT, TEXT * 20, noise, TEXT[:4095], TEXT[:4096]]
            for body in bodies:
                await producer.send(message(body))
                await producer.send(message(body, sharding_key="k"))
            await producer.send_many([message(body) for body in bodies])
            await producer.send_batch([message(TEXT[:5000])])
            read = [each for _, each in await cluster.records(TOPIC)]
            assert sorted(each.body for each in read) == sorted([*bodies * 3, TEXT[:5000]])
            packed = [each for each in read if each.sys_flag & 1]
            assert len(packed) == (0 if compression is None else 9)
            flags = {None: 0, "zlib": 0x301, "lz4": 0x101, "zstd": 0x201}[compression]
            assert all(each.sys_flag & 0x701 == flags for each in packed)
            assert all(len(each.stored_body) < len(each.body) for each in packed)

    run_in_virtual_time(main())


def test_interceptors_see_every_kind_of_send() -> None:
    async def main() -> None:
        watching = Watching()
        async with simulated_cluster(brokers=["a"]) as cluster:
            async with cluster.producer(interceptors=[watching]) as producer:
                result = await producer.send(message(b"send"))
                future = await producer.enqueue(message(b"enqueue"))
                await future
                await producer.send_one_way(message(b"one way"))
                await producer.flush()
                many = await producer.send_many([message(b"many %d" % n) for n in range(3)])
                assert isinstance(many, SendResults)
                await producer.send_batch([message(b"batch 0"), message(b"batch 1")])
                with pytest.raises(SendVetoed, match="not this one"):
                    await producer.send(message(b"no"))
                with pytest.raises(SendVetoed):
                    await producer.enqueue(message(b"no"))
                with pytest.raises(SendVetoed):
                    await producer.send_one_way(message(b"no"))
                with pytest.raises(SendVetoed):
                    await producer.send_batch([message(b"batch 2"), message(b"no")])
                with pytest.raises(SendManyFailed, match="1 of 2") as failed:
                    await producer.send_many([message(b"no"), message(b"many 3")])
                assert isinstance(failed.value.results[0], SendVetoed)
                assert not isinstance(failed.value.results[1], TernError)
                with pytest.raises(IllegalMessage):
                    await producer.send(message(b"illegal", tags="a||b"))
            events = {event.message.body: event for event in watching.events}
            stored = {body for body in watching.seen if body not in (b"no", b"illegal", b"batch 2")}
            assert {body for body, event in events.items() if event.result} == stored
            assert len(watching.events) == len(events) == len(stored) + 2
            assert events[b"send"].result == result
            assert isinstance(events[b"illegal"].error, IllegalMessage)
            assert isinstance(events[b"batch 2"].error, SendVetoed)
            read = [each for _, each in await cluster.records(TOPIC)]
            assert {each.body for each in read} == stored
            assert all(each.properties["seen"] == "yes" for each in read)

    run_in_virtual_time(main())


FAULTS = ProducerConfig(latency_fault_tolerance=True)


def slow(delay_s: float) -> Answer:
    return Answer(delay_s=delay_s)


async def count(cluster: ToyCluster, producer: Producer, sends: int) -> list[int]:
    before = [len(broker.bodies) for broker in cluster.brokers.values()]
    for _ in range(sends):
        await producer.send(message())
    return [
        len(each.bodies) - old for each, old in zip(cluster.brokers.values(), before, strict=True)
    ]


def test_slow_broker_is_isolated_for_the_time_of_the_table() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer(FAULTS) as producer:
            await count(cluster, producer, 8)
            cluster.first.sending.answer = lambda _: slow(0.6)
            await count(cluster, producer, 8)
            cluster.first.sending.answer = lambda _: Answer()
            assert await count(cluster, producer, 20) == [0, 20]
            many = await producer.send_many([message() for _ in range(100)])
            assert {result.queue.broker_name for result in many} == {"broker-1"}
            told = producer.statistics().brokers
            assert told["broker-0"].latency_ms >= 600
            assert 29_000 < told["broker-0"].isolated_ms <= 30_000
            assert told["broker-1"].isolated_ms == 0
            keyed = [message(sharding_key=str(n)) for n in range(20)]
            names = {result.queue.broker_name for result in await producer.send_many(keyed)}
            assert names == {"broker-0", "broker-1"}  # keys stay where they are
            await asyncio.sleep(30)
            assert 0 not in await count(cluster, producer, 20)

    run_in_virtual_time(main())


def test_failed_broker_is_isolated_and_the_retry_goes_elsewhere() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer(FAULTS) as producer:
            cluster.first.sending.answer = lambda _: Answer(code=BUSY)
            assert await count(cluster, producer, 10) == [0, 10]
            assert len(cluster.first.sending.batches) == 1
            told = producer.statistics().brokers["broker-0"]
            assert told.isolated_ms > 590_000
            assert (told.failures, told.retries, told.stored) == (1, 1, 0)

    run_in_virtual_time(main())


def test_isolated_brokers_are_used_when_nothing_else_is_left() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer(FAULTS) as producer:
            for broker, delay_s in zip(cluster.brokers.values(), (0.7, 2.5), strict=True):
                broker.sending.answer = lambda _, delay_s=delay_s: slow(delay_s)  # type: ignore[misc]
            for number in range(4):
                queue = MessageQueue(TOPIC, f"broker-{number % 2}", 0)
                await producer.send(message(), queue=queue)
            for broker in cluster.brokers.values():
                broker.sending.answer = lambda _: Answer()
            assert all(one.isolated_ms for one in producer.statistics().brokers.values())
            assert await count(cluster, producer, 1) == [1, 0]  # the better half
            assert len(await producer.send_many([message() for _ in range(10)])) == 10

    run_in_virtual_time(main())


def test_slow_broker_keeps_its_share_when_isolation_is_off() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer() as producer:
            cluster.first.sending.answer = lambda _: slow(0.6)
            assert await count(cluster, producer, 8) == [4, 4]
            told = producer.statistics().brokers["broker-0"]
            assert (told.isolated_ms, told.is_reachable) == (0, True)

    run_in_virtual_time(main())


def test_fault_rule_of_rocketmq_5_forgives_sooner() -> None:
    async def main() -> None:
        config = replace(FAULTS, latency_fault_rule=5)
        async with ToyCluster(brokers=2) as cluster, cluster.producer(config) as producer:
            cluster.first.sending.answer = lambda _: Answer(code=BUSY)
            await count(cluster, producer, 4)
            cluster.first.sending.answer = lambda _: Answer()
            assert await count(cluster, producer, 4) == [0, 4]
            await asyncio.sleep(10)
            assert 0 not in await count(cluster, producer, 8)

    run_in_virtual_time(main())


def test_unordered_selector_lets_its_message_be_retried_elsewhere() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer() as producer:
            cluster.first.sending.answer = lambda _: Answer(code=BUSY)
            near = ByMachineRoom(["broker-0"])
            result = await producer.send(message(), selector=near)
            assert result.queue.broker_name == "broker-1"
            keyed = message(sharding_key="b")
            near_and_far = [
                MessageQueue(TOPIC, f"broker-{broker}", queue)
                for broker in range(2)
                for queue in range(4)
            ]
            on_zero = next(
                one
                for number in range(20)
                if (one := replace(keyed, sharding_key=str(number)))
                and ByKey()(near_and_far, one).broker_name == "broker-0"
            )
            with pytest.raises(BrokerBusy):
                await producer.send(on_zero, selector=ByKey())

    run_in_virtual_time(main())


def test_refused_batch_goes_to_another_broker_whole() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2) as cluster, cluster.producer() as producer:
            batches: list[SentBatch] = []

            def busy(batch: SentBatch) -> Answer:
                batches.append(batch)
                return Answer(code=BUSY)

            cluster.first.sending.answer = busy
            for _ in range(6):
                results = await producer.send_batch([message(b"%d" % n) for n in range(5)])
                assert {result.queue.broker_name for result in results} == {"broker-1"}
            assert batches
            assert all(len(batch.records) == 5 for batch in batches)
            cluster.first.sending.answer = lambda _: Answer(code=13)
            there = MessageQueue(TOPIC, "broker-0", 0)
            with pytest.raises(MessageRefused):
                await producer.send_batch([message()], queue=there)

    run_in_virtual_time(main())


def test_refused_batch_counts_no_message_as_stored() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            batch = [message(b"%d" % n) for n in range(3)]
            await producer.send_batch(batch)
            cluster.first.sending.answer = lambda _: Answer(code=13)
            with pytest.raises(MessageRefused):
                await producer.send_batch(batch)
            assert producer.statistics().brokers["broker-0"].stored == 3
            assert producer.statistics().buffered_bytes == 0

    run_in_virtual_time(main())


def test_batch_for_a_missing_broker_times_out() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster, cluster.producer() as producer:
            await producer.send(message())
            await cluster.stop(cluster.first)
            with pytest.raises(Unreachable):
                await producer.send_batch([message()], timeout_s=1)
            assert producer.buffered_bytes == 0
            assert not producer.statistics().brokers["broker-0"].is_reachable

    run_in_virtual_time(main())


async def outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except (TernError, SendManyFailed) as error:
        return error


def test_closing_waits_for_sends_without_a_route_yet() -> None:
    async def main() -> None:
        async with ToyCluster() as cluster:
            async with cluster.producer() as producer:
                calls = [
                    producer.send(Message(TOPIC, b"one")),
                    producer.send_batch([Message(TOPIC, b"batch")]),
                    producer.send_many([Message(TOPIC, b"many")] * 5000),
                    producer.send_one_way(Message(TOPIC, b"one way")),
                ]
                tasks = [asyncio.create_task(outcome(call)) for call in calls]
                await asyncio.sleep(0)
            await asyncio.gather(*tasks)
            assert len(cluster.first.bodies) == 5003

    run_in_virtual_time(main())


def test_closing_answers_senders_waiting_for_space() -> None:
    async def main() -> None:
        config = ProducerConfig(buffer_bytes=2000)
        async with ToyCluster() as cluster:
            async with cluster.producer(config) as producer:
                await producer.send(Message(TOPIC, b"x"))
                cluster.first.sending.answer = lambda _: Answer(is_silent=True)
                large = Message(TOPIC, b"x" * 1500)
                calls = [
                    producer.send(large, timeout_s=60),
                    producer.send(large, timeout_s=60),
                    producer.send_batch([large], timeout_s=60),
                    producer.send_many([large] * 2, timeout_s=60),
                ]
                tasks = [asyncio.create_task(outcome(call)) for call in calls]
                await asyncio.sleep(0.1)
            async with asyncio.timeout(1):
                sent, *waited, many = await asyncio.gather(*tasks)
            assert isinstance(sent, ClosedError)
            assert sent.may_have_happened
            assert isinstance(many, SendManyFailed)
            for error in (*waited, *many.results):
                assert isinstance(error, ClosedError)
                assert not error.may_have_happened

    run_in_virtual_time(main())
