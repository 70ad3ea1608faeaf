"""Members of a group that come, go, crash and lose connections: nothing lost, nothing skipped."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random

import pytest

from ternmq_consumer.config import PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.toy_broker import ToyBroker
from tests.support.toy_cluster import FIRST, ToyCluster
from tests.support.toy_log import TOPIC


def longest(samples: list[bool], every_s: float) -> float:
    """Return for how many seconds on end something was so."""
    run = best = 0
    for is_so in samples:
        run = run + 1 if is_so else 0
        best = max(best, run)
    return best * every_s


@pytest.mark.parametrize("is_silent", [True, False])
def test_members_that_begin_while_a_broker_is_away_share_the_others_queues(is_silent: bool) -> None:
    async def main() -> None:
        every_s = 0.1
        async with ToyCluster(brokers=2) as cluster:
            members: dict[str, PushConsumer] = {}

            async def begin(name: str) -> None:
                members[name] = cluster.consumer(name, listener=lambda _: None)
                await members[name].__aenter__()

            async def leave(name: str) -> None:
                await members.pop(name).__aexit__(None, None, None)

            owned: list[Counter[MessageQueue]] = []

            async def watch() -> None:
                while True:
                    queues = [queue for each in members.values() for queue in each.assignment()]
                    owned.append(Counter(queues))
                    await asyncio.sleep(every_s)

            for name in ("m2", "m4"):
                await begin(name)
            await asyncio.sleep(10)
            watching = asyncio.ensure_future(watch())
            cluster.untold = {"broker-0"}
            if is_silent:
                await cluster.stop(cluster.first)
            await asyncio.sleep(3 if is_silent else 31)  # a route is asked again every 30 s
            for step in (begin("m1"), begin("m3"), leave("m2"), begin("m5"), leave("m3")):
                await step
                await asyncio.sleep(4)
            watching.cancel()
            for queue in cluster.brokers["broker-1"].queues_of(TOPIC):
                assert longest([not each[queue] for each in owned], every_s) < 3, queue
                assert longest([each[queue] > 1 for each in owned], every_s) < 3, queue
            if is_silent:
                await cluster.start(cluster.first)
            cluster.untold = set()
            await asyncio.sleep(35)  # a member that never knew a broker learns of it like any other
            queues = [queue for each in members.values() for queue in each.assignment()]
            assert sorted(queues) == cluster.queues
            for name in tuple(members):
                await leave(name)

    run_in_virtual_time(main())


class Journal:
    """What every member's listener has finished, and the promise that commits keep to it."""

    def __init__(self, cluster: ToyCluster) -> None:
        self.cluster = cluster
        self.finished: Counter[str] = Counter()
        """By message id, under which a message that was sent back comes again."""
        self._checked = dict.fromkeys(cluster.brokers, 0)
        self._complete: Counter[MessageQueue] = Counter()
        """Up to where all of a queue was finished or taken back; that stays so."""

    def check_commits(self) -> None:
        """Assert that no offset passed an unfinished message that its broker has not taken back."""
        for name, broker in self.cluster.brokers.items():
            taken_back = {failed.message_id for failed in broker.groups.sent_back}
            for _, queue, offset in broker.groups.commits[self._checked[name] :]:
                if queue.topic != TOPIC:
                    continue
                places = range(self._complete[queue], offset)
                ids = [f"{name}-{queue.queue_id}-{place}" for place in places]
                missing = [
                    each for each in ids if not (each in self.finished or each in taken_back)
                ]
                assert not missing, f"{queue}: {offset} was committed without {missing}"
                self._complete[queue] = max(places.start, offset)
            self._checked[name] = len(broker.groups.commits)

    @property
    def is_all_committed(self) -> bool:
        """The group has committed the end of every queue."""
        return all(
            broker.groups.committed("g", queue) == len(records)
            for broker in self.cluster.brokers.values()
            for queue, records in broker.queues.items()
        )

    @property
    def duplicates(self) -> int:
        """How often a message was finished again."""
        return self.finished.total() - len(self.finished)


