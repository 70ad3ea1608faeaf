"""Delayed messages come in their time, never early, whatever breaks."""

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
from tests.support.slow_jobs import slow_jobs

TOPIC: Final = "orders"
GROUP: Final = "readers"
SEEDS = seeds(4, soak=1000)
LEVELS_S: Final = (1, 5, 10, 30, *range(60, 660, 60), 1200, 1800, 3600, 7200)
LATE_S: Final = 2.0
"""How late a message may be when nothing breaks."""


def consumer(cluster: SimulatedCluster) -> PushConsumer:
    return PushConsumer(
        GROUP,
        TOPIC,
        listener=cluster.listener(GROUP),
        nameserver=NAMESERVER,
        config=PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET),
        env=cluster.environment("consumer"),
    )


async def send_level(cluster: SimulatedCluster, producer: Producer, level: int) -> None:
    """Send a message of a delay level; not before is counted from the moment before the send."""
    due_ms = cluster.now_ms() + LEVELS_S[level - 1] * 1000
    await cluster.send(producer, TOPIC, not_before_ms=due_ms, delay_level=level)


async def send_timed(
    cluster: SimulatedCluster, producer: Producer, after_ms: int, *, is_absolute: bool
) -> None:
    """Send a message that is to be delivered after some time."""
    due_ms = cluster.now_ms() + after_ms
    fields: dict[str, Any] = (
        {"deliver_at_ms": due_ms} if is_absolute else {"deliver_after_ms": after_ms}
    )
    await cluster.send(producer, TOPIC, not_before_ms=due_ms, **fields)


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_timed_messages_days_ahead_survive_an_absent_broker(ending: str) -> None:
    day_s = 86_400

    async def main() -> None:
        async with simulated_cluster(1, brokers=["a"]) as cluster:
            async with cluster.producer() as producer:
                for after_ms in (1, 99, 12_345, 200_000, day_s * 1000, 3 * day_s * 1000 - 5000):
                    await send_timed(cluster, producer, after_ms, is_absolute=after_ms % 2 == 1)
            for hour in (24, 72):
                await asyncio.sleep(250)
                if ending == "stop":
                    await cluster.stop("a")
                else:
                    cluster.kill("a")
                await asyncio.sleep(hour * 3600 - 100 - asyncio.get_running_loop().time())
                await cluster.start("a")
            await asyncio.sleep(200)
            await cluster.scan(TOPIC)
            cluster.history.check()
            assert len(cluster.history.lying) == 6
            for each in cluster.history.lying:
                due_ms = cluster.history.sent[each.message_id].not_before_ms
                assert each.stored_at_ms - due_ms < 500

    run_in_virtual_time(main())


def test_every_delay_level_is_on_time_without_faults() -> None:
    async def main() -> None:
        async with simulated_cluster(1, brokers=["a"]) as cluster, cluster.producer() as producer:
            async with consumer(cluster):
                for level in range(1, 19):
                    await send_level(cluster, producer, level)
                await asyncio.sleep(100)
                with slow_jobs():
                    await cluster.consumed(GROUP, timeout_s=7300)
            await cluster.scan(TOPIC)
            rules = GroupRules(GROUP, frozenset({TOPIC}), redeliveries_max=0)
            cluster.history.check([rules])
            assert len(cluster.history.deliveries) == 18
            for each in cluster.history.deliveries:
                due_ms = cluster.history.sent[each.message_id].not_before_ms
                assert each.at_ms - due_ms < LATE_S * 1000

    run_in_virtual_time(main())


@pytest.mark.parametrize("seed", SEEDS)
def test_delayed_messages_are_never_lost_or_early_while_brokers_die(seed: int) -> None:
    async def main() -> None:
        async with simulated_cluster(seed) as cluster, cluster.producer() as producer:
            cluster.history.stored_twice_allowed = True  # at two brokers, by its producer
            trouble = cluster.trouble(8, every_s=15)
            tasks: list[asyncio.Task[None]] = [cluster.tasks.spawn(trouble, "trouble")]
            async with consumer(cluster):
                for _ in range(150):
                    level = cluster.random.choice([1, 2, 3, 4, 5])
                    tasks.append(cluster.tasks.spawn(send_level(cluster, producer, level), "send"))
                    await asyncio.sleep(cluster.random.random() * 0.5)
                await asyncio.wait(tasks)
                await cluster.consumed(GROUP, timeout_s=300)
            await cluster.scan(TOPIC)
            cluster.history.check_once_at_each_broker()
            cluster.history.check([GroupRules(GROUP, frozenset({TOPIC}))], seed=seed)

    run_in_virtual_time(main())
