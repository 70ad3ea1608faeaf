"""Whole batches, compression, broken connections and requests, against a cluster."""

import asyncio
from collections import Counter
from random import Random

import pytest

from ternmq import (
    BlockingProducer,
    ConsumeFrom,
    Message,
    Producer,
    ProducerConfig,
    PushConsumer,
    PushConsumerConfig,
    RequestTimedOut,
    StoredMessage,
    is_request,
)
from tests.support.sdk_place import Place, eventually

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
TEXT = b"".join(b"flight %d from EWR to IAH;" % number for number in range(400))


async def consume(place: Place, count: int) -> list[StoredMessage]:
    """Return what the topic holds, at least `count` messages."""
    seen: list[StoredMessage] = []

    def take(message: StoredMessage) -> None:
        seen.append(message)

    async with PushConsumer(
        place.group, place.topic, listener=take, nameserver=place.nameserver, config=FIRST
    ):
        await eventually(lambda: len(seen) >= count)
        await asyncio.sleep(0.3)  # what should not be there has its chance
    return seen


def test_batches_lie_together_and_long_bodies_come_back_unpacked(place: Place) -> None:
    async def main() -> None:
        async with Producer(place.group, nameserver=place.nameserver) as producer:
            results = await producer.send_batch(
                [Message(place.topic, b"%d" % number) for number in range(50)]
            )
            await producer.send(Message(place.topic, TEXT))
            await producer.send_one_way(Message(place.topic, TEXT * 20))
            await producer.flush()
            assert producer.statistics().one_way_failures == 0
        assert len({result.queue for result in results}) == 1
        first = results[0].queue_offset
        assert [result.queue_offset for result in results] == list(range(first, first + 50))
        seen = await consume(place, 52)
        assert Counter(message.body for message in seen) == Counter(
            [b"%d" % number for number in range(50)] + [TEXT, TEXT * 20]
        )
        assert sum(message.sys_flag & 1 for message in seen) == 2

    place.run(main)


def test_broken_connections_duplicate_nothing_and_keep_the_order(place: Place) -> None:
    async def main() -> None:
        random = Random(5)
        acknowledged = 0
        config = ProducerConfig(send_timeout_s=100, attempts_max=50, duplicates_allowed=False)
        async with Producer(place.group, nameserver=place.nameserver, config=config) as producer:
            names = {
                (await producer.send(Message(place.topic, b"first"))).queue.broker_name
                for _ in range(16)
            }
            sending: list[asyncio.Task[object]] = []

            async def send(body: bytes, key: str = "") -> None:
                nonlocal acknowledged
                await producer.send(Message(place.topic, body, sharding_key=key))
                acknowledged += 1

            async def keyed(key: str) -> None:
                for number in range(300):
                    await send(b"%s.%d" % (key.encode(), number), key)

            async def plain(number: int) -> None:
                for each in range(40):
                    await send(b"p.%d.%d" % (number, each))

            async with asyncio.TaskGroup() as group:
                sending += [group.create_task(keyed(key)) for key in ("a", "b", "c")]
                sending += [group.create_task(plain(number)) for number in range(32)]
                while not all(task.done() for task in sending):
                    before = acknowledged
                    await asyncio.sleep(random.random() * 0.05)
                    if acknowledged == before:
                        continue  # a busy machine needs longer to connect again
                    name = random.choice(sorted(names))
                    producer.client.forget(name, await producer.client.broker(name))
            told = producer.statistics().brokers.values()
            assert sum(one.failures for one in told) > 0
        seen = await consume(place, 16 + 900 + 32 * 40)
        counts = Counter(message.message_id for message in seen)
        assert max(counts.values()) == 1
        assert len(counts) == 16 + 900 + 32 * 40
        for key in (b"a", b"b", b"c"):
            mine = [message for message in seen if message.body.startswith(key + b".")]
            mine.sort(key=lambda message: message.queue_offset)
            assert [message.body for message in mine] == [b"%s.%d" % (key, n) for n in range(300)]

    place.run(main)


def test_requests_are_answered_by_a_consumer(place: Place) -> None:
    async def main() -> None:
        async def answer(message: StoredMessage) -> None:
            if is_request(message) and message.body != b"silence":
                await consumer.reply(message, message.body.upper())

        consumer = PushConsumer(
            place.group, place.topic, listener=answer, nameserver=place.nameserver, config=FIRST
        )
        async with Producer(place.group, nameserver=place.nameserver) as producer:
            for _ in range(16):  # the topic is on every broker before the consumer looks
                await producer.send(Message(place.topic, b"no question"))
            async with consumer:
                await consumer.assigned()
                replies = await asyncio.gather(
                    *(
                        producer.request(Message(place.topic, b"q%d" % number), timeout_s=100)
                        for number in range(20)
                    )
                )
                assert [reply.body for reply in replies] == [
                    b"Q%d" % number for number in range(20)
                ]
                with pytest.raises(RequestTimedOut):
                    await producer.request(Message(place.topic, b"silence"), timeout_s=1)

    place.run(main)


def test_blocking_api_has_the_same_verbs(place: Place) -> None:
    with BlockingProducer(place.group, nameserver=place.nameserver) as producer:
        producer.send_one_way(Message(place.topic, b"1"))
        producer.flush()
        assert (
            len(producer.send_batch([Message(place.topic, b"2"), Message(place.topic, b"3")])) == 2
        )
        assert sum(one.stored for one in producer.statistics().brokers.values()) == 3
        with pytest.raises(RequestTimedOut):
            producer.request(Message(place.topic, b"?"), timeout_s=0.5)
