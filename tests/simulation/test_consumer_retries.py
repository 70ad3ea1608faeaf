"""Failed messages on their way back to their brokers, in a simulated cluster."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from ternmq_client.interceptors import ConsumeEvent, ConsumeOutcome
from ternmq_consumer.consume_status import ConsumeStatus, ListenerAnswer, ReconsumeLater
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.toy_broker import ToyBroker
from tests.support.toy_cluster import FIRST, ToyCluster
from tests.support.toy_log import TOPIC


def now_s() -> float:
    return asyncio.get_running_loop().time()


def with_broker(
    test: Callable[[ToyCluster, ToyBroker], Awaitable[None]], *, queues: int = 1
) -> None:
    async def main() -> None:
        async with ToyCluster(queues=queues) as cluster:
            await test(cluster, cluster.first)

    run_in_virtual_time(main())


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_failed_message_is_redelivered_under_its_topic_from_the_retry_queue(kind: str) -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker) -> None:
        seen: list[StoredMessage] = []

        def plain(message: StoredMessage) -> bool:
            seen.append(message)
            return message.reconsume_times == 2

        async def waits(message: StoredMessage) -> bool:
            return plain(message)

        cluster.append(cluster.queues[0], b"body", "a-tag")
        listener = plain if kind == "plain" else waits
        async with cluster.consumer("c1", listener=listener) as consumer:
            await until(lambda: len(seen) == 3)
            await until(lambda: consumer.statistics().in_hand_messages == 0)
            assert consumer.statistics().sent_back == consumer.statistics().failures == 2
            assert MessageQueue("%RETRY%g", "broker-0", 0) in consumer.assignment()
        assert [message.topic for message in seen] == [TOPIC] * 3
        assert [message.queue.topic for message in seen] == [TOPIC, "%RETRY%g", "%RETRY%g"]
        assert [message.reconsume_times for message in seen] == [0, 1, 2]
        assert {message.message_id for message in seen} == {"broker-0-0-0"}
        assert {(message.tags, message.body) for message in seen} == {("a-tag", b"body")}
        assert cluster.committed("g", cluster.queues[0]) == 1
        assert broker.groups.committed("g", MessageQueue("%RETRY%g", "broker-0", 0)) == 2

    with_broker(test)


def test_offset_moves_only_after_the_brokers_confirmation() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker) -> None:
        for _ in range(10):
            cluster.append(cluster.queues[0], b"body")
        broker.groups.is_down = True
        calls: list[tuple[int, int, float]] = []

        def listener(message: StoredMessage) -> bool:
            calls.append((message.queue_offset, message.reconsume_times, now_s()))
            return message.queue_offset != 4 or message.queue.topic != TOPIC

        async with cluster.consumer("c1", listener=listener) as consumer:
            await asyncio.sleep(23)
            await consumer.commit()
            assert cluster.committed("g", cluster.queues[0]) == 4
            # Handed over here meanwhile, every 5 s, with one attempt more each time.
            tries = [(times, at_s) for offset, times, at_s in calls if offset == 4]
            assert [times for times, _ in tries] == [0, 1, 2, 3, 4]
            pauses = [later[1] - earlier[1] for earlier, later in itertools.pairwise(tries)]
            assert pauses == pytest.approx([5] * 4, abs=0.1)
            broker.groups.is_down = False
            await asyncio.sleep(6)
            await consumer.commit()
            assert cluster.committed("g", cluster.queues[0]) == 10
            assert len(broker.groups.sent_back) == 1

    with_broker(test)


def test_failed_messages_of_many_calls_share_few_requests() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker) -> None:
        for number in range(3000):
            cluster.append(cluster.queues[number % 4], b"body")

        def listener(message: StoredMessage) -> bool:
            return message.queue.topic != TOPIC

        async with cluster.consumer("c1", listener=listener) as consumer:
            await until(lambda: len(broker.groups.sent_back) == 3000)
            await until(lambda: consumer.statistics().messages == 6000)
        assert broker.groups.requests < 100

    with_broker(test, queues=4)


def test_listener_answer_sets_the_retry_delay_or_dead_letter() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker) -> None:
        answers: dict[bytes, ListenerAnswer] = {
            b"level 5": ReconsumeLater(5),
            b"later": ConsumeStatus.RECONSUME_LATER,
            b"dead": ConsumeStatus.DEAD_LETTER,
            b"dead, too": ReconsumeLater(-1),
            b"good": ConsumeStatus.SUCCESS,
        }
        for body in answers:
            cluster.append(cluster.queues[0], body)
        times: dict[bytes, list[float]] = {body: [] for body in answers}

        def listener(message: StoredMessage) -> ListenerAnswer:
            times[message.body].append(now_s())
            return None if message.reconsume_times else answers[message.body]

        async with cluster.consumer("c1", listener=listener):
            await asyncio.sleep(100)
        levels = {failed.message_id: failed.delay_level for failed in broker.groups.sent_back}
        assert levels == {
            "broker-0-0-0": 5,
            "broker-0-0-1": 0,
            "broker-0-0-2": -1,
            "broker-0-0-3": -1,
        }
        assert broker.groups.dead == [b"dead", b"dead, too"]
        assert {body: len(when) for body, when in times.items()} == {
            b"level 5": 2,
            b"later": 2,
            b"dead": 1,
            b"dead, too": 1,
            b"good": 1,
        }
        assert times[b"level 5"][1] > times[b"later"][1]

    with_broker(test)


def test_failed_batch_sends_back_only_messages_behind_its_last_good_one() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker) -> None:
        for _ in range(10):
            cluster.append(cluster.queues[0], b"body")

        def listener(batch: Sequence[StoredMessage]) -> ListenerAnswer:
            good = [message.queue_offset < 7 or message.reconsume_times > 0 for message in batch]
            return None if all(good) else ReconsumeLater(finished=good.index(False))

        config = replace(FIRST, batch_messages=10)
        async with cluster.consumer("c1", config, batch_listener=listener):
            await asyncio.sleep(60)
        assert [failed.queue_offset for failed in broker.groups.sent_back] == [7, 8, 9]
        assert cluster.committed("g", cluster.queues[0]) == 10

    with_broker(test)


@pytest.mark.parametrize(("retries_max", "tries"), [(-1, 17), (0, 1), (3, 4)])
def test_message_is_retried_up_to_its_limit_and_then_dead_lettered(
    retries_max: int, tries: int
) -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker) -> None:
        cluster.append(cluster.queues[0], b"bad")
        count = 0

        def listener(message: StoredMessage) -> bool:
            nonlocal count
            count += 1
            return False

        config = replace(FIRST, retries_max=retries_max)
        async with cluster.consumer("c1", config, listener=listener):
            await until(lambda: bool(broker.groups.dead), within_s=40_000)
            await asyncio.sleep(1000)
        assert count == tries
        assert broker.groups.dead == [b"bad"]

    with_broker(test)


@pytest.mark.parametrize("nth", [2, 3, 7])
def test_failing_send_backs_lose_and_skip_no_message(nth: int) -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker) -> None:
        for number in range(400):
            cluster.append(cluster.queues[number % 4], b"%d" % number)
        asked = 0

        def fault(_: object) -> int:
            nonlocal asked
            asked += 1
            return int(asked % nth == 0)

        broker.groups.fault = fault
        finished: set[str] = set()
        failures: set[str] = set()

        async def listener(message: StoredMessage) -> bool:
            await asyncio.sleep(0.001)
            if int(message.body) % 3 == 0 and message.message_id not in failures:
                failures.add(message.message_id)
                return False
            finished.add(message.message_id)
            return True

        async with cluster.consumer("c1", listener=listener) as consumer:
            while len(finished) < 400:
                await asyncio.sleep(0.05)
                await consumer.commit()
                taken_back = {failed.message_id for failed in broker.groups.sent_back}
                for queue in cluster.queues:
                    for place in range(cluster.committed("g", queue)):
                        assert f"broker-0-{queue.queue_id}-{place}" in finished | taken_back
        assert len(failures) == 134
        assert len(broker.groups.sent_back) == 134 - 134 // nth
        assert [cluster.committed("g", queue) for queue in cluster.queues] == [100] * 4

    with_broker(test, queues=4)


def test_hanging_call_is_abandoned_after_15_minutes_and_its_message_retried() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker) -> None:
        for _ in range(20):
            cluster.append(cluster.queues[0], b"body")
        calls: list[tuple[int, int, float]] = []
        hung: list[float] = []

        async def listener(message: StoredMessage) -> bool:
            calls.append((message.queue_offset, message.reconsume_times, now_s()))
            if message.queue_offset == 5 and message.queue.topic == TOPIC:
                await asyncio.sleep(3600)
                hung.append(now_s())
                return False
            return True

        events: list[ConsumeEvent] = []

        class Watch:
            def before_consume(self, event: ConsumeEvent) -> None:
                """Nothing to do before."""

            def after_consume(self, event: ConsumeEvent) -> None:
                events.append(event)

        config = replace(FIRST, workers=2)
        async with cluster.consumer(
            "c1", config, listener=listener, interceptors=[Watch()]
        ) as consumer:
            begin_s = now_s()
            await until(lambda: bool(broker.groups.sent_back), within_s=2000)
            assert 900 <= now_s() - begin_s <= 900 + 2 * 60 + 1
            assert broker.groups.sent_back[0].delay_level == 3
            await until(lambda: len(calls) == 21)
            await consumer.commit()
            assert cluster.committed("g", cluster.queues[0]) == 20
            assert consumer.statistics().timed_out == 1
            await until(lambda: bool(hung), within_s=4000)
            await asyncio.sleep(60)
            # Its late answer asked for the message again, and was of no interest.
            assert len(broker.groups.sent_back) == 1
        assert sorted(offset for offset, times, _ in calls if not times) == list(range(20))
        outcomes = [event.outcome for event in events]
        assert outcomes.count(ConsumeOutcome.TIME_OUT) == 1
        assert outcomes.count(ConsumeOutcome.SUCCESS) == 20

    with_broker(test)


def test_leaving_consumer_waits_for_send_back_answers() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker) -> None:
        cluster.append(cluster.queues[0], b"body")
        called = asyncio.Event()

        def listener(message: StoredMessage) -> bool:
            called.set()
            return False

        async with cluster.consumer("c1", listener=listener):
            await called.wait()
        assert len(broker.groups.sent_back) == 1
        assert cluster.committed("g", cluster.queues[0]) == 1

    with_broker(test)


def test_full_worker_pool_delays_and_never_drops() -> None:
    async def test(cluster: ToyCluster, broker: ToyBroker) -> None:
        for _ in range(500):
            cluster.append(cluster.queues[0], b"body")
        seen: list[int] = []

        async def listener(message: StoredMessage) -> None:
            await asyncio.sleep(1)
            seen.append(message.queue_offset)

        async with cluster.consumer("c1", replace(FIRST, workers=2), listener=listener):
            await until(lambda: len(seen) == 500)
        assert sorted(seen) == list(range(500))

    with_broker(test)
