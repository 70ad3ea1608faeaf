"""Seeking, resets by an operator, and groups that begin at a time, on virtual time."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push import PushConsumer
from ternmq_model.errors import ClosedError, UsageError
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from tests.support.toy_cluster import TOPIC, ToyBroker, ToyCluster, toy_cluster
from tests.support.virtual_time import EPOCH_MS, run_in_virtual_time, until

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
QUEUE = MessageQueue(TOPIC, "broker-0", 0)


class Seen:
    """What a listener was called with, by queue, in order."""

    def __init__(self) -> None:
        self.offsets: defaultdict[MessageQueue, list[int]] = defaultdict(list)
        self.slow: asyncio.Event | None = None
        """While it is there and not set, calls wait for it."""
        self.running: Counter[MessageQueue] = Counter()
        self.side_by_side = 0

    async def listen(self, message: StoredMessage) -> None:
        self.running[message.queue] += 1
        self.side_by_side = max(self.side_by_side, self.running[message.queue])
        self.offsets[message.queue].append(message.queue_offset)
        if self.slow is not None:
            await self.slow.wait()
        self.running[message.queue] -= 1


def member(
    cluster: ToyCluster, seen: Seen, host: str = "a", config: PushConsumerConfig = FIRST
) -> PushConsumer:
    return PushConsumer(
        "g",
        TOPIC,
        listener=seen.listen,
        nameserver=cluster.nameserver,
        config=config,
        env=cluster.environment(host),
    )


def fill(cluster: ToyCluster, per_queue: int) -> None:
    for queue in cluster.queues:
        for _ in range(per_queue):
            cluster.append(queue, b"body")


def in_cluster(test: Callable[[ToyCluster, ToyBroker, Seen], Awaitable[None]]) -> None:
    async def main() -> None:
        async with toy_cluster(brokers=1, queues=2) as cluster:
            await test(cluster, cluster.brokers["broker-0"], Seen())

    run_in_virtual_time(main())


def test_a_seek_goes_back_and_forth_and_is_committed_at_once() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        fill(cluster, 20)
        async with member(cluster, seen) as consumer:
            await until(lambda: len(seen.offsets[QUEUE]) == 20)
            assert await consumer.seek(QUEUE, 15)
            assert cluster.committed("g", QUEUE) == 15
            assert broker.versions["g", 0] == 1
            await until(lambda: len(seen.offsets[QUEUE]) == 25)
            await consumer.commit()
            assert cluster.committed("g", QUEUE) == 20
            assert await consumer.seek_to_begin(QUEUE)
            await until(lambda: len(seen.offsets[QUEUE]) == 45)
            assert await consumer.seek_to_end()
            fill(cluster, 1)
            await asyncio.sleep(5)
        assert seen.offsets[QUEUE] == [*range(20), *range(15, 20), *range(20), 20]
        assert seen.offsets[QUEUE._replace(queue_id=1)] == [*range(20), 20]
        assert cluster.committed("g", QUEUE) == 21

    in_cluster(test)


def test_a_seek_by_time_begins_with_what_was_stored_then_or_later() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        for at_ms in (100, 200, 300, 300, 400):
            broker.append(0, b"body", stored_at_ms=at_ms)
        async with member(cluster, seen) as consumer:
            await until(lambda: len(seen.offsets[QUEUE]) == 5)
            assert await consumer.seek_to_time(250, QUEUE)
            await until(lambda: len(seen.offsets[QUEUE]) == 8)
            assert await consumer.seek_to_time(401)
            await asyncio.sleep(5)
        assert seen.offsets[QUEUE] == [0, 1, 2, 3, 4, 2, 3, 4]
        assert cluster.committed("g", QUEUE) == 5

    in_cluster(test)


def test_what_was_in_hand_before_a_seek_counts_for_nothing() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        fill(cluster, 100)
        seen.slow = asyncio.Event()
        async with member(cluster, seen) as consumer:
            await until(lambda: bool(seen.offsets[QUEUE]))
            assert await consumer.seek(QUEUE, 50)
            seen.slow.set()
            seen.slow = None
            await until(lambda: 99 in seen.offsets[QUEUE])
            await consumer.commit()
            assert cluster.committed("g", QUEUE) == 100
            assert set(range(50, 100)) <= set(seen.offsets[QUEUE])
            assert all(offset >= 50 for _, queue_id, offset in broker.commits[2:] if queue_id == 0)

    in_cluster(test)


def test_in_order_a_queue_goes_on_elsewhere_only_when_the_running_call_has_ended() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        fill(cluster, 100)
        seen.slow = asyncio.Event()
        async with member(
            cluster, seen, config=replace(FIRST, order_per_queue=True, workers=8)
        ) as consumer:
            await until(lambda: bool(seen.offsets[QUEUE]))
            assert await consumer.seek(QUEUE, 60)
            assert await consumer.seek(QUEUE, 40)
            await asyncio.sleep(30)
            assert seen.offsets[QUEUE] == [0]
            seen.slow.set()
            seen.slow = None
            await until(lambda: len(seen.offsets[QUEUE]) == 61)
        assert seen.offsets[QUEUE] == [0, *range(40, 100)]
        assert seen.side_by_side == 1
        assert cluster.committed("g", QUEUE) == 100

    in_cluster(test)


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("offset", [10, 95])
def test_the_owner_of_a_queue_that_is_reset_goes_on_where_it_was_set(
    offset: int, *, tells: bool
) -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        fill(cluster, 90)
        async with member(cluster, seen, "a"), member(cluster, seen, "b") as other:
            await other.assigned()
            await until(lambda: len(seen.offsets[QUEUE]) >= 90)
            await asyncio.sleep(6)
            before = len(seen.offsets[QUEUE])
            fill(cluster, 10)
            await broker.reset("g", 0, offset, tells=tells)
            # Who is not told learns it from the refusal of what it commits.
            await until(lambda: cluster.committed("g", QUEUE) == 100)
            await asyncio.sleep(6)
            again = seen.offsets[QUEUE][before:]
            assert set(again) >= set(range(offset, 100))
            if tells:
                assert again[-(100 - offset) :] == list(range(offset, 100))
        assert broker.versions["g", 0] == 1
        assert seen.offsets[QUEUE._replace(queue_id=1)] == list(range(100))
        assert cluster.committed("g", QUEUE) == 100

    in_cluster(test)


def test_whenever_it_is_reset_a_queue_that_is_being_taken_over_goes_on_where_it_was_set() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        fill(cluster, 20)
        for step in range(60):
            broker.offsets["g", 0] = 20  # nothing is left to be committed that could be refused
            seen.offsets.clear()
            async with member(cluster, seen, f"host-{step}"):
                await asyncio.sleep(step * 0.0003)
                await broker.reset("g", 0, 5)
                await asyncio.sleep(30)
            assert seen.offsets[QUEUE] == [*range(5, 20)], f"reset after {step * 0.3:.1f} ms"
            assert cluster.committed("g", QUEUE) == 20

    in_cluster(test)


def test_a_reset_that_came_while_the_session_was_down_is_found_when_it_is_open_again() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        fill(cluster, 90)
        async with member(cluster, seen):
            await until(lambda: len(seen.offsets[QUEUE]) == 90)
            await asyncio.sleep(6)
            cluster.network.partition("a", "broker-0")
            await broker.reset("g", 0, 30, tells=False)
            await asyncio.sleep(5)
            cluster.network.heal()
            await until(lambda: len(seen.offsets[QUEUE]) == 150)
            await asyncio.sleep(10)
        assert seen.offsets[QUEUE] == [*range(90), *range(30, 90)]
        assert cluster.committed("g", QUEUE) == 90

    in_cluster(test)


def test_resets_of_other_groups_and_of_queues_of_other_members_move_nobody() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        fill(cluster, 20)
        async with member(cluster, seen):
            await until(lambda: len(seen.offsets[QUEUE]) == 20)
            await broker.reset("another", 0, 0)
            await broker.reset("g", 7, 0)
            await asyncio.sleep(10)
        assert seen.offsets[QUEUE] == list(range(20))

    in_cluster(test)


def test_a_seek_elsewhere_than_in_ones_own_queues_is_refused_by_name() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        consumer = member(cluster, seen)
        with pytest.raises(ClosedError, match="not open"):
            await consumer.seek(QUEUE, 1)
        async with consumer:
            await consumer.assigned()
            stranger = QUEUE._replace(queue_id=9)
            for seek in (
                consumer.seek(stranger, 1),
                consumer.seek_to_begin(stranger),
                consumer.seek_to_end(QUEUE, stranger),
                consumer.seek_to_time(1, stranger),
            ):
                with pytest.raises(UsageError, match=rf"{stranger} is not assigned"):
                    await seek
            with pytest.raises(UsageError, match="negative"):
                await consumer.seek(QUEUE, -1)
        assert not broker.versions

    in_cluster(test)


def test_a_seek_beyond_the_queue_goes_to_its_end() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        fill(cluster, 20)
        async with member(cluster, seen) as consumer:
            await until(lambda: len(seen.offsets[QUEUE]) == 20)
            await consumer.seek(QUEUE, 500)
            await asyncio.sleep(6)
            assert cluster.committed("g", QUEUE) == 20
            fill(cluster, 1)
            await until(lambda: seen.offsets[QUEUE][-1] == 20)

    in_cluster(test)


@pytest.mark.parametrize(("at_ms", "first"), [(None, 2), (EPOCH_MS - 5_000, 4)])
def test_a_group_that_begins_at_a_time_passes_over_what_is_older(
    at_ms: int | None, first: int
) -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        for minutes in (60, 31, 29, 1, 0):
            broker.append(0, b"body", stored_at_ms=EPOCH_MS - minutes * 60_000)
        config = PushConsumerConfig(consume_from=ConsumeFrom.TIMESTAMP, consume_at_ms=at_ms)
        async with member(cluster, seen, config=config):
            await until(lambda: 4 in seen.offsets[QUEUE])
        assert seen.offsets[QUEUE] == list(range(first, 5))
        assert broker.commits[0] in (("g", 0, first), ("g", 1, 0))

    in_cluster(test)
