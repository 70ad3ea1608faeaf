"""Orderly consumers in a simulated cluster: one owner at a time, in order, whatever happens."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from ternmq_broker.state.lock_table import QueueKey
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.consume_status import ConsumeStatus, ListenerAnswer, ReconsumeLater
from ternmq_consumer.process_queue.queue_locks import TRUST_MS
from ternmq_model.errors import Unreachable
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time, until
from tests.support.examples import seeds
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC

ORDERLY = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, order_per_queue=True, workers=8)


SEEDS = seeds(12, soak=1000)
KEY = QueueKey(TOPIC, 0)


def clock_ms() -> int:
    return VirtualClock().monotonic_ms()


def now_s() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class CallOfListener:
    """One message in the hands of one member."""

    member: str
    queue: MessageQueue
    offset: int
    began_s: float
    ended_s: float = float("inf")
    is_done: bool = False


@dataclass
class Journal:
    """Every listener call of every member, in the order in which they began."""

    calls: list[CallOfListener] = field(default_factory=list[CallOfListener])
    finished: set[tuple[MessageQueue, int]] = field(default_factory=set[tuple[MessageQueue, int]])

    def check_order(self) -> None:
        """Assert that calls of one queue never overlapped, and that none passed over a message."""
        last: dict[MessageQueue, CallOfListener] = {}
        next_offset: dict[MessageQueue, int] = {}
        for call in self.calls:
            before = last.get(call.queue)
            assert before is None or before.ended_s <= call.began_s, (before, call)
            last[call.queue] = call
            due = next_offset.get(call.queue, 0)
            assert call.offset <= due, f"{call.queue}: {call.offset} was begun before {due}"
            if call.is_done:
                next_offset[call.queue] = max(due, call.offset + 1)


def in_cluster(
    test: Callable[[ToyCluster], Awaitable[None]], *, brokers: int = 1, queues: int = 2
) -> None:
    async def main() -> None:
        async with ToyCluster(brokers=brokers, queues=queues) as cluster:
            await test(cluster)

    run_in_virtual_time(main())


class Member:
    """A member that takes its time for every message, and can be killed."""

    def __init__(self, cluster: ToyCluster, name: str, journal: Journal, random: Random) -> None:
        self.name = name
        self._cluster = cluster
        self._journal = journal
        self._random = random
        self._stop = asyncio.Event()
        self._is_killed = False
        config = replace(ORDERLY, suspend_s=0.05)
        self.consumer = cluster.consumer(name, config, listener=self._on_message)

    async def run(self) -> None:
        """Consume until `leave`. Who is killed while it starts never was a member."""
        try:
            async with self.consumer:
                await self._stop.wait()
        except Unreachable:
            if not self._is_killed:
                raise

    def leave(self) -> None:
        """Go in order."""
        self._stop.set()

    def kill(self) -> None:
        """Die: nothing more reaches the cluster, and nothing of it comes here."""
        self._is_killed = True
        self._stop.set()
        self._cluster.network.kill(self.name)

    async def _on_message(self, message: StoredMessage) -> bool:
        if self._is_killed:
            return False
        call = CallOfListener(self.name, message.queue, message.queue_offset, now_s())
        self._journal.calls.append(call)
        await asyncio.sleep(self._random.uniform(0, 0.5))
        call.ended_s = now_s()
        if self._is_killed or self._random.random() < 0.01:
            return False
        call.is_done = True
        self._journal.finished.add((message.queue, message.queue_offset))
        return True


@pytest.mark.parametrize("seed", SEEDS)
def test_queue_has_one_owner_and_keeps_order_while_members_come_and_go(
    seed: int,
) -> None:
    async def main() -> None:
        async with ToyCluster(seed=seed, brokers=2, queues=3) as cluster:
            journal, random = Journal(), Random(seed)
            stored = 200 * len(cluster.queues)
            for queue in cluster.queues * 200:
                cluster.append(queue, b"body")
            async with asyncio.TaskGroup() as tasks:
                members: list[Member] = []
                names = iter(range(1000))

                def join() -> None:
                    member = Member(cluster, f"host-{next(names)}", journal, random)
                    members.append(member)
                    tasks.create_task(member.run())

                join()
                for _ in range(30):
                    await asyncio.sleep(random.uniform(0, 8))
                    for queue in random.choices(cluster.queues, k=20):
                        cluster.append(queue, b"body")
                        stored += 1
                    event = random.choice(["join", "leave", "kill", "cut", "part", "calm"])
                    victim = random.choice(members)
                    if event == "join" and len(members) < 5:
                        join()
                    elif event in ("leave", "kill") and len(members) > 1:
                        members.remove(victim)
                        victim.leave() if event == "leave" else victim.kill()
                    elif event == "cut":
                        cluster.network.cut(victim.name)
                    elif event == "part":
                        broker = random.choice(list(cluster.brokers))
                        cluster.network.partition(victim.name, broker)
                        asyncio.get_running_loop().call_later(
                            random.uniform(1, 50), cluster.network.heal
                        )
                async with asyncio.timeout(400):
                    while len(journal.finished) < stored:
                        await asyncio.sleep(0.1)
                for member in members:
                    member.leave()
            journal.check_order()
            assert len(journal.finished) == stored == 1800

    run_in_virtual_time(main())


def test_listener_calls_start_within_8_s_of_last_lock_confirmation() -> None:
    async def test(cluster: ToyCluster) -> None:
        began: list[float] = []

        async def listener(message: StoredMessage) -> None:
            began.append(now_s())
            await asyncio.sleep(0.5)

        queue = cluster.queues[0]
        for _ in range(200):
            cluster.append(queue, b"body")
        broker = cluster.first
        async with cluster.consumer("a", ORDERLY, listener=listener) as consumer:
            await consumer.assigned()
            await asyncio.sleep(20.3)
            held = broker.groups.locks.holding("g", TOPIC, 0, now_ms=clock_ms())
            assert held is not None
            # The lease ends 30 s after the broker confirmed it.
            confirmed_s = held.lease_ends_at_ms / 1000 - 30 - now_offset_s()
            broker.groups.is_down = True
            await asyncio.sleep(25)
            # Asked for before it was confirmed, so the client counts from a little earlier.
            assert confirmed_s + 7 < max(began) <= confirmed_s + TRUST_MS / 1000
            stood_still = len(began)
            broker.groups.is_down = False
            await asyncio.sleep(5)
            assert len(began) > stood_still
            assert consumer.assignment() == cluster.queues
        assert len(began) == cluster.committed("g", queue)

    in_cluster(test)


def now_offset_s() -> float:
    """Return what the monotonic clock shows when the loop's time is 0."""
    return VirtualClock().monotonic_ms() / 1000 - now_s()


