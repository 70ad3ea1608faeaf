"""Messages that fail: retries and dead letters, against a cluster."""

import asyncio
from collections import defaultdict

import pytest

from ternmq import (
    AdminClient,
    ConsumeFrom,
    ConsumeStatus,
    Message,
    Producer,
    PushConsumer,
    PushConsumerConfig,
    ReconsumeLater,
    StoredMessage,
)
from ternmq_consumer.consume_status import ListenerAnswer
from tests.support.sdk_place import Place, eventually

FROM_FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, retries_max=1)


async def send(place: Place, count: int) -> None:
    async with Producer(place.group, nameserver=place.nameserver) as producer:
        for number in range(count):
            await producer.send(Message(place.topic, b"%d" % number))


def test_failed_message_is_redelivered_under_its_topic_and_offset_moves_on(
    place: Place,
) -> None:
    async def main() -> None:
        taken: defaultdict[bytes, list[StoredMessage]] = defaultdict(list)
        done = asyncio.Event()

        async def listen(message: StoredMessage) -> ListenerAnswer:
            taken[message.body].append(message)
            if len(taken[message.body]) == 1 and message.body == b"3":
                return ReconsumeLater(delay_level=1)
            if len(taken) == 10 and len(taken[b"3"]) == 2:
                done.set()
            return ConsumeStatus.SUCCESS

        await send(place, 10)
        async with PushConsumer(
            place.group,
            place.topic,
            listener=listen,
            nameserver=place.nameserver,
            config=FROM_FIRST,
        ) as consumer:
            await done.wait()
            await consumer.commit()
        first, again = taken[b"3"]
        assert again.topic == place.topic
        assert again.message_id == first.message_id
        assert (first.reconsume_times, again.reconsume_times) == (0, 1)
        assert again.queue.topic.startswith("%RETRY%")
        assert {len(each) for body, each in taken.items() if body != b"3"} == {1}

    place.run(main)


@pytest.mark.parametrize("answer", [ConsumeStatus.DEAD_LETTER, ReconsumeLater(delay_level=-1)])
def test_dead_letter_can_be_redriven(place: Place, answer: ListenerAnswer) -> None:
    async def main() -> None:
        taken: list[bytes] = []
        is_bad = True

        async def listen(message: StoredMessage) -> ListenerAnswer:
            taken.append(message.body)
            return answer if is_bad and message.body == b"1" else None

        await send(place, 3)
        admin = AdminClient(nameserver=place.nameserver)
        async with (
            PushConsumer(
                place.group,
                place.topic,
                listener=listen,
                nameserver=place.nameserver,
                config=FROM_FIRST,
            ),
            admin,
        ):

            async def has_letter() -> bool:
                return any(
                    counts.group == place.group and counts.waiting
                    for counts in await admin.dead_letter_counts()
                )

            await eventually(has_letter)
            letters = await admin.dead_letters(place.group)
            assert [letter.message.body for letter in letters] == [b"1"]
            assert letters[0].origin_topic == place.topic
            is_bad = False
            await admin.redrive(place.group)
            await eventually(lambda: taken.count(b"1") == 2)
            assert not await admin.dead_letters(place.group)

    place.run(main)
