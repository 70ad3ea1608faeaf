"""How many tries a dead letter tells of: as many as listener calls with its message."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.consume_status import ConsumeStatus
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.route import TopicConfig
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time, until
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

ORDERLY = PushConsumerConfig(
    consume_from=ConsumeFrom.FIRST_OFFSET, order_per_queue=True, retries_max=5, batch_messages=2
)
CONCURRENT = replace(ORDERLY, order_per_queue=False)


async def send_three(cluster: SimulatedCluster) -> None:
    """Send three messages to a topic of one queue."""
    admin = AdminClient(nameserver=NAMESERVER, env=cluster.environment("tool"))
    async with cluster.producer() as producer, admin:
        await admin.create_topic(TopicConfig("orders", 1, 1))
        for _ in range(3):
            await cluster.send(producer, "orders", key="")


async def tries_told(cluster: SimulatedCluster) -> dict[bytes, int]:
    """Return the tries of each dead letter, once there are three."""

    async def have_died() -> bool:
        return len(await cluster.records("%DLQ%G")) >= 3

    await until(have_died, within_s=3600)
    letters = [message for _, message in await cluster.records("%DLQ%G")]
    assert len(letters) == 3
    return {message.body: message.reconsume_times for message in letters}


def consumer(
    cluster: SimulatedCluster, config: PushConsumerConfig, host: str = "consumer", **listeners: Any
) -> PushConsumer:
    return PushConsumer(
        "G",
        "orders",
        nameserver=NAMESERVER,
        config=config,
        env=cluster.environment(host),
        **listeners,
    )


@pytest.mark.parametrize("config", [ORDERLY, CONCURRENT])
def test_dead_letter_tells_of_every_listener_call(config: PushConsumerConfig) -> None:
    async def main() -> None:
        async with simulated_cluster(1, brokers=["a"]) as cluster:
            await send_three(cluster)
            calls: Counter[bytes] = Counter()

            def listener(message: StoredMessage) -> ConsumeStatus:
                calls[message.body] += 1
                assert message.reconsume_times == calls[message.body] - 1
                if len(calls) == 2 and calls[message.body] == 2:
                    return ConsumeStatus.DEAD_LETTER
                return ConsumeStatus.RECONSUME_LATER

            async with consumer(cluster, config, listener=listener):
                assert await tries_told(cluster) == calls
            assert max(calls.values()) == 6

    run_in_virtual_time(main())


@pytest.mark.parametrize("config", [ORDERLY, CONCURRENT])
def test_dead_letter_tells_of_every_batch_listener_call(config: PushConsumerConfig) -> None:
    async def main() -> None:
        async with simulated_cluster(1, brokers=["a"]) as cluster:
            await send_three(cluster)
            calls: Counter[bytes] = Counter()

            def batch_listener(messages: Sequence[StoredMessage]) -> bool:
                calls.update(message.body for message in messages)
                return False

            async with consumer(cluster, config, batch_listener=batch_listener):
                assert await tries_told(cluster) == calls
            assert set(calls.values()) == {6}

    run_in_virtual_time(main())


def test_orderly_dead_letter_does_not_tell_of_calls_at_a_member_before() -> None:
    async def main() -> None:
        async with simulated_cluster(1, brokers=["a"]) as cluster:
            await send_three(cluster)
            calls: Counter[str] = Counter()

            def listener_of(name: str) -> Any:
                def listener(_: StoredMessage) -> bool:
                    calls[name] += 1
                    return False

                return listener

            async with consumer(cluster, ORDERLY, "first", listener=listener_of("first")):
                await until(lambda: calls["first"] == 3)
            async with consumer(cluster, ORDERLY, "second", listener=listener_of("second")):
                assert set((await tries_told(cluster)).values()) == {6}
            assert calls["second"] == 18

    run_in_virtual_time(main())


def test_orderly_dead_letter_tells_of_calls_before_the_queue_was_lost() -> None:
    async def main() -> None:
        async with simulated_cluster(1, brokers=["a"]) as cluster:
            await send_three(cluster)
            calls: Counter[bytes] = Counter()

            def listener(message: StoredMessage) -> bool:
                assert message.reconsume_times == calls[message.body]
                calls[message.body] += 1
                return False

            async with consumer(cluster, ORDERLY, listener=listener):
                for times in (3, 5):
                    while max(calls.values(), default=0) < times:
                        await asyncio.sleep(0.1)
                    cluster.kill("a")
                    await cluster.start("a")
                assert await tries_told(cluster) == calls
            assert min(calls.values()) == 6
            assert max(calls.values()) <= 8, "a token that had become stale sent nothing back"

    run_in_virtual_time(main())
