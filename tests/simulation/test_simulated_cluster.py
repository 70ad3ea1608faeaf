"""The simulated cluster itself: brokers that die are dead, and what they had comes back."""

import asyncio

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.history import GroupRules, Outcome
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

TOPIC = "orders"
FROM_FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


def consumer(cluster: SimulatedCluster, host: str = "consumer") -> PushConsumer:
    return PushConsumer(
        "readers",
        TOPIC,
        listener=cluster.listener("readers"),
        nameserver=NAMESERVER,
        config=FROM_FIRST,
        env=cluster.environment(host),
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ending", ["stop", "kill", "lose_power"])
def test_every_acknowledged_message_survives_its_brokers_end(ending: str, seed: int) -> None:
    async def main() -> None:
        async with simulated_cluster(seed) as cluster, cluster.producer() as producer:
            async with consumer(cluster):
                for _ in range(6):
                    await asyncio.gather(*(cluster.send(producer, TOPIC) for _ in range(20)))
                    name = cluster.random.choice(cluster.running)
                    sending = [
                        cluster.tasks.spawn(cluster.send(producer, TOPIC), "send")
                        for _ in range(20)
                    ]
                    if ending == "stop":
                        await cluster.stop(name)
                    else:
                        getattr(cluster, ending)(name)
                    await asyncio.sleep(cluster.random.random() * 2)
                    await cluster.start(name)
                    await asyncio.wait(sending)
                await cluster.consumed("readers")
            stored = [
                sent for sent in cluster.history.sent.values() if sent.outcome is Outcome.STORED
            ]
            assert len(stored) > 200
            cluster.history.stored_twice_allowed = True
            await cluster.scan(TOPIC)
            cluster.history.check([GroupRules("readers", frozenset({TOPIC}))], seed=seed)

    run_in_virtual_time(main())


def test_late_flush_loses_unflushed_messages_and_the_check_notices() -> None:
    async def main() -> None:
        lost = 0
        for seed in range(8):
            async with (
                simulated_cluster(seed, brokers=["a"], mode=FlushMode.ASYNC) as cluster,
                cluster.producer() as producer,
            ):
                await asyncio.gather(*(cluster.send(producer, TOPIC) for _ in range(50)))
                cluster.lose_power("a")
                await cluster.start("a")
                await cluster.scan(TOPIC)
                lost += sum(fault.name == "lost" for fault in cluster.history.faults())
        assert lost

    run_in_virtual_time(main())
