"""Groups of consumers and what each of them gets, against a cluster."""

from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import chain

import pytest

from ternmq import (
    ConsumeFrom,
    ConsumeStatus,
    Message,
    MessageQueue,
    PushConsumer,
    PushConsumerConfig,
    ReconsumeLater,
    StoredMessage,
    sql,
)
from ternmq_consumer.subscriptions import Subscriptions
from ternmq_model.group_settings import GroupSettings
from tests.support.sdk_place import Place, eventually


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def keep_body(bodies: list[bytes], message: StoredMessage) -> None:
    bodies.append(message.body)


def test_each_group_gets_every_message(place: Place) -> None:
    async def main() -> None:
        seen: dict[str, list[StoredMessage]] = {"one": [], "two": []}
        await place.fill(*numbers(30))
        async with (
            place.consumer(seen["one"].append, group=f"{place.group}_one"),
            place.consumer(seen["two"].append, group=f"{place.group}_two"),
        ):
            await eventually(lambda: all(len(each) >= 30 for each in seen.values()))
        for each in seen.values():
            assert Counter(message.body for message in each) == Counter(numbers(30))

    place.run(main)


def test_group_goes_on_where_it_left(place: Place) -> None:
    async def main() -> None:
        first: list[StoredMessage] = []
        second: list[StoredMessage] = []
        await place.fill(*numbers(20))
        async with place.consumer(first.append):
            await eventually(lambda: len(first) == 20)
        await place.fill(b"new")
        async with place.consumer(second.append):
            await eventually(lambda: bool(second))
        assert [message.body for message in second] == [b"new"]

    place.run(main)


def test_consumer_has_two_topics_with_filters_of_their_own(place: Place) -> None:
    async def main() -> None:
        seen: list[StoredMessage] = []
        other = f"{place.topic}_other"
        async with place.producer() as producer:
            for tags in ("red", "blue"):
                await producer.send(Message(place.topic, b"by tag", tags=tags))
            for price in ("5", "50"):
                await producer.send(Message(other, b"by price", properties={"price": price}))
            await producer.send(Message(other, b"by price", properties={"price": "70"}))
        topics: Subscriptions = {place.topic: "blue", other: sql("price > 10")}
        async with place.consumer(seen.append, topics=topics):
            await eventually(lambda: len(seen) >= 3)
        assert Counter((each.topic, each.tags) for each in seen) == {
            (place.topic, "blue"): 1,
            (other, ""): 2,
        }

    place.run(main)


def test_iterated_message_is_finished_when_the_next_one_is_asked_for(place: Place) -> None:
    async def main() -> None:
        await place.fill(b"1", b"2", b"3", key="k")
        async with place.consumer(order_per_queue=True) as consumer:
            messages = aiter(consumer)
            assert (await anext(messages)).body == b"1"
            assert (await anext(messages)).body == b"2"  # and leaves it unfinished
        async with place.consumer(order_per_queue=True) as consumer:
            assert (await anext(aiter(consumer))).body == b"2"

    place.run(main)


def test_batch_is_taken_again_from_the_first_unfinished_message(place: Place) -> None:
    async def main() -> None:
        calls: list[list[StoredMessage]] = []

        async def listen(batch: Sequence[StoredMessage]) -> ReconsumeLater | None:
            calls.append(list(batch))
            bodies = [each.body for each in batch]
            if b"3" in bodies and batch[0].reconsume_times == 0:
                return ReconsumeLater(1, finished=bodies.index(b"3"))
            return None

        await place.fill(*numbers(6), key="k")
        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        async with PushConsumer(
            place.group,
            place.topic,
            batch_listener=listen,
            nameserver=place.nameserver,
            config=config,
        ):
            await eventually(
                lambda: any(m.reconsume_times and m.body == b"3" for call in calls for m in call)
            )
        again = {m.body for call in calls for m in call if m.reconsume_times}
        assert again.isdisjoint({b"0", b"1", b"2"})

    place.run(main)


