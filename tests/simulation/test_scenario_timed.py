"""Timed messages come in their time, never early, whatever breaks."""

import asyncio
from typing import Any, Final

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_producer.producer import Producer
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.examples import seeds
from tests.support.history import GroupRules
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

TOPIC: Final = "orders"
GROUP: Final = "readers"
SEEDS = seeds(6, soak=1000)
LATE_MS: Final = 300


def consumer(cluster: SimulatedCluster) -> PushConsumer:
    return PushConsumer(
        GROUP,
        TOPIC,
        listener=cluster.listener(GROUP),
        nameserver=NAMESERVER,
        config=PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET),
        env=cluster.environment("consumer"),
    )


async def send_timed(cluster: SimulatedCluster, producer: Producer, after_ms: int) -> None:
    """Send a message for a time, or for some time after it is stored."""
    due_ms = cluster.now_ms() + after_ms
    told: dict[str, Any] = (
        {"deliver_at_ms": due_ms}
        if cluster.random.random() < 0.5
        else {"deliver_after_ms": after_ms}
    )
    await cluster.send(producer, TOPIC, not_before_ms=due_ms, **told)


def test_timed_messages_are_on_time_without_faults() -> None:
    async def main() -> None:
        async with simulated_cluster(1, brokers=["a"]) as cluster, cluster.producer() as producer:
            await cluster.put_topic(TOPIC)
            async with consumer(cluster):
                await asyncio.sleep(30)  # the consumer has its queues
                await asyncio.gather(
                    *(
                        send_timed(cluster, producer, cluster.random.randrange(1, 60_000))
                        for _ in range(500)
                    )
                )
                await cluster.consumed(GROUP, timeout_s=70)
            await cluster.scan(TOPIC)
            cluster.history.check([GroupRules(GROUP, frozenset({TOPIC}), redeliveries_max=0)])
            assert len(cluster.history.deliveries) == 500
            for each in cluster.history.deliveries:
                due_ms = cluster.history.sent[each.message_id].not_before_ms
                assert each.at_ms - due_ms < LATE_MS

    run_in_virtual_time(main())


@pytest.mark.parametrize("seed", SEEDS)
def test_timed_messages_are_never_lost_or_early_while_brokers_die(seed: int) -> None:
    async def main() -> None:
        async with simulated_cluster(seed) as cluster, cluster.producer() as producer:
            cluster.history.stored_twice_allowed = True  # at two brokers, by its producer
            trouble = cluster.trouble(8, every_s=12)
            tasks: list[asyncio.Task[None]] = [cluster.tasks.spawn(trouble, "trouble")]
            async with consumer(cluster):
                for _ in range(200):
                    after_ms = cluster.random.choice([50, 500, 5_000, 30_000, 60_000])
                    after_ms += cluster.random.randrange(after_ms)
                    sending = send_timed(cluster, producer, after_ms)
                    tasks.append(cluster.tasks.spawn(sending, "send"))
                    await asyncio.sleep(cluster.random.random() * 0.5)
                await asyncio.wait(tasks)
                await cluster.consumed(GROUP, timeout_s=300)
            await cluster.scan(TOPIC)
            cluster.history.check_once_at_each_broker()
            cluster.history.check([GroupRules(GROUP, frozenset({TOPIC}))], seed=seed)

    run_in_virtual_time(main())
