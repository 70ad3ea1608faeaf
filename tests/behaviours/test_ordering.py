"""Queues that change hands in order, against a cluster."""

import asyncio
import time
from collections import defaultdict

from ternmq import (
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    PushConsumerConfig,
    StoredMessage,
)
from tests.support.sdk_place import Place, eventually

ORDERLY = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, order_per_queue=True)


def test_queue_has_one_consumer_at_a_time_while_members_come_and_go(place: Place) -> None:
    async def main() -> None:
        calls: defaultdict[object, list[tuple[int, int, str]]] = defaultdict(list)
        bodies: set[bytes] = set()
        sent: set[bytes] = set()

        def member(name: str) -> PushConsumer:
            async def listen(message: StoredMessage) -> None:
                began_ns = time.monotonic_ns()
                await asyncio.sleep(0.002)
                bodies.add(message.body)
                calls[message.queue].append((began_ns, time.monotonic_ns(), name))

            return PushConsumer(
                place.group,
                place.topic,
                listener=listen,
                nameserver=place.nameserver,
                config=ORDERLY,
            )

        def heard_by_second() -> int:
            return sum(name == "second" for each in calls.values() for _, _, name in each)

        async def send() -> None:
            while heard_by_second() < 50:
                for number in range(len(sent), len(sent) + 100):
                    sent.add(body := b"%d" % number)
                    await producer.enqueue(
                        Message(place.topic, body, sharding_key=f"key-{number % 32}")
                    )
                await eventually(lambda: len(sent) - len(bodies) < 100)

        async with (
            Producer(place.group, nameserver=place.nameserver) as producer,
            asyncio.TaskGroup() as group,
        ):
            sending = group.create_task(send())
            async with member("first") as first:
                await first.assigned()
                async with member("second"):
                    await sending
                await eventually(lambda: bodies == sent)
        assert {name for each in calls.values() for _, _, name in each} == {"first", "second"}
        for each in calls.values():
            each.sort()
            ends = [ended_ns for _, ended_ns, _ in each]
            assert all(after[0] >= end for end, after in zip(ends, each[1:], strict=False))

    place.run(main)