class Member:
    """One consumer on a host of its own, run as a task so that it can be killed."""

    def __init__(self, cluster: ToyCluster, name: str, journal: Journal, random: Random) -> None:
        self.name = name
        self._cluster = cluster
        self._journal = journal
        self._random = random
        self._stop = asyncio.Event()
        self.is_killed = False
        self.consumer = cluster.consumer(name, replace(FIRST, workers=4), listener=self._on_message)

    async def run(self) -> None:
        """Consume until `leave`."""
        async with self.consumer:
            await self._stop.wait()

    def leave(self) -> None:
        """Go in order."""
        self._stop.set()

    def kill(self) -> None:
        """Die: nothing more reaches the cluster, and nothing of it comes here."""
        self.is_killed = True
        self._stop.set()
        for broker in ("nameserver", *self._cluster.brokers):
            self._cluster.network.partition(self.name, broker)

    async def _on_message(self, message: StoredMessage) -> bool:
        await asyncio.sleep(self._random.uniform(0, 0.02))
        if self.is_killed or self._random.random() < 0.01:
            return False
        assert message.topic == TOPIC
        self._journal.finished[message.message_id] += 1
        return True


async def churn(cluster: ToyCluster, random: Random, journal: Journal) -> int:
    """Let members come and go while messages are stored; return how many were."""
    stored = 0
    async with asyncio.TaskGroup() as tasks:
        members: list[Member] = []

        def join() -> None:
            member = Member(cluster, f"host-{len(tasks_of)}", journal, random)
            members.append(member)
            tasks_of[member.name] = tasks.create_task(member.run())

        tasks_of: dict[str, asyncio.Task[None]] = {}
        join()
        for _ in range(40):
            await asyncio.sleep(random.uniform(0, 4))
            journal.check_commits()
            for queue in random.choices(cluster.queues, k=60):
                cluster.append(queue, b"body")
                stored += 1
            event = random.choice(["join", "leave", "kill", "cut", "cut", "calm"])
            if event == "join" and len(members) < 5:
                join()
            elif event in ("leave", "kill") and len(members) > 1:
                member = members.pop(random.randrange(len(members)))
                member.leave() if event == "leave" else member.kill()
            elif event == "cut":
                cluster.network.cut(random.choice(members).name)
        async with asyncio.timeout(300):
            while len(journal.finished) < stored or not journal.is_all_committed:
                await asyncio.sleep(0.1)
        for member in members:
            member.leave()
    journal.check_commits()
    return stored


def fail_every(nth: int, cluster: ToyCluster) -> Iterator[int]:
    """Refuse every `nth` message that is sent back; what this returns counts them all."""
    numbers = count(1)

    def fault(_: object) -> int:
        return int(ResponseCode.SYSTEM_ERROR) if next(numbers) % nth == 0 else 0

    for broker in cluster.brokers.values():
        broker.groups.fault = fault
    return numbers


@pytest.mark.parametrize("seed", range(12))
def test_every_message_is_consumed_while_members_come_go_and_crash(seed: int) -> None:
    async def main() -> None:
        async with ToyCluster(seed=seed, brokers=2, queues=4) as cluster:
            faults = fail_every(5, cluster)
            journal = Journal(cluster)
            stored = await churn(cluster, Random(seed), journal)
            assert len(journal.finished) == stored == 2400
            assert journal.is_all_committed
            assert next(faults) > 5
            assert all(broker.groups.sent_back for broker in cluster.brokers.values())

    run_in_virtual_time(main())


def test_two_members_share_the_queues_evenly_and_without_overlap() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2, queues=5) as cluster, AsyncExitStack() as stack:
            consumers = [
                await stack.enter_async_context(
                    cluster.consumer(
                        f"host-{number}", PushConsumerConfig(), listener=lambda _: None
                    )
                )
                for number in range(2)
            ]
            for consumer in consumers:
                await consumer.assigned()
            await asyncio.sleep(3)
            first, second = (consumer.assignment() for consumer in consumers)
            assert len(first) == len(second) == 5
            assert sorted(first + second) == cluster.queues

    run_in_virtual_time(main())