def test_stale_lock_token_drops_the_queue_and_locks_it_again() -> None:
    async def test(cluster: ToyCluster) -> None:
        seen: list[int] = []

        async def listener(message: StoredMessage) -> None:
            seen.append(message.queue_offset)
            await asyncio.sleep(0.5)

        queue = cluster.queues[0]
        for _ in range(400):
            cluster.append(queue, b"body")
        locks = cluster.first.groups.locks
        async with cluster.consumer("a", ORDERLY, listener=listener) as consumer:
            await consumer.assigned()
            await asyncio.sleep(12)
            held = locks.holding("g", TOPIC, 0, now_ms=clock_ms())
            assert held is not None
            locks.left(held.client_id)
            key = next(iter(locks.lock("g", "thief", [(KEY, 0)], now_ms=clock_ms())))
            committed = cluster.committed("g", queue)
            await asyncio.sleep(8)
            assert queue not in consumer.assignment()
            assert cluster.committed("g", queue) == committed
            at_theft = len(seen)
            await asyncio.sleep(5)
            assert len(seen) == at_theft
            locks.unlock("g", "thief", [key])
            await asyncio.sleep(5)
            assert consumer.assignment() == cluster.queues
            # What the stale owner had done and could not commit comes again.
            assert seen[at_theft] == committed

    in_cluster(test, queues=1)


def test_failed_message_is_retried_first_after_the_suspension() -> None:
    async def test(cluster: ToyCluster) -> None:
        seen: list[tuple[float, int, int]] = []

        def listener(message: StoredMessage) -> ListenerAnswer:
            seen.append((now_s(), message.queue_offset, message.reconsume_times))
            if message.queue_offset == 3 and message.reconsume_times < 3:
                return ReconsumeLater(suspend_s=5) if message.reconsume_times == 1 else False
            return None

        for _ in range(10):
            cluster.append(cluster.queues[0], b"body")
        async with cluster.consumer("a", ORDERLY, listener=listener):
            await until(lambda: len(seen) == 13)
        assert [offset for _, offset, _ in seen] == [0, 1, 2, 3, 3, 3, 3, 4, 5, 6, 7, 8, 9]
        tries = [(at_s, times) for at_s, offset, times in seen if offset == 3]
        assert [times for _, times in tries] == [0, 1, 2, 3]
        pauses = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(tries)]
        assert pauses == pytest.approx([1, 5, 1], abs=0.05)

    in_cluster(test, queues=1)


@pytest.mark.parametrize("way", ["too often", "at once"])
def test_dead_letter_frees_its_queue_only_once_the_broker_has_it(way: str) -> None:
    async def test(cluster: ToyCluster) -> None:
        seen: list[int] = []

        def listener(message: StoredMessage) -> ListenerAnswer:
            seen.append(message.queue_offset)
            if message.body != b"bad":
                return None
            return False if way == "too often" else ConsumeStatus.DEAD_LETTER

        for number in range(6):
            cluster.append(cluster.queues[0], b"bad" if number == 2 else b"good")
        groups = cluster.first.groups
        groups.fault = lambda _: 1
        config = replace(ORDERLY, retries_max=3)
        async with cluster.consumer("a", config, listener=listener) as consumer:
            await asyncio.sleep(30)
            assert max(seen) == 2
            await consumer.commit()
            assert cluster.committed("g", cluster.queues[0]) == 2
            groups.fault = lambda _: 0
            await until(lambda: max(seen) == 5)
            assert groups.dead == [b"bad"]
        assert cluster.committed("g", cluster.queues[0]) == 6

    in_cluster(test, queues=1)


