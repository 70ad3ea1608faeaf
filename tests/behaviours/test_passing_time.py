"""Events of hours and days, against a cluster whose time moves."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from ternmq import (
    Message,
    PullConsumer,
    PullConsumerConfig,
    ReconsumeLater,
    RequestTimedOut,
    Resolution,
    StoredMessage,
    TransactionProducer,
)
from ternmq_model.transaction import TransactionState
from ternmq_producer.staging import StagingProducer
from tests.support.sdk_place import Place, eventually

pytestmark = pytest.mark.needs_time

LEVELS_S = (1, 5, 10, 30, *range(60, 660, 60), 1200, 1800, 3600, 7200)


def bodies(messages: Sequence[StoredMessage]) -> list[bytes]:
    return [message.body for message in messages]


def test_failed_message_climbs_the_ladder_of_delays(place: Place) -> None:
    async def main() -> None:
        at_s: list[float] = []

        async def listen(_: StoredMessage) -> None:
            at_s.append(place.cluster.now())
            raise ValueError("bad luck")

        await place.fill(b"1")
        async with place.consumer(listen):
            await place.cluster.settled()
            await place.cluster.advance("5h")
        waits_s = [after - before for before, after in pairwise(at_s)]
        assert len(waits_s) == 16
        assert waits_s == [pytest.approx(wait_s, abs=2) for wait_s in LEVELS_S[2:]]
        (letter,) = place.cluster.dead_letters(place.group)
        assert letter.body == b"1"

    place.run(main)


def test_levels_deliver_in_the_order_of_their_delays(place: Place) -> None:
    async def main() -> None:
        seen: list[StoredMessage] = []
        place.cluster.freeze()
        async with place.producer() as producer:
            for level in range(18, 0, -1):
                await producer.send(Message(place.topic, b"%d" % level, delay_level=level))
        async with place.consumer(seen.append):
            await place.cluster.advance("30s")
            assert bodies(seen) == [b"1", b"2", b"3", b"4"]
            await place.cluster.advance("2h1m")
        assert bodies(seen) == [b"%d" % level for level in range(1, 19)]

    place.run(main)


def test_message_for_the_day_after_tomorrow_comes_then(place: Place) -> None:
    async def main() -> None:
        seen: list[StoredMessage] = []
        async with place.producer() as producer, place.consumer(seen.append) as consumer:
            await producer.send(Message(place.topic, b"1", deliver_after_ms=3 * 24 * 3600 * 1000))
            await place.cluster.advance("2d23h")
            assert seen == []
            await place.cluster.advance("1h1m")
            await consumer.assigned()
            await place.cluster.settled()
        assert bodies(seen) == [b"1"]

    place.run(main)


def test_timed_message_is_cancelled_days_before_it_is_due(place: Place) -> None:
    async def main() -> None:
        due_ms = round(place.cluster.now() * 1000) + 2 * 24 * 3600 * 1000
        async with place.producer() as producer:
            timed = Message(place.topic, b"1", deliver_at_ms=due_ms)
            sent = await producer.send(timed)
            other = Message(place.topic, b"2", deliver_at_ms=due_ms)
            await producer.send(other, queue=sent.queue)
            await place.cluster.advance("1d")
            cancelling = Message(place.topic, b"", cancels=sent.message_id, deliver_at_ms=due_ms)
            await producer.send(cancelling, queue=sent.queue)
            await place.cluster.advance("1d1m")
        place.cluster.expect(place.topic, count=1)
        assert bodies(place.cluster.messages(place.topic)) == [b"2"]

    place.run(main)


@pytest.mark.parametrize("at_last", [Resolution.COMMIT, Resolution.ROLLBACK])
def test_open_transaction_is_asked_about_until_it_is_resolved(
    place: Place, at_last: Resolution
) -> None:
    async def main() -> None:
        asked: list[StoredMessage] = []

        async def check(message: StoredMessage) -> Resolution:
            asked.append(message)
            return at_last if len(asked) == 3 else Resolution.UNKNOWN

        async with TransactionProducer(
            place.group,
            execute=lambda _message, _argument: Resolution.UNKNOWN,
            check=check,
            nameserver=place.nameserver,
        ) as producer:
            await producer.send(Message(place.topic, b"1"))
            await place.cluster.advance("1h")
        assert bodies(asked) == [b"1"] * 3
        stored = [b"1"] if at_last is Resolution.COMMIT else []
        assert bodies(place.cluster.messages(place.topic)) == stored

    place.run(main)


def test_transaction_that_nobody_resolves_is_given_up_after_15_checks(place: Place) -> None:
    async def main() -> None:
        asked: list[StoredMessage] = []

        async def check(message: StoredMessage) -> Resolution:
            asked.append(message)
            return Resolution.UNKNOWN

        async with TransactionProducer(
            place.group,
            execute=lambda _message, _argument: Resolution.UNKNOWN,
            check=check,
            nameserver=place.nameserver,
        ) as producer:
            await producer.send(Message(place.topic, b"1"))
            await place.cluster.advance("1d")
        assert len(asked) == 15
        assert place.cluster.messages(place.topic) == []

    place.run(main)


def test_staged_messages_roll_back_when_their_time_is_over(place: Place) -> None:
    async def main() -> None:
        async with StagingProducer(place.group, nameserver=place.nameserver) as producer:
            staged = await producer.stage(
                [Message(place.topic, b"1")] * 3, staged_for="job", immunity_s=7200
            )
            await place.cluster.advance("1h")
            assert await producer.states(staged) == [TransactionState.OPEN] * 3
            await place.cluster.advance("2h")
            assert await producer.states(staged) == [TransactionState.ROLLED_BACK] * 3

    place.run(main)


def test_living_member_keeps_its_queues_for_days(place: Place) -> None:
    async def main() -> None:
        seen: list[StoredMessage] = []
        await place.create_topic()
        async with place.consumer(seen.append, order_per_queue=True) as consumer:
            await consumer.assigned()
            before = consumer.assignment()
            await place.cluster.advance("2d")
            assert consumer.assignment() == before
            await place.fill(b"1", b"2", key="k")
            await place.cluster.settled()
            async with place.admin() as admin:
                assert len((await admin.describe_group(place.group)).members) == 1
        assert bodies(seen) == [b"1", b"2"]

    place.run(main)


def test_consumer_of_a_missing_topic_gets_it_days_later(place: Place) -> None:
    async def main() -> None:
        seen: list[StoredMessage] = []
        async with place.consumer(seen.append), place.reader(f"{place.group}_2") as reader:
            await reader.subscribe(place.topic)
            await place.cluster.advance("3d")
            await place.fill(b"1")
            await place.cluster.advance("1m")
            assert bodies(await reader.poll(timeout_s=100)) == [b"1"]
            await eventually(lambda: bodies(seen) == [b"1"])

    place.run(main)


def test_request_without_an_answer_times_out_by_the_moved_time(place: Place) -> None:
    async def main() -> None:
        await place.create_topic()
        async with place.producer() as producer:
            asking = asyncio.create_task(
                producer.request(Message(place.topic, b"?"), timeout_s=600)
            )
            await place.cluster.advance("9m")
            assert not asking.done()
            await place.cluster.advance("2m")
            with pytest.raises(RequestTimedOut):
                await asking

    place.run(main)


def test_poll_that_has_waited_for_hours_gets_the_message(place: Place) -> None:
    async def main() -> None:
        await place.create_topic()
        async with place.reader() as reader:
            reader.assign(await reader.queues(place.topic))
            polling = asyncio.create_task(reader.poll(timeout_s=86_400))
            await place.cluster.advance("5h")
            await place.fill(b"1")
            assert bodies(await polling) == [b"1"]

    place.run(main)


def test_polled_messages_are_committed_as_time_passes(place: Place) -> None:
    async def main() -> None:
        (sent,) = await place.fill(b"1")
        config = PullConsumerConfig(auto_commit=True, auto_commit_s=60)
        async with PullConsumer(place.group, nameserver=place.nameserver, config=config) as reader:
            reader.assign([sent.queue])
            while not await reader.poll():
                pass
            await place.cluster.advance("2m")
            await reader.poll(timeout_s=0)
            await place.cluster.advance("1s")
            assert await reader.committed(sent.queue) == sent.queue_offset + 1

    place.run(main)


def test_suspended_orderly_queue_goes_on_when_its_pause_is_over(place: Place) -> None:
    async def main() -> None:
        calls: list[bytes] = []

        async def listen(message: StoredMessage) -> ReconsumeLater | None:
            calls.append(message.body)
            return ReconsumeLater(suspend_s=30) if len(calls) == 1 else None

        place.cluster.freeze()
        await place.fill(b"1", b"2", key="k")
        async with place.consumer(listen, order_per_queue=True):
            await place.cluster.advance("20s")
            assert calls == [b"1"]
            await place.cluster.advance("20s")
        assert calls == [b"1", b"1", b"2"]

    place.run(main)