def counting_member(
    cluster: ToyCluster,
    seen: Counter[tuple[MessageQueue, int]],
    host: str,
    *,
    config: PushConsumerConfig = FIRST,
) -> PushConsumer:
    """Return a member that counts how often each message comes."""

    def listener(message: StoredMessage) -> None:
        seen[message.queue, message.queue_offset] += 1

    return cluster.consumer(host, config, listener=listener)


def test_messages_are_consumed_once_while_member_joins_and_leaves() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2, queues=4) as cluster:
            seen: Counter[tuple[MessageQueue, int]] = Counter()

            member = partial(counting_member, cluster, seen)

            async def store(rounds: int) -> None:
                for _ in range(rounds):
                    for queue in cluster.queues:
                        cluster.append(queue, b"body")
                    await asyncio.sleep(0.1)

            async with member("a") as first:
                await first.assigned()
                await store(5)
                await asyncio.sleep(6)
                async with member("b") as second:
                    await second.assigned()
                    await asyncio.sleep(3)
                    assert len(first.assignment()) == len(second.assignment()) == 4
                    await store(50)
                await asyncio.sleep(3)
                assert first.assignment() == cluster.queues
                await store(5)
                await asyncio.sleep(1)
            assert len(seen) == seen.total() == 60 * 8

    run_in_virtual_time(main())


def test_uncommitted_messages_are_not_redelivered_when_member_joins() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=1, queues=4) as cluster:
            seen: Counter[tuple[MessageQueue, int]] = Counter()

            config = replace(FIRST, commit_s=600)
            member = partial(counting_member, cluster, seen, config=config)

            async with member("a") as first:
                await first.assigned()
                for queue in cluster.queues * 50:
                    cluster.append(queue, b"body")
                await asyncio.sleep(0.3)
                async with member("b") as second:
                    await second.assigned()
                    await asyncio.sleep(3)
                    assert len(first.assignment()) == len(second.assignment()) == 2
            assert len(seen) == seen.total() == 200

    run_in_virtual_time(main())


def test_broker_absent_for_a_while_loses_no_message() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2, queues=2) as cluster:
            seen: Counter[tuple[MessageQueue, int]] = Counter()
            async with counting_member(cluster, seen, "a") as consumer:
                await consumer.assigned()
                for number in range(100):
                    for queue in cluster.queues:
                        cluster.append(queue, b"body")
                    if number == 30:
                        cluster.network.partition("a", "broker-1")
                    if number == 60:
                        cluster.network.heal()
                    await asyncio.sleep(1)
                async with asyncio.timeout(60):
                    while len(seen) < 400:
                        await asyncio.sleep(0.1)
                assert consumer.assignment() == cluster.queues
            assert all(cluster.committed("g", queue) == 100 for queue in cluster.queues)

    run_in_virtual_time(main())


def test_new_queues_of_a_topic_are_consumed_from_their_first_message() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=1, queues=2) as cluster:
            seen: list[StoredMessage] = []
            async with cluster.consumer("a", listener=seen.append) as consumer:
                await consumer.assigned()
                await cluster.start(ToyBroker("broker-9", 3))
                cluster.fill(1)
                async with asyncio.timeout(60):
                    while len(seen) < 5:
                        await asyncio.sleep(0.1)
                assert consumer.assignment() == cluster.queues
                assert len(cluster.queues) == 5

    run_in_virtual_time(main())


def test_silent_queue_is_resubscribed_after_two_minutes() -> None:
    async def main() -> None:
        async with ToyCluster(brokers=1, queues=2) as cluster:
            broker = cluster.first
            seen: Counter[tuple[MessageQueue, int]] = Counter()
            async with counting_member(cluster, seen, "a") as consumer:
                await consumer.assigned()
                broker.forgets = True
                broker.wake()
                await asyncio.sleep(1)
                broker.forgets = False
                for queue in cluster.queues * 10:
                    cluster.append(queue, b"body")
                await asyncio.sleep(60)
                assert not seen
                async with asyncio.timeout(100):
                    while len(seen) < 20:
                        await asyncio.sleep(0.1)
            assert len(seen) == seen.total() == 20

    run_in_virtual_time(main())
