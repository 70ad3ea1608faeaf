"""Brokers that crash, refuse, hang or lose answers, and what applications notice of it."""

import asyncio
from collections import Counter

import pytest

from ternmq import (
    Message,
    MessageQueue,
    ReconsumeLater,
    Resolution,
    StoredMessage,
    TernError,
    TransactionProducer,
)
from tests.support.sdk_place import Place, eventually

pytestmark = pytest.mark.needs_faults(flush="sync")


async def queue_of(place: Place, broker: str = "broker-a") -> MessageQueue:
    """Create the topic and return a queue of it at this broker."""
    await place.create_topic()
    async with place.reader() as reader:
        return next(each for each in await reader.queues(place.topic) if each.broker_name == broker)


def test_acknowledged_messages_survive_the_crash_of_every_broker(place: Place) -> None:
    async def main() -> None:
        sent = await place.fill(*(b"%d" % number for number in range(50)))
        for name in ("broker-a", "broker-b"):
            await place.cluster.broker(name).crash()
        for name in ("broker-a", "broker-b"):
            await place.cluster.broker(name).restart()
        found = {(each.queue, each.queue_offset) for each in place.cluster.messages(place.topic)}
        assert found == {(each.queue, each.queue_offset) for each in sent}

    place.run(main)


def test_sends_go_round_a_broker_that_is_down(place: Place) -> None:
    async def main() -> None:
        await place.create_topic()
        async with place.producer() as producer:
            await producer.send(Message(place.topic, b"before"))
            await place.cluster.broker("broker-a").crash()
            results = [await producer.send(Message(place.topic, b"1")) for _ in range(10)]
            assert {each.queue.broker_name for each in results} == {"broker-b"}
            await place.cluster.broker("broker-a").restart()

    place.run(main)


def test_lost_answer_duplicates_nothing_where_that_is_forbidden(place: Place) -> None:
    async def main() -> None:
        queue = await queue_of(place)
        async with place.producer(duplicates_allowed=False, send_timeout_s=60) as producer:
            await producer.send(Message(place.topic, b"0"), queue=queue)
            place.cluster.drop_answers("SendStream", next=1)
            for number in range(1, 5):
                await producer.send(Message(place.topic, b"%d" % number), queue=queue)
        assert "an answer of SendStream was lost" in place.cluster.report()
        stored = [each.body for each in place.cluster.messages(place.topic)]
        assert stored == [b"0", b"1", b"2", b"3", b"4"]

    place.run(main)


def test_refused_sends_are_tried_again(place: Place) -> None:
    async def main() -> None:
        queue = await queue_of(place)
        async with place.producer(attempts_max=4, send_timeout_s=60) as producer:
            place.cluster.broker("broker-a").refuse(next=3)
            await producer.send(Message(place.topic, b"1"), queue=queue)
            place.cluster.broker("broker-a").refuse(next=4)
            with pytest.raises(TernError) as refused:
                await producer.send(Message(place.topic, b"2"), queue=queue)
            assert not refused.value.may_have_happened
        assert [each.body for each in place.cluster.messages(place.topic)] == [b"1"]

    place.run(main)


def test_paused_broker_answers_when_it_goes_on(place: Place) -> None:
    async def main() -> None:
        queue = await queue_of(place)
        async with place.producer(send_timeout_s=60) as producer:
            await producer.send(Message(place.topic, b"1"), queue=queue)
            broker = place.cluster.broker("broker-a")
            broker.pause()
            sending = asyncio.create_task(producer.send(Message(place.topic, b"2"), queue=queue))
            done, _ = await asyncio.wait([sending], timeout=0.3)
            assert not done
            broker.resume()
            await sending
        assert {each.body for each in place.cluster.messages(place.topic)} == {b"1", b"2"}

    place.run(main)


@pytest.mark.parametrize("order_per_queue", [False, True])
def test_consumer_goes_on_after_a_restart(place: Place, order_per_queue: bool) -> None:
    async def main() -> None:
        seen: list[StoredMessage] = []
        await queue_of(place)
        async with place.consumer(seen.append, order_per_queue=order_per_queue):
            await place.fill(*(b"%d" % number for number in range(20)))
            await eventually(lambda: len(seen) >= 20)
            for broker in ("broker-a", "broker-b"):
                await place.cluster.broker(broker).crash()
                await place.cluster.broker(broker).restart()
            await place.fill(*(b"%d" % number for number in range(20, 40)))
            await eventually(lambda: {each.body for each in seen} >= {b"%d" % n for n in range(40)})

    place.run(main)


