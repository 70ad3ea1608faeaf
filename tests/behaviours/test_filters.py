"""Consumers that take some messages of a topic, against a cluster."""

import asyncio
from collections.abc import Sequence

import pytest

from ternmq import (
    ConsumeFrom,
    Message,
    Producer,
    PullConsumer,
    PullConsumerConfig,
    PushConsumer,
    PushConsumerConfig,
    Subscription,
    UsageError,
    sql,
)
from ternmq_consumer.subscriptions import Subscriptions
from ternmq_model.subscription import SQL92, parse_subscription
from tests.support.sdk_place import Place

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


async def fill(place: Place) -> None:
    """Send 40 messages with a number from 0 to 19 and a region, two of each number."""
    async with Producer(place.group, nameserver=place.nameserver) as producer:
        await asyncio.gather(
            *(
                producer.send(
                    Message(
                        place.topic,
                        b"%d" % number,
                        tags=("Aa", "BB")[number % 2],
                        properties={"number": str(number), "region": region},
                    )
                )
                for number in range(20)
                for region in ("eu", "us")
            )
        )


async def pushed(place: Place, topics: Subscriptions, count: int) -> list[int]:
    """Return the numbers of all messages that a group takes, sorted: it must be so many."""
    found: list[int] = []
    async with PushConsumer(
        place.group, topics, nameserver=place.nameserver, config=FIRST
    ) as consumer:
        messages = aiter(consumer)
        while len(found) < count:
            found.append(int((await anext(messages)).body))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await anext(messages)
    return sorted(found)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("number >= 17 AND region = 'eu'", [17, 18, 19]),
        ("number BETWEEN 3 AND 4 OR region IS NULL", [3, 3, 4, 4]),
        ("TAGS = 'BB' AND NOT (number < 17)", [17, 17, 19, 19]),
    ],
)
def test_group_receives_messages_its_condition_matches(
    place: Place, condition: str, expected: Sequence[int]
) -> None:
    async def main() -> None:
        await fill(place)
        assert await pushed(place, {place.topic: sql(condition)}, len(expected)) == expected

    place.run(main)


def test_group_receives_its_tags_and_none_with_colliding_hashes(place: Place) -> None:
    async def main() -> None:
        await fill(place)
        found = await pushed(place, {place.topic: "Aa || other"}, 20)
        assert found == sorted([*range(0, 20, 2), *range(0, 20, 2)])

    place.run(main)


def test_subscription_object_is_accepted_as_it_is(place: Place) -> None:
    async def main() -> None:
        await fill(place)
        one: Subscription = parse_subscription(place.topic, "number = 7", SQL92)
        assert await pushed(place, one, 2) == [7, 7]

    place.run(main)


def test_assigned_queues_are_read_by_a_condition(place: Place) -> None:
    async def main() -> None:
        await fill(place)
        async with PullConsumer(nameserver=place.nameserver) as consumer:
            consumer.assign(await consumer.queues(place.topic), sql("number IN ('5', '6')"))
            found: list[int] = []
            while len(found) < 4:
                found += [int(message.body) for message in await consumer.poll()]
            assert sorted(found) == [5, 5, 6, 6]
            ends = await consumer.end_offsets(consumer.assignment())
            while any(consumer.position(queue) != end for queue, end in ends.items()):
                assert await consumer.poll(timeout_s=0.1) == []

    place.run(main)


def test_pull_consumers_receive_messages_their_condition_matches(place: Place) -> None:
    async def main() -> None:
        await fill(place)
        config = PullConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        async with PullConsumer(place.group, nameserver=place.nameserver, config=config) as reader:
            await reader.subscribe({place.topic: sql("number IN ('5', '6')")})
            found: list[int] = []
            while len(found) < 4:
                found += [int(message.body) for message in await reader.poll()]
            assert sorted(found) == [5, 5, 6, 6]

    place.run(main)


def test_later_messages_are_filtered_too(place: Place) -> None:
    async def main() -> None:
        await fill(place)
        async with (
            PullConsumer(nameserver=place.nameserver) as consumer,
            Producer(place.group, nameserver=place.nameserver) as producer,
        ):
            consumer.assign(await consumer.queues(place.topic), sql("late = TRUE"))
            assert await consumer.poll(timeout_s=0.2) == []
            for late in ("false", "true"):
                await producer.send(Message(place.topic, b"100", properties={"late": late}))
            (message,) = await consumer.poll(timeout_s=100)
            assert message.properties["late"] == "true"

    place.run(main)


def test_illegal_filter_is_refused_before_any_request(place: Place) -> None:
    with pytest.raises(UsageError, match="at character 10"):
        sql("number > ?")
    with pytest.raises(UsageError, match="names no tag"):
        PushConsumer(place.group, {place.topic: "||"}, nameserver=place.nameserver)
