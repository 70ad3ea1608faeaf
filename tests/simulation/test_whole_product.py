"""NameServer, broker, producer and two consumers in one process, on virtual time, from one seed.

A failure is repeated by its seed, which is in the test's id.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import TernError
from ternmq_model.message import Message, SendResult
from ternmq_model.queue import MessageQueue
from ternmq_producer.producer import Producer
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.history import GroupRules, Outcome
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

TOPIC: Final = "flights"
GROUP: Final = "readers"
RULES: Final = GroupRules(GROUP, frozenset({TOPIC}), is_orderly=True)
KEYS: Final = 40
EVERYTHING: Final = PushConsumerConfig(
    consume_from=ConsumeFrom.FIRST_OFFSET, order_per_queue=True, workers=4
)


def consumer(cluster: SimulatedCluster, host: str) -> PushConsumer:
    return PushConsumer(
        GROUP,
        TOPIC,
        listener=cluster.listener(GROUP, work_s=0.01),
        nameserver=NAMESERVER,
        config=EVERYTHING,
        env=cluster.environment(host),
    )


async def send(
    cluster: SimulatedCluster, producer: Producer, number: int
) -> SendResult | TernError:
    """Send one message; the order of those with its key is not noted: a retry may change it."""

    async def keyed(message: Message) -> SendResult:
        return await producer.send(replace(message, sharding_key=str(number % KEYS)))

    return await cluster.send(keyed, TOPIC, f"m{number}", tags="ab"[number % 2])


def acknowledged(cluster: SimulatedCluster) -> int:
    """Return how many messages the brokers acknowledged."""
    return sum(each.outcome is Outcome.STORED for each in cluster.history.sent.values())


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("seed", range(3))
def test_messages_arrive_once_and_in_order_without_faults(seed: int, mode: FlushMode) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(seed, brokers=("a",), mode=mode) as cluster,
            cluster.producer() as producer,
            consumer(cluster, "one") as one,
            consumer(cluster, "two") as two,
        ):
            results = [await send(cluster, producer, 0)]
            await asyncio.gather(one.assigned(), two.assigned())
            for first in range(1, 600, 50):
                sends = (send(cluster, producer, number) for number in range(first, first + 50))
                results += await asyncio.gather(*sends)
            await cluster.consumed(GROUP)
            await cluster.scan(TOPIC)
            cluster.history.check([replace(RULES, redeliveries_max=0)], seed=seed)
            assert acknowledged(cluster) == len(cluster.history.deliveries) == 601
            places: defaultdict[MessageQueue, list[int]] = defaultdict(list)
            for each in cluster.history.deliveries:
                places[each.queue].append(each.queue_offset)
            for offsets in places.values():
                assert offsets == sorted(offsets)
            assert places.keys() == {each.queue for each in results if isinstance(each, SendResult)}

    run_in_virtual_time(main())


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("seed", range(10, 15))
def test_acknowledged_messages_survive_cuts_and_restarts(seed: int, mode: FlushMode) -> None:
    sent = 800
    over = asyncio.Event()

    async def cut(cluster: SimulatedCluster) -> None:
        while not over.is_set():
            await asyncio.sleep(cluster.random.random() * 3)
            cluster.network.cut(cluster.random.choice(["a", "producer", "one", "ns"]))

    async def come_and_go(cluster: SimulatedCluster, host: str) -> None:
        while not over.is_set():
            async with consumer(cluster, host):
                await asyncio.sleep(3 + cluster.random.random() * 10)
            await asyncio.sleep(cluster.random.random() * 2)

    async def restart(cluster: SimulatedCluster) -> None:
        while not over.is_set():
            await asyncio.sleep(5 + cluster.random.random() * 10)
            await cluster.stop("a")
            await cluster.start("a")

    async def main() -> None:
        async with (
            simulated_cluster(seed, brokers=("a",), mode=mode) as cluster,
            cluster.producer() as producer,
        ):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(restart(cluster))
                tasks.create_task(cut(cluster))
                tasks.create_task(come_and_go(cluster, "one"))
                tasks.create_task(come_and_go(cluster, "two"))
                await asyncio.sleep(1)
                for number in range(sent):
                    tasks.create_task(send(cluster, producer, number))
                    await asyncio.sleep(cluster.random.random() * 0.05)
                over.set()
            async with consumer(cluster, "three"):
                await cluster.consumed(GROUP, timeout_s=330)
            await cluster.scan(TOPIC)
            cluster.history.stored_twice_allowed = True
            cluster.history.check([RULES], seed=seed)
            assert acknowledged(cluster) > sent // 2

    run_in_virtual_time(main())


@pytest.mark.parametrize("seed", range(20, 30))
def test_acknowledged_messages_survive_loss_of_power_at_their_places(seed: int) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(seed, brokers=("a",)) as cluster,
            cluster.producer() as producer,
        ):
            moment = cluster.random.randrange(50, 300)
            sending: list[asyncio.Task[SendResult | TernError]] = []
            for number in range(moment):
                task = cluster.tasks.spawn(send(cluster, producer, number), f"send-{number}")
                sending.append(task)
                await asyncio.sleep(cluster.random.random() * 0.01)
            cluster.lose_power("a")
            results = await asyncio.gather(*sending)
            await cluster.start("a")
            await cluster.scan(TOPIC)
            cluster.history.stored_twice_allowed = True
            cluster.history.check(seed=seed)
            check_places(cluster, results)

    run_in_virtual_time(main())


def check_places(cluster: SimulatedCluster, results: Iterable[SendResult | TernError]) -> None:
    """Check that every acknowledged message lies where its sender was told."""
    lies = {(each.queue, each.queue_offset): each.message_id for each in cluster.history.lying}
    count = 0
    for number, each in enumerate(results):
        if isinstance(each, SendResult):
            assert lies[each.queue, each.queue_offset] == f"m{number}"
            count += 1
    assert count == acknowledged(cluster) > 0
