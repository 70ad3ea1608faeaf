"""Pull consumers in a simulated cluster, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ternmq_consumer.config import ConsumeFrom, PullConsumerConfig
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_model.errors import ClosedError, CorruptRecord, TopicNotFound, Unreachable, UsageError
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC


def consumer_at(
    cluster: ToyCluster, group: str = "", config: PullConsumerConfig | None = None
) -> PullConsumer:
    env = cluster.environment("reader")
    return PullConsumer(group, nameserver=cluster.nameserver, config=config, env=env)


async def read(consumer: PullConsumer, count: int, messages_max: int = 100) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    async with asyncio.timeout(120):
        while len(found) < count:
            found += await consumer.poll(messages_max=messages_max)
    return found


def in_cluster(test: Callable[[ToyCluster], Awaitable[None]], *, queues: int = 4) -> None:
    async def main() -> None:
        async with ToyCluster(brokers=2, queues=queues // 2) as cluster:
            await test(cluster)

    run_in_virtual_time(main())


@pytest.mark.parametrize("messages_max", [1, 7, 10_000])
def test_every_message_of_the_assigned_queues_is_polled_once_and_in_order(
    messages_max: int,
) -> None:
    async def test(cluster: ToyCluster) -> None:
        count = cluster.fill(150)
        async with consumer_at(cluster) as consumer:
            consumer.assign(await consumer.queues(TOPIC))
            assert consumer.assignment() == cluster.queues
            found = await read(consumer, count, messages_max)
            for queue in cluster.queues:
                offsets = [message.queue_offset for message in found if message.queue == queue]
                assert offsets == list(range(150))
                assert consumer.position(queue) == 150
            assert await consumer.poll(timeout_s=5) == []

    in_cluster(test)


def test_reading_ahead_stops_at_the_threshold_and_resumes_with_polling() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(500)
        config = PullConsumerConfig(pull_threshold_messages=60)
        async with consumer_at(cluster, config=config) as consumer:
            consumer.assign(cluster.queues[:1])
            assert len(await consumer.poll(messages_max=1)) == 1
            await asyncio.sleep(60)
            assert cluster.first.sent <= 60 + 15 + 1
            assert len(await read(consumer, 499)) == 499

    in_cluster(test)


def test_seek_goes_anywhere_and_discards_messages_read_ahead() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(100)
        queue = cluster.queues[0]
        cluster.first.min_offsets[queue] = 10
        async with consumer_at(cluster) as consumer:
            consumer.assign([queue])
            assert [m.queue_offset for m in await consumer.poll(messages_max=2)] == [10, 11]
            for offset, expected in ((70, 70), (3, 10), (20, 20)):
                consumer.seek(queue, offset)
                (message,) = await consumer.poll(messages_max=1)
                assert message.queue_offset == expected
            await consumer.seek_to_end()
            assert consumer.position(queue) == 100
            assert await consumer.end_offsets([queue]) == {queue: 100}
            assert await consumer.poll(timeout_s=3) == []
            cluster.append(queue, b"new")
            (message,) = await consumer.poll()
            assert message.body == b"new"
            await consumer.seek_to_begin(queue)
            assert consumer.position(queue) == 10
            assert await consumer.begin_offsets([queue]) == {queue: 10}

    in_cluster(test)


def test_group_resumes_at_its_committed_offset_even_after_seeking_back() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(100)
        queue = cluster.queues[0]
        async with consumer_at(cluster, "g") as consumer:
            assert await consumer.committed(queue) is None
            consumer.assign([queue])
            await consumer.poll(messages_max=40)
            assert await consumer.committed(queue) == 0, "where the group began"
            assert await consumer.commit()
            assert await consumer.committed(queue) == consumer.position(queue)
        async with consumer_at(cluster, "g") as consumer:
            consumer.assign([queue])
            (message,) = await consumer.poll(messages_max=1)
            assert message.queue_offset == cluster.committed("g", queue) > 0
            consumer.seek(queue, 5)
            await consumer.poll(messages_max=1)
            assert await consumer.commit()
        assert cluster.committed("g", queue) == 6
        cluster.first.groups.tells_if_kept = False
        async with consumer_at(cluster, "g") as consumer:
            assert await consumer.committed(queue) == 6, "a broker of an earlier version"

    in_cluster(test)


def test_unknown_position_begins_where_setting_says() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(10)
        config = PullConsumerConfig(consume_from=ConsumeFrom.LAST_OFFSET)
        async with consumer_at(cluster, config=config) as consumer:
            consumer.assign(cluster.queues)
            assert await consumer.poll() == []
            cluster.fill(1)
            assert {m.queue_offset for m in await read(consumer, 4)} == {10}

    in_cluster(test)


@pytest.mark.parametrize("messages_max", [3, 1000])
def test_unwanted_tags_are_skipped(messages_max: int) -> None:
    async def test(cluster: ToyCluster) -> None:
        # "Aa" and "BB" have one hash code: the broker sends both.
        cluster.fill(90, tags=("Aa", "BB", "other"))
        async with consumer_at(cluster) as consumer:
            consumer.assign(cluster.queues, "Aa")
            found = await read(consumer, 120, messages_max)
            assert {message.tags for message in found} == {"Aa"}
            assert await consumer.poll(timeout_s=1, messages_max=messages_max) == []
            assert {consumer.position(queue) for queue in cluster.queues} == {90}

    in_cluster(test)


def test_new_assignment_keeps_positions_and_drops_queues_left_out() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(50)
        first, second = cluster.queues[0], cluster.queues[3]
        async with consumer_at(cluster) as consumer:
            consumer.assign([first])
            before = await consumer.poll(messages_max=10)
            consumer.assign([first, second])
            found = await read(consumer, 100 - len(before))
            assert len({(m.queue, m.queue_offset) for m in before + found}) == 100
            consumer.assign([second])
            cluster.append(first, b"unseen")
            assert await consumer.poll(timeout_s=5) == []
            with pytest.raises(UsageError, match="not assigned"):
                consumer.position(first)

    in_cluster(test)


def test_broken_batch_is_reported_and_read_again() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(100)
        queue = cluster.queues[0]
        async with consumer_at(cluster) as consumer:
            consumer.assign([queue])
            before = await consumer.poll(messages_max=1)
            consumer.seek(queue, 0)
            cluster.first.corrupt_next = True
            with pytest.raises(CorruptRecord):
                await consumer.poll()
            found = await read(consumer, 100)
            assert [m.queue_offset for m in found] == list(range(100))
            assert before[0].body == found[0].body

    in_cluster(test)


def test_lost_connection_loses_no_message_and_repeats_none() -> None:
    async def test(cluster: ToyCluster) -> None:
        found: list[tuple[MessageQueue, int]] = []
        async with consumer_at(cluster) as consumer:
            consumer.assign(cluster.queues)
            for number in range(200):
                cluster.fill(3)
                if number % 7 == 0:
                    cluster.network.cut("reader")
                batch = await consumer.poll(timeout_s=0.05, messages_max=5)
                found += [(m.queue, m.queue_offset) for m in batch]
            rest = await read(consumer, 2400 - len(found))
            found += [(m.queue, m.queue_offset) for m in rest]
        assert len(found) == len(set(found)) == 2400

    in_cluster(test)


def test_position_beyond_the_end_of_a_queue_moves_to_its_end() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(20)
        queue = cluster.queues[0]
        async with consumer_at(cluster, "g") as consumer:
            consumer.assign([queue])
            consumer.seek(queue, 500)
            assert await consumer.poll() == []
            assert consumer.position(queue) == 20
            assert await consumer.commit()
            assert cluster.committed("g", queue) == 20

    in_cluster(test)


def test_misuse_and_absence_have_their_own_errors() -> None:
    async def test(cluster: ToyCluster) -> None:
        async with consumer_at(cluster) as consumer:
            with pytest.raises(UsageError, match="assign"):
                await consumer.poll()
            with pytest.raises(UsageError, match="not a topic"):
                consumer.assign(TOPIC)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="without a group"):
                await consumer.commit()
            with pytest.raises(TopicNotFound):
                await consumer.queues("no_such")
            consumer.assign(cluster.queues)
            with pytest.raises(UsageError, match="negative"):
                consumer.seek(cluster.queues[0], -1)
            with pytest.raises(UsageError, match="messages_max"):
                await consumer.poll(messages_max=0)
        lost = PullConsumer(nameserver="nowhere:1", env=cluster.environment("reader"))
        async with lost:
            with pytest.raises(Unreachable, match="nowhere:1"):
                await lost.queues(TOPIC)

    in_cluster(test)


def test_close_ends_a_poll_that_waits() -> None:
    async def test(cluster: ToyCluster) -> None:
        async with consumer_at(cluster) as consumer:
            consumer.assign(cluster.queues)
            waiting = asyncio.ensure_future(consumer.poll(timeout_s=float("inf")))
            await asyncio.sleep(1)
        for poll in (waiting, consumer.poll()):
            with pytest.raises(ClosedError, match="is closed"):
                await asyncio.wait_for(poll, 1)

    in_cluster(test)


def test_poll_reports_a_deleted_queue_and_starts_its_successor_over() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(50)
        gone, other = cluster.queues[0], cluster.queues[-1]
        broker = cluster.brokers[gone.broker_name]
        async with consumer_at(cluster, "g") as consumer:
            consumer.assign([gone, other])
            await read(consumer, 20, messages_max=10)
            assert await consumer.commit()
            broker.delete_topic()
            with pytest.raises(TopicNotFound, match=f"{gone} is gone"):
                await read(consumer, 100)
            assert consumer.position(gone) is None
            assert await consumer.commit(), "nothing is committed of a queue that is gone"
            with pytest.raises(TopicNotFound):
                await consumer.poll()
            assert await consumer.commit()
            broker.topics[TOPIC] = 2
            for number in range(30):
                cluster.append(gone, b"%d" % number)
            bodies: list[bytes] = []
            while len(bodies) < 30:
                bodies += [
                    message.body for message in await read(consumer, 1) if message.queue == gone
                ]
            assert bodies == [b"%d" % number for number in range(30)]

    in_cluster(test)


def test_refused_commit_is_not_reported_as_committed() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(50)
        queue = cluster.queues[0]
        broker = cluster.brokers[queue.broker_name]
        async with consumer_at(cluster, "g") as consumer:
            consumer.assign([queue])
            await consumer.poll(messages_max=10)
            broker.groups.commit("g", queue, 40)
            assert not await consumer.commit()
            assert not await consumer.commit()
            assert cluster.committed("g", queue) == 40
            await read(consumer, 35)
            assert await consumer.commit()

    in_cluster(test)
