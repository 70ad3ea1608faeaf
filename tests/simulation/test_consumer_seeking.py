"""Seeking, resets by an operator, and groups that begin at a time, on virtual time."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_assignment import PushAssignment
from ternmq_model.errors import ClosedError, UsageError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import EPOCH_MS, run_in_virtual_time, until
from tests.support.toy_broker import ToyBroker
from tests.support.toy_cluster import FIRST, ToyCluster
from tests.support.toy_log import TOPIC

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


def in_cluster(test: Callable[[ToyCluster, ToyBroker, Seen], Awaitable[None]]) -> None:
    async def main() -> None:
        async with ToyCluster(brokers=1, queues=2) as cluster:
            await test(cluster, cluster.first, Seen())

    run_in_virtual_time(main())


def test_seek_goes_back_and_forth_and_is_committed_at_once() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        cluster.fill(20)
        async with cluster.consumer("a", listener=seen.listen) as consumer:
            await until(lambda: len(seen.offsets[QUEUE]) == 20)
            assert await consumer.seek(QUEUE, 15)
            assert cluster.committed("g", QUEUE) == 15
            assert broker.groups.offsets.version("g", TOPIC, 0) == 1
            await until(lambda: len(seen.offsets[QUEUE]) == 25)
            await consumer.commit()
            assert cluster.committed("g", QUEUE) == 20
            assert await consumer.seek_to_begin(QUEUE)
            await until(lambda: len(seen.offsets[QUEUE]) == 45)
            assert await consumer.seek_to_end()
            cluster.fill(1)
            await asyncio.sleep(5)
        assert seen.offsets[QUEUE] == [*range(20), *range(15, 20), *range(20), 20]
        assert seen.offsets[QUEUE._replace(queue_id=1)] == [*range(20), 20]
        assert cluster.committed("g", QUEUE) == 21

    in_cluster(test)


def test_seek_by_time_begins_at_the_first_message_stored_then() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        for at_ms in (100, 200, 300, 300, 400):
            broker.append(0, b"body", stored_at_ms=at_ms)
        async with cluster.consumer("a", listener=seen.listen) as consumer:
            await until(lambda: len(seen.offsets[QUEUE]) == 5)
            assert await consumer.seek_to_time(250, QUEUE)
            await until(lambda: len(seen.offsets[QUEUE]) == 8)
            assert await consumer.seek_to_time(401)
            await asyncio.sleep(5)
        assert seen.offsets[QUEUE] == [0, 1, 2, 3, 4, 2, 3, 4]
        assert cluster.committed("g", QUEUE) == 5

    in_cluster(test)


def test_calls_in_hand_before_a_seek_do_not_move_offset() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        cluster.fill(100)
        seen.slow = asyncio.Event()
        async with cluster.consumer("a", listener=seen.listen) as consumer:
            await until(lambda: bool(seen.offsets[QUEUE]))
            assert await consumer.seek(QUEUE, 50)
            seen.slow.set()
            seen.slow = None
            await until(lambda: 99 in seen.offsets[QUEUE])
            await consumer.commit()
            assert cluster.committed("g", QUEUE) == 100
            assert set(range(50, 100)) <= set(seen.offsets[QUEUE])
            assert all(
                offset >= 50 for _, queue, offset in broker.groups.commits[2:] if queue == QUEUE
            )

    in_cluster(test)


def test_orderly_seek_waits_for_running_call() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        cluster.fill(100)
        seen.slow = asyncio.Event()
        config = replace(FIRST, order_per_queue=True, workers=8)
        async with cluster.consumer("a", config, listener=seen.listen) as consumer:
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
def test_owner_of_a_reset_queue_goes_on_at_the_reset_offset(offset: int, *, tells: bool) -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        cluster.fill(90)
        one, other = (cluster.consumer(host, listener=seen.listen) for host in ("a", "b"))
        async with one, other:
            await other.assigned()
            await until(lambda: len(seen.offsets[QUEUE]) >= 90)
            await asyncio.sleep(6)
            before = len(seen.offsets[QUEUE])
            cluster.fill(10)
            await broker.groups.reset("g", QUEUE, offset, tells=tells)
            # Who is not told learns it from the refusal of what it commits.
            await until(lambda: cluster.committed("g", QUEUE) == 100)
            await asyncio.sleep(6)
            again = seen.offsets[QUEUE][before:]
            assert set(again) >= set(range(offset, 100))
            if tells:
                assert again[-(100 - offset) :] == list(range(offset, 100))
        assert broker.groups.offsets.version("g", TOPIC, 0) == 1
        assert seen.offsets[QUEUE._replace(queue_id=1)] == list(range(100))
        assert cluster.committed("g", QUEUE) == 100

    in_cluster(test)


def test_queue_reset_during_take_over_goes_on_at_reset_offset() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        cluster.fill(20)
        # Nothing is left to be committed that could be refused.
        broker.groups.commit("g", QUEUE, 20)
        for step in range(60):
            seen.offsets.clear()
            async with cluster.consumer(f"host-{step}", listener=seen.listen):
                await asyncio.sleep(step * 0.0003)
                await broker.groups.reset("g", QUEUE, 5)
                await asyncio.sleep(30)
            assert seen.offsets[QUEUE] == [*range(5, 20)], f"reset after {step * 0.3:.1f} ms"
            assert cluster.committed("g", QUEUE) == 20

    in_cluster(test)


def test_reset_during_a_broken_session_is_found_when_it_reopens() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        cluster.fill(90)
        async with cluster.consumer("a", listener=seen.listen):
            await until(lambda: len(seen.offsets[QUEUE]) == 90)
            await asyncio.sleep(6)
            cluster.network.partition("a", "broker-0")
            await broker.groups.reset("g", QUEUE, 30, tells=False)
            await asyncio.sleep(5)
            cluster.network.heal()
            await until(lambda: len(seen.offsets[QUEUE]) == 150)
            await asyncio.sleep(10)
        assert seen.offsets[QUEUE] == [*range(90), *range(30, 90)]
        assert cluster.committed("g", QUEUE) == 90

    in_cluster(test)


def test_resets_of_other_groups_and_queues_move_no_member() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        cluster.fill(20)
        async with cluster.consumer("a", listener=seen.listen):
            await until(lambda: len(seen.offsets[QUEUE]) == 20)
            await broker.groups.reset("another", QUEUE, 0)
            await broker.groups.reset("g", QUEUE._replace(queue_id=7), 0)
            await asyncio.sleep(10)
        assert seen.offsets[QUEUE] == list(range(20))

    in_cluster(test)


def test_seek_outside_ones_own_queues_is_refused_by_name() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        consumer = cluster.consumer("a", listener=seen.listen)
        with pytest.raises(ClosedError, match="not open"):
            await consumer.seek(QUEUE, 1)
        async with consumer:
            await consumer.assigned()
            stranger = QUEUE._replace(queue_id=9)
            refused = pytest.raises(UsageError, match=rf"{stranger} is not assigned")
            with refused:
                consumer.seek(stranger, 1)
            with refused:
                consumer.seek_to_begin(stranger)
            with refused:
                consumer.seek_to_end(QUEUE, stranger)
            with refused:
                consumer.seek_to_time(1, stranger)
            with pytest.raises(UsageError, match="negative"):
                await consumer.seek(QUEUE, -1)
            with pytest.raises(UsageError, match="at_ms"):
                consumer.seek_to_time(cast("int", "noon"))
        assert not broker.groups.offsets.versions.changes

    in_cluster(test)


def test_seek_of_many_queues_leaves_out_one_that_is_revoked_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seek = PushAssignment.seek

    async def seek_and_lose_others(
        owning: PushAssignment, queue: MessageQueue, offset: QueueOffset
    ) -> bool:
        is_committed = await seek(owning, queue, offset)
        await owning.drop([other for other in owning.queues if other != queue])
        return is_committed

    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        cluster.fill(20)
        async with cluster.consumer("a", listener=seen.listen) as consumer:
            await until(lambda: sum(map(len, seen.offsets.values())) == 40)
            monkeypatch.setattr(PushAssignment, "seek", seek_and_lose_others)
            assert await consumer.seek_to_begin()
            await until(lambda: len(seen.offsets[QUEUE]) == 40)

    in_cluster(test)


def test_seek_beyond_the_queue_goes_to_its_end() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        cluster.fill(20)
        async with cluster.consumer("a", listener=seen.listen) as consumer:
            await until(lambda: len(seen.offsets[QUEUE]) == 20)
            await consumer.seek(QUEUE, 500)
            await asyncio.sleep(6)
            assert cluster.committed("g", QUEUE) == 20
            cluster.fill(1)
            await until(lambda: seen.offsets[QUEUE][-1] == 20)

    in_cluster(test)


@pytest.mark.parametrize(("at_ms", "first"), [(None, 2), (EPOCH_MS - 5_000, 4)])
def test_group_that_begins_at_a_time_skips_older_messages(at_ms: int | None, first: int) -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker, seen: Seen) -> None:
        for minutes in (60, 31, 29, 1, 0):
            broker.append(0, b"body", stored_at_ms=EPOCH_MS - minutes * 60_000)
        config = PushConsumerConfig(consume_from=ConsumeFrom.TIMESTAMP, consume_at_ms=at_ms)
        async with cluster.consumer("a", config, listener=seen.listen):
            await until(lambda: 4 in seen.offsets[QUEUE])
        assert seen.offsets[QUEUE] == list(range(first, 5))
        other = QUEUE._replace(queue_id=1)
        assert broker.groups.commits[0] in (("g", QUEUE, first), ("g", other, 0))

    in_cluster(test)