def test_failing_message_of_an_orderly_queue_is_not_overtaken(place: Place) -> None:
    async def main() -> None:
        calls: list[bytes] = []

        def listen(message: StoredMessage) -> ReconsumeLater | None:
            calls.append(message.body)
            fails = message.body == b"1" and calls.count(b"1") < 4
            return ReconsumeLater(suspend_s=0.02) if fails else None

        await place.fill(*numbers(4), key="k")
        async with place.consumer(listen, order_per_queue=True):
            await eventually(lambda: calls[-1:] == [b"3"])
        assert calls == [b"0", b"1", b"1", b"1", b"1", b"2", b"3"]

    place.run(main)


def test_orderly_queue_goes_on_behind_a_dead_letter(place: Place) -> None:
    async def main() -> None:
        calls: list[bytes] = []

        def listen(message: StoredMessage) -> ReconsumeLater | None:
            calls.append(message.body)
            return ReconsumeLater(suspend_s=0.02) if message.body == b"1" else None

        await place.fill(*numbers(4), key="k")
        async with place.consumer(listen, order_per_queue=True, retries_max=2):
            await eventually(lambda: calls[-1:] == [b"3"])
        assert calls == [b"0", b"1", b"1", b"1", b"2", b"3"]
        async with place.admin() as admin:
            letters = await admin.dead_letters(place.group)
        assert [each.message.body for each in letters] == [b"1"]

    place.run(main)


def test_settings_of_the_group_limit_its_retries(place: Place) -> None:
    async def main() -> None:
        calls: list[int] = []

        def listen(message: StoredMessage) -> ReconsumeLater:
            calls.append(message.reconsume_times)
            return ReconsumeLater(1)

        await place.fill(b"bad")
        async with place.admin() as admin:
            await admin.put_group(GroupSettings(place.group, retries_max=1))
            async with place.consumer(listen):

                async def is_dead() -> bool:
                    return bool(await admin.dead_letters(place.group))

                await eventually(is_dead)
            (letter,) = await admin.dead_letters(place.group)
        assert calls == [0, 1]
        assert (letter.message.body, letter.origin_topic) == (b"bad", place.topic)

    place.run(main)


def test_retries_are_their_groups_alone(place: Place) -> None:
    async def main() -> None:
        bad: list[StoredMessage] = []
        good: list[StoredMessage] = []

        def fail(message: StoredMessage) -> ConsumeStatus | ReconsumeLater:
            bad.append(message)
            return ConsumeStatus.SUCCESS if message.reconsume_times else ReconsumeLater(1)

        await place.fill(*numbers(5))
        async with (
            place.consumer(fail),
            place.consumer(good.append, group=f"{place.group}_good"),
        ):
            await eventually(lambda: len(bad) >= 10 and len(good) >= 5)
        assert Counter(each.body for each in good) == Counter(numbers(5))
        assert Counter(each.reconsume_times for each in bad) == {0: 5, 1: 5}

    place.run(main)


@pytest.mark.parametrize("members", [2, 3])
def test_members_divide_the_messages_among_them(place: Place, members: int) -> None:
    async def main() -> None:
        seen: list[list[bytes]] = [[] for _ in range(members)]
        await place.create_topic(6)
        async with AsyncExitStack() as stack:
            consumers = [
                await stack.enter_async_context(place.consumer(partial(keep_body, mine)))
                for mine in seen
            ]

            def queues() -> list[list[MessageQueue]]:
                return [
                    [queue for queue in each.assignment() if queue.topic == place.topic]
                    for each in consumers
                ]

            async with place.reader() as reader:
                everything = await reader.queues(place.topic)
            await eventually(lambda: sorted(chain(*queues())) == everything and all(queues()))
            sent = await place.fill(*numbers(48))
            assert {each.queue for each in sent} == {*everything}
            await eventually(lambda: {*chain(*seen)} == {*numbers(48)})
        assert all(seen)

    place.run(main)
