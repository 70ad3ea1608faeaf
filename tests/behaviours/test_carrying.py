"""Contents of messages, and their order, against a cluster."""

import asyncio
from dataclasses import replace

import pytest

from ternmq import (
    BlockingProducer,
    BlockingPullConsumer,
    ClosedError,
    IllegalMessage,
    Message,
    Producer,
    SendManyFailed,
    SendResult,
    SendStatus,
    StoredMessage,
    TopicNotFound,
)
from tests.support.sdk_place import Place, eventually

RICH = Message(
    "",
    "Grüße, 世界".encode(),
    tags="eu",
    keys=["order-1", "käufer-7"],
    properties={"amount": "12.5", "Straße": "Hauptstraße 1", "empty?": " "},
    sharding_key="customer 7",
    flag=0x7FFF_FFFF,
)


async def read_all(place: Place, count: int) -> list[StoredMessage]:
    """Return so many messages of the topic."""
    found: list[StoredMessage] = []
    async with place.reader() as reader:
        reader.assign(await reader.queues(place.topic))
        while len(found) < count:
            found += await reader.poll()
    return found


@pytest.mark.parametrize("way", ["send", "send_batch", "send_many", "send_one_way"])
def test_message_arrives_with_all_that_it_carries(place: Place, way: str) -> None:
    async def main() -> None:
        message = replace(RICH, topic=place.topic)
        async with place.producer() as producer:
            if way in ("send_batch", "send_many"):
                await getattr(producer, way)([message])
            else:
                await getattr(producer, way)(message)
        (found,) = await read_all(place, 1)
        assert (found.topic, found.body, found.tags) == (place.topic, RICH.body, "eu")
        assert list(found.keys) == ["order-1", "käufer-7"]
        assert (found.sharding_key, found.flag) == ("customer 7", 0x7FFF_FFFF)
        assert {name: found.properties[name] for name in RICH.properties} == RICH.properties

    place.run(main)


@pytest.mark.parametrize("body", [b"", b"\0" * 10, bytes(range(256)) * 100, bytes(4 << 20)])
def test_body_of_any_length_arrives_as_it_was(place: Place, body: bytes) -> None:
    async def main() -> None:
        await place.fill(body)
        (found,) = await read_all(place, 1)
        assert found.body == body

    place.run(main)


def test_incompressible_body_of_the_greatest_length_arrives(place: Place) -> None:
    async def main() -> None:
        body = b"".join(
            (number * 2_654_435_761 % 2**32).to_bytes(4, "big") for number in range(2**20)
        )
        async with place.producer(send_timeout_s=100) as producer:
            await producer.send(Message(place.topic, body))
            with pytest.raises(IllegalMessage):
                await producer.send(Message(place.topic, body + b"1"))
        (found,) = await read_all(place, 1)
        assert found.body == body

    place.run(main)


def test_messages_of_many_tasks_keep_the_order_of_each_key(place: Place) -> None:
    async def main() -> None:
        async def send(key: str) -> None:
            for number in range(50):
                await producer.send(Message(place.topic, b"%d" % number, sharding_key=key))

        async with place.producer() as producer, asyncio.TaskGroup() as tasks:
            for key in "abcdef":
                tasks.create_task(send(key))
        found = await read_all(place, 300)
        for key in "abcdef":
            of_key = sorted(
                (each for each in found if each.sharding_key == key),
                key=lambda each: each.queue_offset,
            )
            assert len({each.queue for each in of_key}) == 1
            assert [int(each.body) for each in of_key] == list(range(50))

    place.run(main)


def test_results_of_many_messages_have_the_order_of_the_messages(place: Place) -> None:
    async def main() -> None:
        async with place.producer() as producer:
            results = await producer.send_many(
                [Message(place.topic, b"%d" % number) for number in range(3000)]
            )
        assert len(results) == 3000
        assert {each.status for each in results} == {SendStatus.SEND_OK}
        bodies = {
            (each.queue, each.queue_offset): each.body for each in await read_all(place, 3000)
        }
        assert [bodies[each.queue, each.queue_offset] for each in results] == [
            b"%d" % number for number in range(3000)
        ]

    place.run(main)


def test_failure_of_many_messages_names_each_result(place: Place) -> None:
    async def main() -> None:
        await place.create_topic()
        sent = [Message(place.topic, b"1"), Message(f"{place.topic}_nowhere", b"2")]
        async with place.producer(creates_topics=False) as producer:
            with pytest.raises(SendManyFailed) as failed:
                await producer.send_many([*sent, Message(place.topic, b"3")])
        assert [isinstance(each, SendResult) for each in failed.value.results] == [
            True,
            False,
            True,
        ]
        assert sorted(each.body for each in await read_all(place, 2)) == [b"1", b"3"]

    place.run(main)


def test_batch_of_two_topics_is_refused_whole(place: Place) -> None:
    async def main() -> None:
        await place.create_topic()
        async with place.producer() as producer, place.reader() as reader:
            with pytest.raises(IllegalMessage):
                await producer.send_batch(
                    [Message(place.topic, b"1"), Message(f"{place.topic}_2", b"2")]
                )
            reader.assign(await reader.queues(place.topic))
            assert await reader.poll(timeout_s=0.2) == []

    place.run(main)


def test_closed_producer_refuses_and_its_end_waits_for_what_travels(place: Place) -> None:
    async def main() -> None:
        producer: Producer
        async with place.producer() as producer:
            sending = [await producer.enqueue(Message(place.topic, b"%d" % n)) for n in range(200)]
        assert all(each.done() for each in sending)
        with pytest.raises(ClosedError):
            await producer.send(Message(place.topic, b"late"))
        assert len(await read_all(place, 200)) == 200

    place.run(main)


def test_reader_of_a_missing_topic_is_told_so(place: Place) -> None:
    async def main() -> None:
        async with place.reader() as reader:
            with pytest.raises(TopicNotFound, match=place.topic):
                await reader.queues(place.topic)

    place.run(main)


def test_blocking_clients_carry_a_message_round(place: Place) -> None:
    with BlockingProducer(place.group, nameserver=place.nameserver) as producer:
        sent = producer.send(replace(RICH, topic=place.topic))
    with BlockingPullConsumer(place.group, nameserver=place.nameserver) as reader:
        reader.assign([sent.queue])
        found: list[StoredMessage] = []
        while not found:
            found += reader.poll()
        assert [each.message_id for each in found] == [sent.message_id]
        assert reader.commit()
        assert reader.committed(sent.queue) == sent.queue_offset + 1


def test_cancelled_message_is_never_delivered(place: Place) -> None:
    async def main() -> None:
        seen: list[StoredMessage] = []
        async with place.consumer(seen.append), place.producer() as producer:
            first = await producer.send(Message(place.topic, b"at once"))
            await eventually(lambda: len(seen) == 1)
            due_ms = seen[0].stored_at_ms + 3000
            timed = Message(place.topic, b"timed", deliver_at_ms=due_ms)
            sent = await producer.send(timed, queue=first.queue)
            cancelling = Message(place.topic, b"", cancels=sent.message_id, deliver_at_ms=due_ms)
            await producer.send(cancelling, queue=first.queue)
            last = Message(place.topic, b"last", deliver_at_ms=due_ms + 1)
            await producer.send(last, queue=first.queue)
            await eventually(lambda: len(seen) == 2)
        assert [each.body for each in seen] == [b"at once", b"last"]

    place.run(main)
