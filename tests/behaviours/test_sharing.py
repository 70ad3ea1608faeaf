"""Sharing queues, seeking, resets and pulling, against a cluster."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from ternmq import (
    AdminClient,
    ClientConfig,
    ConsumeFrom,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PullConsumerConfig,
    PushConsumer,
    PushConsumerConfig,
    StoredMessage,
)
from tests.support.sdk_place import Place, eventually

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


async def fill(place: Place, count: int) -> int:
    """Send messages and return the wall clock of the newest one's store, in milliseconds."""
    async with Producer(place.group, nameserver=place.nameserver) as producer:
        results = await producer.send_many(
            [Message(place.topic, b"%d" % number) for number in range(count)]
        )
    async with PullConsumer(nameserver=place.nameserver) as looks:
        newest = results[-1]
        looks.assign([newest.queue])
        looks.seek(newest.queue, newest.queue_offset)
        (message,) = await looks.poll(timeout_s=100, messages_max=1)
        return message.stored_at_ms


async def queues_of(place: Place) -> list[MessageQueue]:
    """Return the queues of the place's topic, sorted."""
    async with PullConsumer(nameserver=place.nameserver) as looks:
        return await looks.queues(place.topic)


class Member:
    """A push consumer, and what it got."""

    def __init__(self, place: Place, config: PushConsumerConfig = FIRST) -> None:
        self.seen: list[StoredMessage] = []
        self.consumer = PushConsumer(
            place.group,
            place.topic,
            batch_listener=self._listen,
            nameserver=place.nameserver,
            config=config,
        )

    async def _listen(self, messages: Sequence[StoredMessage]) -> None:
        self.seen.extend(messages)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that it owns, but for those of the retry topic."""
        return [each for each in self.consumer.assignment() if not each.topic.startswith("%")]


def records_of(members: Sequence[Member]) -> set[tuple[MessageQueue, int]]:
    """Return queues and offsets of all that the members got."""
    return {(message.queue, message.queue_offset) for each in members for message in each.seen}


def is_shared(
    members: Sequence[Member], queues: Sequence[MessageQueue], *, is_even: bool = True
) -> bool:
    """Return whether each queue has one owner, and, if `is_even`, the members equal shares."""
    shares = [member.queues for member in members]
    spread = max(map(len, shares)) - min(map(len, shares))
    owned = sorted(queue for share in shares for queue in share)
    return owned == queues and (spread <= 1 or not is_even)


@pytest.mark.parametrize("allocate", ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_members_share_the_queues_by_their_chosen_strategy(place: Place, allocate: str) -> None:
    async def main() -> None:
        await fill(place, 200)
        queues = await queues_of(place)
        members = [Member(place, replace(FIRST, allocate=allocate)) for _ in range(3)]
        async with AsyncExitStack() as stack:
            for member in members:
                await stack.enter_async_context(member.consumer)
            is_even = allocate != "CONSISTENT_HASH"
            await eventually(lambda: is_shared(members, queues, is_even=is_even))
            await fill(place, 200)
            await eventually(lambda: len(records_of(members)) == 400)
            # Who stays takes over what the others leave.
            for member in members[1:]:
                await member.consumer.__aexit__(None, None, None)
            await eventually(lambda: members[0].queues == queues)

    place.run(main)


def test_consumer_seeks_in_its_queues_and_the_group_stays_there(place: Place) -> None:
    async def main() -> None:
        await fill(place, 100)
        member = Member(place)
        async with member.consumer as consumer:
            await eventually(lambda: len(member.seen) == 100)
            assert await consumer.seek_to_begin()
            await eventually(lambda: len(member.seen) == 200)
            queue = member.seen[0].queue
            assert await consumer.seek(queue, 1)
            share = max(m.queue_offset for m in member.seen if m.queue == queue)
            await eventually(lambda: len(member.seen) == 200 + share)
            assert await consumer.seek_to_end()
            assert await consumer.seek_to_time(0, queue)
            await eventually(lambda: len(member.seen) == 201 + 2 * share)
        again = Member(place)
        async with again.consumer as consumer:
            await consumer.assigned()
            await asyncio.sleep(0.5)
            assert again.seen == []

    place.run(main)


def test_group_is_reset_by_time_while_it_consumes(place: Place) -> None:
    async def main() -> None:
        at_ms = await fill(place, 50) + 1
        queues = await queues_of(place)
        members = [Member(place) for _ in range(2)]
        client_config = ClientConfig(nameservers=(place.nameserver,))
        async with (
            members[0].consumer,
            members[1].consumer,
            AdminClient(client=client_config) as admin,
        ):
            seen = [member.seen for member in members]
            await eventually(lambda: is_shared(members, queues))
            # A queue's new owner may read again what the last one has read, and then these.
            await fill(place, 50)
            await eventually(lambda: len(records_of(members)) == 100)
            for member in members:
                await member.consumer.commit()
            before = Counter(m.stored_at_ms >= at_ms for each in seen for m in each)
            young = {m.message_id for each in seen for m in each if m.stored_at_ms >= at_ms}
            assert len(young) >= 50
            outcome = await admin.reset_offsets(place.group, place.topic, at_ms=at_ms)
            assert outcome.changes
            await eventually(
                lambda: (
                    Counter(m.stored_at_ms >= at_ms for each in seen for m in each)
                    == before + Counter({True: len(young)})
                )
            )

    place.run(main)


def test_pulling_members_share_pause_and_commit_on_their_own(place: Place) -> None:
    async def main() -> None:
        await fill(place, 300)
        config = PullConsumerConfig(auto_commit=True, auto_commit_s=0.2)
        async with PullConsumer(place.group, nameserver=place.nameserver, config=config) as first:
            await first.subscribe(place.topic)
            await first.assigned()
            queues = first.assignment()
            found: list[StoredMessage] = []
            while len(found) < 300:
                found += await first.poll(timeout_s=100)
            first.pause(*queues)
            await asyncio.sleep(0.3)
            assert await first.poll(timeout_s=0.1) == []

            async def is_committed() -> bool:
                ends = await first.end_offsets(queues)
                return ends == {queue: await first.committed(queue) for queue in queues}

            await eventually(is_committed)
            async with PullConsumer(
                place.group, nameserver=place.nameserver, config=config
            ) as second:
                await second.subscribe(place.topic)
                await eventually(
                    lambda: (
                        bool(second.assignment())
                        and sorted(first.assignment() + second.assignment()) == queues
                    )
                )
                assert await second.poll(timeout_s=0.5) == [], "it begins where the first one was"
                times = dict.fromkeys(second.assignment(), 0)
                begins = await second.offsets_for_times(times)
                assert begins == await second.begin_offsets(times)

    place.run(main)
