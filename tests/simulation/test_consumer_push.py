"""Push consumers in a simulated cluster, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.consume_status import ConsumeStatus, ListenerAnswer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import ClosedError, IllegalName, Unreachable, UsageError
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.toy_cluster import ToyCluster
from tests.support.toy_log import TOPIC


def in_cluster(
    test: Callable[[ToyCluster], Awaitable[None]],
    *,
    brokers: int = 1,
    queues: int = 4,
    seed: int = 1,
) -> None:
    async def main() -> None:
        async with ToyCluster(brokers=brokers, queues=queues, seed=seed) as cluster:
            await test(cluster)

    run_in_virtual_time(main())


def take_nothing_back(cluster: ToyCluster) -> None:
    """Let every broker refuse what is sent back."""
    for broker in cluster.brokers.values():
        broker.groups.is_down = True


def ignore(_: object) -> None:
    """A listener with nothing to do."""


def place(message: StoredMessage) -> tuple[MessageQueue, int]:
    return message.queue, message.queue_offset


def test_every_message_of_a_backlog_is_consumed_once_and_committed_on_leaving() -> None:
    async def test(cluster: ToyCluster) -> None:
        count = cluster.fill(300)
        seen: list[StoredMessage] = []
        async with cluster.consumer("c1", listener=seen.append) as consumer:
            await consumer.assigned()
            assert consumer.assignment() == cluster.queues
            await until(lambda: len(seen) == count)
        assert len(set(map(place, seen))) == count
        assert [cluster.committed("g", queue) for queue in cluster.queues] == [300] * 8

    in_cluster(test, brokers=2)


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_batch_listener_gets_batches_of_one_queue_up_to_its_size(kind: str) -> None:
    async def test(cluster: ToyCluster) -> None:
        count = cluster.fill(200)
        batches: list[Sequence[StoredMessage]] = []

        def plain(batch: Sequence[StoredMessage]) -> None:
            batches.append(list(batch))

        async def waits(batch: Sequence[StoredMessage]) -> bool:
            batches.append(list(batch))
            await asyncio.sleep(0.1)
            return True

        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, batch_messages=50)
        listener = plain if kind == "plain" else waits
        async with cluster.consumer("c1", config, batch_listener=listener) as consumer:
            await until(lambda: sum(map(len, batches)) == count)
            assert consumer.statistics().failures == 0
        assert max(map(len, batches)) <= 50
        for batch in batches:
            assert len({message.queue for message in batch}) == 1
        assert len({place(message) for batch in batches for message in batch}) == count

    in_cluster(test)


def test_new_group_begins_with_messages_after_its_first_assignment() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(10)
        seen: list[StoredMessage] = []
        config = PushConsumerConfig()
        async with cluster.consumer("c1", config, listener=seen.append) as consumer:
            await consumer.assigned()
            assert all(cluster.committed("g", queue) == 10 for queue in cluster.queues)
        # Nobody is there, and the group has begun: these may not be skipped.
        cluster.fill(5)
        async with cluster.consumer("c2", config, listener=seen.append) as consumer:
            await until(lambda: len(seen) == 20)
        assert {message.queue_offset for message in seen} == set(range(10, 15))

    in_cluster(test)


def test_failed_send_back_is_redelivered_and_holds_the_offset() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(100)
        take_nothing_back(cluster)
        calls: list[tuple[MessageQueue, int]] = []
        queue = cluster.queues[0]

        def listener(message: StoredMessage) -> ListenerAnswer:
            calls.append(place(message))
            attempts = calls.count(place(message))
            if message.queue == queue and message.queue_offset == 7 and attempts < 3:
                if attempts == 1:
                    raise ValueError("not now")
                return ConsumeStatus.RECONSUME_LATER
            return None

        async with cluster.consumer("c1", listener=listener) as consumer:
            await until(lambda: len(calls) == 400)
            await consumer.commit()
            assert cluster.committed("g", queue) == 7
            await until(lambda: len(calls) == 402)
            await until(lambda: consumer.statistics().messages == 400)
            await consumer.commit()
            assert cluster.committed("g", queue) == 100
            assert consumer.statistics().failures == 2
        assert calls.count((queue, 7)) == 3

    in_cluster(test)


def test_orderly_queue_has_one_call_at_a_time_even_after_failure() -> None:
    async def test(cluster: ToyCluster) -> None:
        count = cluster.fill(100)
        running: set[MessageQueue] = set()
        done: dict[MessageQueue, list[int]] = {}
        failures = {(queue, 30) for queue in cluster.queues}

        async def listener(message: StoredMessage) -> bool:
            assert message.queue not in running
            running.add(message.queue)
            await asyncio.sleep(0.001)
            running.remove(message.queue)
            if place(message) in failures:
                failures.remove(place(message))
                return False
            done.setdefault(message.queue, []).append(message.queue_offset)
            return True

        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, order_per_queue=True)
        async with cluster.consumer("c1", config, listener=listener):
            await until(lambda: sum(map(len, done.values())) == count)
        assert list(done.values()) == [list(range(100))] * 4
        assert not failures

    in_cluster(test)


def test_slow_listener_stops_reading_at_the_threshold() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(1000)
        broker = cluster.first
        gate = asyncio.Event()
        seen: list[StoredMessage] = []

        async def listener(message: StoredMessage) -> None:
            await gate.wait()
            seen.append(message)

        config = PushConsumerConfig(
            consume_from=ConsumeFrom.FIRST_OFFSET, pull_threshold_messages=100
        )
        async with cluster.consumer("c1", config, listener=listener) as consumer:
            await asyncio.sleep(60)
            assert broker.sent == 100 * 4
            assert consumer.statistics().in_hand_messages == 400
            gate.set()
            await until(lambda: len(seen) == 4000)

    in_cluster(test)


def test_unfinished_message_bounds_how_far_its_queue_is_read() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(3000)
        take_nothing_back(cluster)
        stuck = cluster.queues[0]
        seen: set[tuple[MessageQueue, int]] = set()

        def listener(message: StoredMessage) -> bool:
            seen.add(place(message))
            return place(message) != (stuck, 5)

        config = PushConsumerConfig(
            consume_from=ConsumeFrom.FIRST_OFFSET, pull_threshold_messages=100, span_max=500
        )
        async with cluster.consumer("c1", config, listener=listener):
            await until(lambda: len(seen) >= 3 * 3000)
            await asyncio.sleep(60)
        assert cluster.committed("g", stuck) == 5
        furthest = max(offset for queue, offset in seen if queue == stuck)
        assert 500 <= furthest <= 5 + 500 + 2 * 100
        assert len(seen) == 3 * 3000 + furthest + 1

    in_cluster(test)


def test_tags_are_filtered_by_name_and_not_only_by_hash() -> None:
    async def test(cluster: ToyCluster) -> None:
        # "Aa" and "BB" have one hash code: the broker sends both.
        cluster.fill(300, tags=("Aa", "BB", "other"))
        seen: list[StoredMessage] = []
        async with cluster.consumer("c1", topics={TOPIC: "Aa"}, listener=seen.append) as consumer:
            await until(lambda: len(seen) == 400)
            await until(lambda: consumer.statistics().in_hand_messages == 0)
            assert {message.tags for message in seen} == {"Aa"}
            await consumer.commit()
            assert [cluster.committed("g", queue) for queue in cluster.queues] == [300] * 4
        assert cluster.first.sent == 800

    in_cluster(test)


def test_unwanted_messages_beyond_credit_do_not_stop_a_queue() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(500, tags=("BB",))
        for queue in cluster.queues:
            cluster.append(queue, b"last", "Aa")
        seen: list[StoredMessage] = []
        config = PushConsumerConfig(
            consume_from=ConsumeFrom.FIRST_OFFSET, pull_threshold_messages=40
        )
        async with cluster.consumer("c1", config, topics={TOPIC: "Aa"}, listener=seen.append):
            await until(lambda: len(seen) == 4)

    in_cluster(test)


def test_iterated_message_is_finished_when_the_next_is_requested() -> None:
    async def test(cluster: ToyCluster) -> None:
        queue = cluster.queues[0]
        for _ in range(20):
            cluster.append(queue, b"body")
        async with cluster.consumer("c1") as consumer:
            async for message in consumer:
                if message.queue_offset == 12:
                    break
        assert cluster.committed("g", queue) == 12

        async with cluster.consumer("c2") as consumer:
            offsets: list[int] = []
            async for message in consumer:
                offsets.append(message.queue_offset)
                if message.queue_offset == 15:
                    await consumer.commit()
                    break
            assert cluster.committed("g", queue) == 16
            async for message in consumer:
                assert message.queue_offset == 16
                break
        assert offsets == [12, 13, 14, 15]
        assert cluster.committed("g", queue) == 16

    in_cluster(test, queues=1)


def test_iterator_cancelled_while_waiting_can_go_on() -> None:
    async def test(cluster: ToyCluster) -> None:
        async with cluster.consumer("c1") as consumer:
            iterator = aiter(consumer)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(30):
                    await anext(iterator)
            cluster.fill(1)
            assert (await anext(iterator)).queue_offset == 0

    in_cluster(test, queues=1)


def test_forward_correction_resumes_at_the_first_remaining_message() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(100)
        broker = cluster.first
        for queue in cluster.queues:
            broker.groups.commit("g", queue, 10)
            broker.min_offsets[queue] = 60
        seen: list[StoredMessage] = []
        async with cluster.consumer("c1", listener=seen.append):
            await until(lambda: len(seen) == 160)
        assert min(message.queue_offset for message in seen) == 60
        assert [cluster.committed("g", queue) for queue in cluster.queues] == [100] * 4

    in_cluster(test)


def test_backward_correction_commits_the_lower_offset() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(50)
        for queue in cluster.queues:
            cluster.first.groups.commit("g", queue, 900)
        seen: list[StoredMessage] = []
        async with cluster.consumer("c1", listener=seen.append) as consumer:
            await asyncio.sleep(10)
            assert seen == []
            assert [cluster.committed("g", queue) for queue in cluster.queues] == [50] * 4
            cluster.fill(5)
            await until(lambda: len(seen) == 20)
            assert consumer.assignment() == cluster.queues
        assert [cluster.committed("g", queue) for queue in cluster.queues] == [55] * 4

    in_cluster(test)


def test_refused_subscription_is_retried_until_accepted() -> None:
    async def test(cluster: ToyCluster) -> None:
        count = cluster.fill(10)
        broker = cluster.first
        broker.refusal = ResponseCode.NO_PERMISSION
        seen: list[StoredMessage] = []
        async with cluster.consumer("c1", listener=seen.append):
            await asyncio.sleep(60)
            assert not seen
            assert 4 * 6 <= broker.subscribes <= 4 * 100
            broker.refusal = 0
            await until(lambda: len(seen) == count)

    in_cluster(test)


def test_corrupt_records_never_reach_the_listener_and_are_read_again() -> None:
    async def test(cluster: ToyCluster) -> None:
        count = cluster.fill(100)
        cluster.first.corrupt_next = True
        seen: list[StoredMessage] = []
        async with cluster.consumer("c1", listener=seen.append):
            await until(lambda: len(seen) == count)
        assert {message.body for message in seen} == {b"body"}
        assert len(set(map(place, seen))) == count

    in_cluster(test)


def test_listener_call_outliving_its_consumer_is_not_counted() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(10)

        async def listener(message: StoredMessage) -> None:
            await asyncio.sleep(0 if message.queue_offset < 5 else 10_000)

        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, workers=4)
        async with cluster.consumer("c1", config, listener=listener) as consumer:
            await until(lambda: consumer.statistics().in_hand_messages > 0)
            await asyncio.sleep(5)
        assert all(cluster.committed("g", queue) <= 5 for queue in cluster.queues)

    in_cluster(test)


def test_crash_inside_the_consumer_is_raised_by_the_block() -> None:
    def broken(*_: object) -> Sequence[MessageQueue]:
        raise LookupError("a strategy with a mistake")

    async def test(cluster: ToyCluster) -> None:
        config = PushConsumerConfig(allocate=broken)
        with pytest.raises(ExceptionGroup) as raised:
            async with cluster.consumer("c1", config, listener=ignore):
                await asyncio.sleep(1000)
        assert raised.group_contains(LookupError)

    in_cluster(test)


def test_statistics_show_rates_of_the_last_seconds() -> None:
    async def test(cluster: ToyCluster) -> None:
        async with cluster.consumer("c1", listener=ignore) as consumer:
            for _ in range(200):
                cluster.fill(1)
                await asyncio.sleep(0.1)
            statistics = consumer.statistics()
            assert 36 <= statistics.messages_per_s <= 44
            await asyncio.sleep(20)
            assert consumer.statistics().messages_per_s == 0
            assert consumer.statistics().messages == 800

    in_cluster(test)


def test_bad_arguments_are_named_before_anything_is_dialled() -> None:
    with pytest.raises(IllegalName, match="bad group"):
        PushConsumer("bad group", TOPIC)
    with pytest.raises(IllegalName, match="bad topic"):
        PushConsumer("g", "bad topic")
    with pytest.raises(UsageError, match="at least one"):
        PushConsumer("g", {})
    with pytest.raises(UsageError, match="not both"):
        PushConsumer("g", TOPIC, listener=ignore, batch_listener=ignore)


def test_unreachable_nameserver_fails_entering_and_is_named() -> None:
    async def test(cluster: ToyCluster) -> None:
        consumer = PushConsumer("g", TOPIC, nameserver="nowhere:1", env=cluster.environment("c1"))
        with pytest.raises(Unreachable, match="nowhere:1"):
            async with consumer:
                raise AssertionError("was entered")

    in_cluster(test)


def test_consumer_of_an_unknown_topic_waits_for_it() -> None:
    async def test(cluster: ToyCluster) -> None:
        consumer = cluster.consumer("c1", topics="no_such", listener=ignore)
        async with consumer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(60):
                    await consumer.assigned()
            assert consumer.assignment() == []

    in_cluster(test)


@pytest.mark.parametrize("away_s", [0.0, 30.0])
def test_recreated_topic_is_consumed_from_its_beginning(
    away_s: float,
) -> None:
    async def test(cluster: ToyCluster) -> None:
        broker = cluster.first
        take_nothing_back(cluster)
        cluster.fill(5)
        seen: list[bytes] = []

        def listen(message: StoredMessage) -> bool:
            seen.append(message.body)
            return message.body != b"stuck"

        cluster.append(cluster.queues[0], b"stuck")
        async with cluster.consumer("c1", listener=listen) as consumer:
            await until(lambda: len(seen) >= 21)
            await asyncio.sleep(7)  # the old topic's offsets are committed
            broker.delete_topic()
            await asyncio.sleep(away_s)
            broker.topics[TOPIC] = 4
            sent = [b"%d" % number for number in range(80)]
            for number, body in enumerate(sent):
                cluster.append(cluster.queues[number % 4], body)
                await asyncio.sleep(0.01)
            await until(lambda: set(sent) <= set(seen))
            assert consumer.assignment() == cluster.queues
            stuck = seen.count(b"stuck")
            await asyncio.sleep(20)
            assert seen.count(b"stuck") == stuck, "nothing of the old topic comes again"
        assert [cluster.committed("g", queue) for queue in cluster.queues] == [20] * 4

    in_cluster(test)


def test_consumer_outside_its_block_refuses_instead_of_waiting() -> None:
    async def test(cluster: ToyCluster) -> None:
        consumer = cluster.consumer("c1", PushConsumerConfig())
        with pytest.raises(ClosedError):
            await consumer.assigned()
        with pytest.raises(ClosedError):
            aiter(consumer)
        async with consumer:
            pass
        with pytest.raises(ClosedError):
            aiter(consumer)

    in_cluster(test)


def test_message_whose_answer_is_none_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(1)
        take_nothing_back(cluster)
        seen: list[StoredMessage] = []

        def listener(message: StoredMessage) -> Any:
            seen.append(message)
            return "done" if seen.index(message) == len(seen) - 1 else None

        config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        async with cluster.consumer("c1", config, listener=listener):
            await until(lambda: len(seen) == 2 * len(set(map(place, seen))) >= 2)
        assert "answered 'done': must be None, True or ConsumeStatus.SUCCESS" in caplog.text

    in_cluster(test)