def test_orderly_message_is_delivered_once_plus_retries_max() -> None:
    async def test(cluster: ToyCluster) -> None:
        seen: list[int] = []

        def listener(message: StoredMessage) -> bool:
            seen.append(message.reconsume_times)
            return False

        cluster.append(cluster.queues[0], b"bad")
        groups = cluster.first.groups
        async with cluster.consumer("a", replace(ORDERLY, retries_max=2), listener=listener):
            await until(lambda: bool(groups.dead))
            await asyncio.sleep(60)
        assert seen == [0, 1, 2]

    in_cluster(test, queues=1)


def test_released_queue_waits_a_second_for_its_call_before_unlocking() -> None:
    async def test(cluster: ToyCluster) -> None:
        journal: list[tuple[str, int, float]] = []

        def slow(name: str) -> Callable[[StoredMessage], Awaitable[None]]:
            async def listener(message: StoredMessage) -> None:
                journal.append((name, message.queue_offset, now_s()))
                await asyncio.sleep(12 if name == "a" else 0)
                journal.append((name + " ends", message.queue_offset, now_s()))

            return listener

        given = cluster.queues[1]
        cluster.append(given, b"body")
        async with cluster.consumer("a", ORDERLY, listener=slow("a")) as first:
            await first.assigned()
            await asyncio.sleep(1)
            async with cluster.consumer("b", ORDERLY, listener=slow("b")):
                await until(lambda: any(name == "b" for name, _, _ in journal))
        names = [name for name, _, _ in journal]
        assert names == ["a", "a ends", "b", "b ends"]
        # Unlocked after the call, not when the lease was over.
        assert journal[2][2] - journal[1][2] < 4

    in_cluster(test)


def test_returning_queue_waits_for_the_call_it_left_behind() -> None:
    async def test(cluster: ToyCluster) -> None:
        journal = Journal()

        async def slow(message: StoredMessage) -> None:
            call = CallOfListener("a", message.queue, message.queue_offset, now_s())
            journal.calls.append(call)
            await asyncio.sleep(12)
            call.ended_s = now_s()
            call.is_done = True

        for _ in range(2):
            cluster.append(cluster.queues[1], b"body")
        async with cluster.consumer("a", ORDERLY, listener=slow):
            await until(lambda: bool(journal.calls))
            async with cluster.consumer("b", ORDERLY, listener=lambda _: None) as other:
                # Given away, but locked for as long as the call lasts; "b" goes without it.
                await asyncio.sleep(3)
                assert other.assignment() == []
            await until(lambda: cluster.committed("g", cluster.queues[1]) == 2)
        journal.check_order()
        assert [call.offset for call in journal.calls] == [0, 0, 1]

    in_cluster(test)


def test_locks_survive_nameservers_that_know_no_topic_yet() -> None:
    async def test(cluster: ToyCluster) -> None:
        broker = cluster.first

        def tokens() -> list[int]:
            held = (broker.groups.locks.holding("g", TOPIC, n, now_ms=clock_ms()) for n in (0, 1))
            return [0 if each is None else each.token for each in held]

        async with (
            cluster.consumer("a", ORDERLY, listener=lambda _: None) as first,
            cluster.consumer("b", ORDERLY, listener=lambda _: None) as second,
        ):
            await until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
            before = tokens()
            served = dict(cluster.brokers)
            cluster.brokers.clear()
            for _ in range(400):
                await asyncio.sleep(0.1)
                assert tokens() == before
            cluster.brokers.update(served)
            await asyncio.sleep(40)
            assert tokens() == before
            assert len(first.assignment()) == len(second.assignment()) == 1

    in_cluster(test)


def test_leaving_returns_the_locks_at_once() -> None:
    async def test(cluster: ToyCluster) -> None:
        async with cluster.consumer("a", ORDERLY, listener=lambda _: None) as consumer:
            await consumer.assigned()
        locks = cluster.first.groups.locks
        assert locks.holding("g", TOPIC, 0, now_ms=clock_ms()) is None

    in_cluster(test)


def test_iterated_consumer_keeps_the_order_too() -> None:
    async def test(cluster: ToyCluster) -> None:
        for _ in range(10):
            cluster.append(cluster.queues[0], b"body")
        offsets: list[int] = []
        async with cluster.consumer("a", ORDERLY) as consumer:
            async for message in consumer:
                offsets.append(message.queue_offset)
                if message.queue_offset == 4:
                    # Longer than a lock is trusted that nobody could renew.
                    cluster.first.groups.is_down = True
                    await asyncio.sleep(20)
                    cluster.first.groups.is_down = False
                if message.queue_offset == 9:
                    await consumer.commit()
                    break
        assert offsets == list(range(10))
        assert cluster.committed("g", cluster.queues[0]) == 10

    in_cluster(test, queues=1)
