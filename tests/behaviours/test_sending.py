"""Producers against a cluster."""

import asyncio

import pytest

from ternmq import (
    IllegalMessage,
    Message,
    Producer,
    ProducerConfig,
    SendStatus,
    TopicNotFound,
)
from tests.support.sdk_place import Place


def test_messages_are_answered_with_their_places_on_both_brokers(place: Place) -> None:
    async def main() -> None:
        async with Producer(place.group, nameserver=place.nameserver) as producer:
            results = await asyncio.gather(
                *(producer.send(Message(place.topic, b"%d" % number)) for number in range(200))
            )
        assert {result.status for result in results} == {SendStatus.SEND_OK}
        assert len({result.message_id for result in results}) == 200
        assert len({(result.queue, result.queue_offset) for result in results}) == 200
        assert len({result.queue.broker_name for result in results}) > 1

    place.run(main)


def test_messages_of_one_key_lie_in_one_queue_in_order(place: Place) -> None:
    async def main() -> None:
        async with Producer(place.group, nameserver=place.nameserver) as producer:
            sending = [
                await producer.enqueue(Message(place.topic, b"%d" % number, sharding_key="k"))
                for number in range(100)
            ]
            results = await asyncio.gather(*sending)
        assert len({result.queue for result in results}) == 1
        offsets = [result.queue_offset for result in results]
        assert offsets == list(range(offsets[0], offsets[0] + 100))

    place.run(main)


def test_message_goes_to_the_queue_its_sender_chose(place: Place) -> None:
    async def main() -> None:
        async with Producer(place.group, nameserver=place.nameserver) as producer:
            first = await producer.send(Message(place.topic, b"1"))
            again = await producer.send(Message(place.topic, b"2"), queue=first.queue)
            last = await producer.send(
                Message(place.topic, b"3"), selector=lambda queues, _: queues[-1]
            )
        assert again.queue == first.queue
        assert again.queue_offset == first.queue_offset + 1
        assert last.queue >= first.queue

    place.run(main)


def test_unsendable_messages_are_refused_by_name(place: Place) -> None:
    async def main() -> None:
        config = ProducerConfig(creates_topics=False)
        async with Producer(place.group, nameserver=place.nameserver, config=config) as producer:
            with pytest.raises(IllegalMessage, match="4194304"):
                await producer.send(Message(place.topic, bytes((4 << 20) + 1)))
            with pytest.raises(TopicNotFound, match=place.topic):
                await producer.send(Message(place.topic, b""))

    place.run(main)
