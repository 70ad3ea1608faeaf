"""Messages that fail come again, and those that always fail are dead letters, whatever breaks."""

import asyncio
import itertools
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.stored_message import StoredMessage
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.examples import seeds
from tests.support.history import GroupRules, id_of
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster
from tests.support.slow_jobs import slow_jobs

TOPIC = "orders"
GROUP = "readers"
CONFIG = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, workers=8)
SEEDS = seeds(4, soak=1000)


class Failures:
    """Decides which deliveries fail: some messages always, others a few times first."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._random = cluster.random
        self._left: Counter[str] = Counter()
        self.doomed: set[str] = set()

    def draw(self, message_id: str) -> None:
        """Decide for a message before it is sent."""
        drawn = self._random.random()
        if drawn < 0.05:
            self.doomed.add(message_id)
        elif drawn < 0.25:
            self._left[message_id] = self._random.randrange(1, 3)

    def wants(self, message: StoredMessage) -> bool:
        """Tell whether the listener finishes the message this time."""
        message_id = id_of(message.body)
        if message_id in self.doomed:
            return False
        if self._left[message_id] > 0:
            self._left[message_id] -= 1
            return False
        return True


def consumer(
    cluster: SimulatedCluster, failures: Failures, host: str, config: PushConsumerConfig
) -> PushConsumer:
    return PushConsumer(
        GROUP,
        TOPIC,
        listener=cluster.listener(GROUP, wants=failures.wants, work_s=0.02),
        nameserver=NAMESERVER,
        config=config,
        env=cluster.environment(host),
    )


async def until_dead(cluster: SimulatedCluster, doomed: frozenset[str], *, hours: float) -> None:
    """Wait until every doomed message is a dead letter."""
    waited_s = 0.0
    while waited_s < hours * 3600:
        dead = {id_of(each.body) for _, each in await cluster.records(f"%DLQ%{GROUP}")}
        if doomed <= dead:
            return
        await asyncio.sleep(60)
        waited_s += 60


def test_always_failing_message_is_a_dead_letter_after_sixteen_retries() -> None:
    async def main() -> None:
        async with simulated_cluster(1, brokers=["a"]) as cluster, cluster.producer() as producer:
            failures = Failures(cluster)
            failures.doomed |= {"m1", "m2"}
            async with consumer(cluster, failures, "consumer", CONFIG):
                for _ in range(6):
                    await cluster.send(producer, TOPIC)
                doomed = frozenset(failures.doomed)
                await cluster.consumed(GROUP, but=doomed)
                with slow_jobs():
                    await until_dead(cluster, doomed, hours=6)
            await cluster.scan(TOPIC, groups=[GROUP])
            rules = GroupRules(
                GROUP, frozenset({TOPIC}), redeliveries_max=0, doomed=doomed, attempts=17
            )
            cluster.history.check([rules])
            tries = Counter(each.message_id for each in cluster.history.deliveries)
            assert {tries[name] for name in doomed} == {17}
            times = [each.at_ms for each in cluster.history.deliveries if each.message_id == "m1"]
            waits_s = [(after - before) / 1000 for before, after in itertools.pairwise(times)]
            levels_s = [10, 30, *range(60, 660, 60), 1200, 1800, 3600, 7200]
            for wait_s, level_s in zip(waits_s, levels_s, strict=True):
                assert level_s <= wait_s < level_s + 1.5
            letters = [each for _, each in await cluster.records(f"%DLQ%{GROUP}")]
            assert all(each.properties.get("RETRY_TOPIC") == TOPIC for each in letters)
            assert not any("DELAY" in each.properties for each in letters)

    run_in_virtual_time(main())


@pytest.mark.parametrize("seed", SEEDS)
def test_retried_messages_survive_dying_brokers_and_members(seed: int) -> None:
    async def trouble(cluster: SimulatedCluster) -> None:
        for _ in range(6):
            await asyncio.sleep(cluster.random.random() * 10)
            name = cluster.random.choice(cluster.running)
            match cluster.random.randrange(4):
                case 0:
                    cluster.kill(name)
                case 1:
                    cluster.lose_power(name)
                case 2:
                    await cluster.stop(name)
                case _:
                    cluster.network.cut(name)
                    continue
            await asyncio.sleep(cluster.random.random() * 3)
            await cluster.start(name)

    async def come_and_go(cluster: SimulatedCluster, failures: Failures, host: str) -> None:
        while True:
            async with consumer(cluster, failures, host, replace(CONFIG, retries_max=3)):
                await asyncio.sleep(5 + cluster.random.random() * 20)
            await asyncio.sleep(cluster.random.random() * 2)

    async def main() -> None:
        async with simulated_cluster(seed) as cluster, cluster.producer() as producer:
            cluster.history.stored_twice_allowed = True
            failures = Failures(cluster)
            members = [
                cluster.tasks.spawn(come_and_go(cluster, failures, host), host)
                for host in ("one", "two")
            ]
            troubles = cluster.tasks.spawn(trouble(cluster), "trouble")
            sending: list[asyncio.Task[object]] = [troubles]
            for _ in range(200):
                message_id = cluster.next_id()
                failures.draw(message_id)
                sending.append(
                    cluster.tasks.spawn(cluster.send(producer, TOPIC, message_id), message_id)
                )
                await asyncio.sleep(cluster.random.random() * 0.3)
            await asyncio.wait(sending)
            for task in members:
                task.cancel()
            await asyncio.wait(members)
            async with AsyncExitStack() as stack:
                last = consumer(cluster, failures, "last", replace(CONFIG, retries_max=3))
                await stack.enter_async_context(last)
                stored = {id_of(each.body) for _, each in await cluster.records(TOPIC)}
                doomed = frozenset(failures.doomed & stored)
                await cluster.consumed(GROUP, but=doomed)
                await until_dead(cluster, doomed, hours=1)
            await cluster.scan(TOPIC, groups=[GROUP])
            rules = GroupRules(GROUP, frozenset({TOPIC}), doomed=doomed, attempts=4)
            cluster.history.check([rules], seed=seed)
            assert troubles.exception() is None

    run_in_virtual_time(main())
