"""Live readers of a broker whose log has lost its end: nothing of what comes is passed over."""

import asyncio
from dataclasses import replace

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.queue import MessageQueue
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.history import Outcome, id_of
from tests.support.simulated_cluster import (
    CLUSTER_STORE,
    NAMESERVER,
    SimulatedCluster,
    simulated_cluster,
)

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


@pytest.mark.parametrize("verb", ["", "seek", "seek_to_end"])
@pytest.mark.parametrize("seed", range(3))
def test_idle_reader_gets_what_replaces_lost_messages_wherever_it_sought(
    verb: str, seed: int
) -> None:
    queue = MessageQueue("orders", "a", 0)

    async def main() -> None:
        async with simulated_cluster(
            seed, brokers=["a"], mode=FlushMode.ASYNC, store=RARELY_FLUSHED
        ) as cluster:
            await cluster.put_topic("orders", 1)
            await send(cluster, 70)
            env = cluster.environment("reader")
            async with PullConsumer("g", nameserver=NAMESERVER, env=env) as reader:
                reader.assign([queue])
                if verb == "seek":
                    reader.seek(queue, 70)
                elif verb:
                    reader.seek_to_end()
                assert len(await reader.poll()) == (0 if verb else 70)
                cluster.network.cut("reader")
                cluster.lose_power("a")
                await asyncio.sleep(1)
                await cluster.start("a")
                after = await send(cluster, 10)
                cluster.network.heal()
                await asyncio.sleep(30)
                got = {id_of(each.body) for each in await reader.poll()}
            assert len(after) == 10
            assert after <= got

    run_in_virtual_time(main())
