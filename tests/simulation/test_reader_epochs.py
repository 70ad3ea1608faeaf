"""Live readers of a broker whose log has lost its end: nothing of what comes is passed over."""

import asyncio
from dataclasses import replace

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.pull import PullConsumer
from ternmq_consumer.push import PushConsumer
from ternmq_store.config import FlushMode
from tests.support.history import Outcome
from tests.support.simulated_cluster import (
    CLUSTER_STORE,
    NAMESERVER,
    SimulatedCluster,
    simulated_cluster,
)
from tests.support.virtual_time import run_in_virtual_time

RARELY_FLUSHED = replace(
    CLUSTER_STORE, flush_interval_ms=5_000, flush_thorough_interval_ms=60_000, flush_least_pages=16
)
FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


async def send(cluster: SimulatedCluster, count: int) -> set[str]:
    """Send messages; return the ids of those that were acknowledged."""
    acknowledged: set[str] = set()
    async with cluster.producer() as producer:
        for _ in range(count):
            message_id = cluster.next_id()
            await cluster.send(producer, "orders", message_id)
            if cluster.history.sent[message_id].outcome is Outcome.STORED:
                acknowledged.add(message_id)
    return acknowledged


@pytest.mark.parametrize("seed", range(6))
def test_live_consumer_reads_what_replaces_lost_messages(seed: int) -> None:
    async def main() -> None:
        async with simulated_cluster(
            seed, brokers=["a"], mode=FlushMode.ASYNC, store=RARELY_FLUSHED
        ) as cluster:
            await cluster.put_topic("orders", 2)
            consumer = PushConsumer(
                "readers",
                "orders",
                nameserver=NAMESERVER,
                env=cluster.environment("reader"),
                config=FIRST,
                listener=cluster.listener("readers"),
            )
            puller = PullConsumer(nameserver=NAMESERVER, env=cluster.environment("puller"))
            polled: list[bytes] = []
            async with consumer, puller:
                puller.assign(await puller.queues("orders"))
                before = await send(cluster, 200)
                await asyncio.sleep(0.2)
                polled += [each.body for each in await puller.poll(messages_max=4096)]
                heard = len(cluster.history.deliveries)
                cluster.lose_power("a")
                await asyncio.sleep(1)
                await cluster.start("a")
                after = await send(cluster, 100)
                await asyncio.sleep(60)
                polled_after = [each.body for each in await puller.poll(messages_max=4096)]
            got = [each.message_id for each in cluster.history.deliveries]
            assert after <= set(got[heard:]), "what came after the loss is not passed over"
            assert not before.intersection(got[heard:]), "nothing is read a second time"
            assert len(after) == 100
            assert len(polled) <= 200
            assert len(polled_after) >= 100

    run_in_virtual_time(main())
