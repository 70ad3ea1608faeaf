"""Clients that are closed while brokers hang or listeners run: duration and log lines."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from ternmq_client.config import ClientConfig
from ternmq_consumer.config import PullConsumerConfig
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_model.errors import RequestTimedOut
from ternmq_model.message import Message
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.toy_cluster import FIRST, ToyCluster
from tests.support.toy_log import TOPIC
from tests.support.toy_sending import Answer

GOODBYE_S = 1.0


def in_cluster(test: Callable[[ToyCluster], Awaitable[None]], *, queues: int = 2) -> None:
    async def main() -> None:
        async with ToyCluster(queues=queues) as cluster:
            await test(cluster)

    run_in_virtual_time(main())


def now_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("timeout_s", [2.0, 60.0])
def test_messages_without_an_answer_are_one_line_of_the_log(
    timeout_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(cluster: ToyCluster) -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: reported.append(told))
        cluster.first.sending.answer = lambda _: Answer(is_silent=True)
        async with cluster.producer() as producer:
            for _ in range(100):
                await producer.enqueue(Message(TOPIC, b"x"), timeout_s=timeout_s)
        gc.collect()
        assert reported == []
        lines = [line for line in caplog.messages if "without all answers" in line]
        assert lines == [
            "producer closed without all answers group=senders messages=100 maybe_stored=100"
        ]

    in_cluster(test)


def test_answers_that_come_in_time_are_no_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.first.sending.answer = lambda _: Answer(delay_s=1)
        async with cluster.producer() as producer:
            future = await producer.enqueue(Message(TOPIC, b"x"), timeout_s=0.5)
            with pytest.raises(RequestTimedOut):
                await future
            await producer.enqueue(Message(TOPIC, b"x"))
        assert "without" not in caplog.text

    in_cluster(test)


def test_cancelled_send_many_says_how_many_have_no_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.first.sending.answer = lambda _: Answer(is_silent=True)
        async with cluster.producer() as producer:
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await producer.send_many([Message(TOPIC, b"x")] * 1000)
        assert "call=send_many group=senders messages=1000 unanswered=1000" in (caplog.text)

    in_cluster(test)


@pytest.mark.parametrize("order_per_queue", [False, True])
def test_brokers_that_hang_cost_a_leaving_consumer_one_request_and_the_goodbye(
    order_per_queue: bool,
) -> None:
    async def test(cluster: ToyCluster) -> None:
        count = cluster.fill(5)
        seen: list[StoredMessage] = []
        config = replace(FIRST, order_per_queue=order_per_queue)

        async def consume() -> None:
            async with cluster.consumer("c1", config, listener=seen.append):
                await until(lambda: len(seen) == count)
                cluster.network.partition("c1", "broker-0", one_way=True)
                await asyncio.Event().wait()

        task = asyncio.ensure_future(consume())
        await asyncio.sleep(1)
        began_s = now_s()
        task.cancel()
        await asyncio.wait((task,))
        assert now_s() - began_s <= ClientConfig().request_timeout_s + GOODBYE_S + 0.1

    in_cluster(test)


def test_cancellation_that_a_listener_catches_ends_its_worker() -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(5)
        seen: list[int] = []

        async def listener(message: StoredMessage) -> None:
            seen.append(message.queue_offset)
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        config = replace(FIRST, close_wait_s=2, workers=1)
        async with cluster.consumer("c1", config, listener=listener):
            await until(lambda: seen == [0])
            began_s = now_s()
        assert now_s() - began_s <= 2.1
        assert seen == [0]
        assert cluster.committed("g", cluster.queues[0]) == 1, "it has returned"

    in_cluster(test, queues=1)


def test_listener_that_goes_on_after_its_cancellation_is_abandoned_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(cluster: ToyCluster) -> None:
        cluster.fill(1)
        is_wanted, began = True, asyncio.Event()

        async def stubborn(_: StoredMessage) -> None:
            began.set()
            while is_wanted:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)

        async with cluster.consumer("c1", replace(FIRST, close_wait_s=2), listener=stubborn):
            await began.wait()
            began_s = now_s()
        assert now_s() - began_s <= 2 + 1 + 0.1
        assert "listener goes on after it was cancelled listener=" in caplog.text
        assert ".stubborn calls=1" in caplog.text
        assert cluster.committed("g", cluster.queues[0]) == 0
        is_wanted = False
        await asyncio.sleep(61)

    in_cluster(test, queues=1)


def test_finished_messages_of_a_queue_that_just_goes_are_committed() -> None:
    async def test(cluster: ToyCluster) -> None:
        seen: list[StoredMessage] = []
        is_held = asyncio.Event()

        async def listener(message: StoredMessage) -> None:
            seen.append(message)
            if message.queue_offset == 5:
                await is_held.wait()

        async def consume() -> None:
            config = replace(FIRST, drop_wait_s=60, commit_s=600)
            async with cluster.consumer("c1", config, listener=listener):
                await asyncio.Event().wait()

        task = asyncio.ensure_future(consume())
        cluster.fill(6)
        await until(lambda: len(seen) == 12)
        async with cluster.consumer("c2"):
            await asyncio.sleep(5)  # the first one gives a queue away, and waits for its call
            task.cancel()
            is_held.set()
            await asyncio.wait((task,))
            assert [cluster.committed("g", queue) for queue in cluster.queues] == [6, 6]

    in_cluster(test)


def test_pull_consumer_without_a_callback_blames_none(caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: ToyCluster) -> None:
        count = cluster.fill(5)
        consumer = PullConsumer(
            "g",
            nameserver=cluster.nameserver,
            config=PullConsumerConfig(auto_commit=True, consume_from=FIRST.consume_from),
            client=ClientConfig(request_timeout_s=20),
            env=cluster.environment("c1"),
        )
        async with consumer:
            await consumer.subscribe(TOPIC)
            found = 0
            while found < count:
                found += len(await consumer.poll())
            await consumer.poll(timeout_s=0)
            cluster.network.partition("c1", "broker-0", one_way=True)
        assert "callback outlives" not in caplog.text
        assert "brokers do not answer a consumer that leaves group=g" in caplog.text

    in_cluster(test)