def test_committed_group_repeats_nothing_after_a_restart(place: Place) -> None:
    async def main() -> None:
        seen: Counter[bytes] = Counter()

        def listen(message: StoredMessage) -> None:
            seen[message.body] += 1

        await place.fill(*(b"%d" % number for number in range(20)))
        async with place.consumer(listen):
            await eventually(lambda: len(seen) == 20)
        for broker in ("broker-a", "broker-b"):
            await place.cluster.broker(broker).restart()
        await place.fill(b"last")
        async with place.consumer(listen):
            await eventually(lambda: seen[b"last"] == 1)
        assert seen.total() == 21

    place.run(main)


def test_reader_goes_on_after_a_crash(place: Place) -> None:
    async def main() -> None:
        queue = await queue_of(place)
        found: list[bytes] = []
        async with place.producer(send_timeout_s=60) as producer, place.reader() as reader:
            reader.assign([queue])
            for body in (b"1", b"2"):
                await producer.send(Message(place.topic, body), queue=queue)
                while body not in found:
                    found += [each.body for each in await reader.poll()]
                await place.cluster.broker("broker-a").crash()
                await place.cluster.broker("broker-a").restart()
        assert found == [b"1", b"2"]

    place.run(main)


def test_open_transaction_survives_a_crash_and_is_asked_about(place: Place) -> None:
    async def main() -> None:
        async def check(_: StoredMessage) -> Resolution:
            return Resolution.COMMIT

        await place.create_topic()
        async with TransactionProducer(
            place.group,
            execute=lambda _message, _argument: Resolution.UNKNOWN,
            check=check,
            nameserver=place.nameserver,
        ) as producer:
            sent = await producer.send(Message(place.topic, b"1"))
            broker = place.cluster.broker(sent.sent.queue.broker_name)
            await broker.crash()
            await broker.restart()
            await place.cluster.advance("10m")
        assert [each.body for each in place.cluster.messages(place.topic)] == [b"1"]

    place.run(main)


def test_timed_message_and_retry_survive_a_crash(place: Place) -> None:
    async def main() -> None:
        seen: list[StoredMessage] = []

        async def listen(message: StoredMessage) -> ReconsumeLater | None:
            seen.append(message)
            is_first = message.body == b"retried" and not message.reconsume_times
            return ReconsumeLater(14) if is_first else None

        queue = await queue_of(place)
        async with place.producer() as producer, place.consumer(listen):
            await producer.send(Message(place.topic, b"retried"), queue=queue)
            timed = Message(place.topic, b"timed", deliver_after_ms=24 * 3600 * 1000)
            await producer.send(timed, queue=queue)
            await place.cluster.settled()
            await place.cluster.broker("broker-a").crash()
            await place.cluster.broker("broker-a").restart()
            await place.cluster.advance("1d1m")
            await place.cluster.settled()
        tries = Counter((each.body, each.reconsume_times) for each in seen)
        assert set(tries) == {(b"retried", 0), (b"retried", 1), (b"timed", 0)}

    place.run(main)


def test_full_disk_refuses_sends_and_serves_readers(place: Place) -> None:
    async def main() -> None:
        queue = await queue_of(place)
        broker = place.cluster.broker("broker-a")
        async with place.producer(attempts_max=1) as producer, place.reader() as reader:
            await producer.send(Message(place.topic, b"1"), queue=queue)
            broker.disk_full()
            with pytest.raises(TernError):
                await producer.send(Message(place.topic, b"2"), queue=queue)
            reader.assign([queue])
            found: list[StoredMessage] = []
            while not found:
                found += await reader.poll()
            broker.disk_full(False)
            await producer.send(Message(place.topic, b"3"), queue=queue)
        assert [each.body for each in place.cluster.messages(place.topic)] == [b"1", b"3"]

    place.run(main)
