"""Transactional producers against a cluster."""

import asyncio

from ternmq import (
    BlockingTransactionProducer,
    ConsumeFrom,
    Message,
    PushConsumer,
    PushConsumerConfig,
    Resolution,
    StoredMessage,
    TransactionProducer,
)
from tests.support.sdk_place import Place

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


def plain(message: Message, argument: object) -> Resolution:
    """Do nothing, as `argument` says."""
    return argument if isinstance(argument, Resolution) else Resolution.COMMIT


def never(message: StoredMessage) -> Resolution:
    raise AssertionError("nobody is asked so soon")


async def received(place: Place, count: int) -> list[StoredMessage]:
    """Return so many messages and what comes within a moment behind them."""
    seen: list[StoredMessage] = []
    enough = asyncio.Event()

    def listener(message: StoredMessage) -> None:
        seen.append(message)
        if len(seen) >= count:
            enough.set()

    async with PushConsumer(
        place.group, place.topic, listener=listener, nameserver=place.nameserver, config=FIRST
    ):
        await enough.wait()
        await asyncio.sleep(0.5)
    return seen


def test_committed_messages_arrive_once_and_rolled_back_ones_never(place: Place) -> None:
    async def main() -> None:
        async with TransactionProducer(
            place.group, execute=plain, check=never, nameserver=place.nameserver
        ) as producer:
            choices = (Resolution.COMMIT, Resolution.ROLLBACK)
            sending = [
                producer.send(Message(place.topic, b"%d" % number), choices[number % 2])
                for number in range(200)
            ]
            results = await asyncio.gather(*sending)
        assert all(result.is_confirmed for result in results)
        seen = await received(place, 100)
        wanted = {b"%d" % number for number in range(0, 200, 2)}
        assert {message.body for message in seen} == wanted
        assert len(seen) == len(wanted)
        places = {(m.queue.broker_name, m.queue.queue_id, m.queue_offset): m.body for m in seen}
        for number, result in enumerate(results):
            if number % 2 == 0:
                broker = result.sent.queue.broker_name
                assert places[broker, result.queue_id, result.queue_offset] == b"%d" % number

    place.run(main)


def test_another_process_answers_a_check_for_a_silent_producer(place: Place) -> None:
    async def main() -> None:
        asked: list[bytes] = []

        def leave_open(message: Message, argument: object) -> Resolution:
            return Resolution.UNKNOWN

        async def check(message: StoredMessage) -> Resolution:
            asked.append(message.body)
            return Resolution.COMMIT if message.body == b"paid" else Resolution.ROLLBACK

        async with TransactionProducer(
            place.group, execute=leave_open, check=never, nameserver=place.nameserver
        ) as producer:
            for body in (b"paid", b"not paid"):
                await producer.send(Message(place.topic, body), check_after_s=1)
        async with TransactionProducer(
            place.group,
            execute=plain,
            check=check,
            topics=(place.topic,),
            nameserver=place.nameserver,
        ):
            seen = await received(place, 1)
        assert [message.body for message in seen] == [b"paid"]
        assert sorted(asked) == [b"not paid", b"paid"]

    place.run(main)


def test_blocking_api_commits_and_rolls_back_alike(place: Place) -> None:
    with BlockingTransactionProducer(
        place.group, execute=plain, check=never, nameserver=place.nameserver
    ) as producer:
        results = [producer.send(Message(place.topic, b"one"), each) for each in Resolution]
    assert [result.is_confirmed for result in results] == [False, True, True]

    async def main() -> None:
        assert len(await received(place, 1)) == 1

    place.run(main)
