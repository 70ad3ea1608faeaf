"""An operator resets a group by time while its members consume, come, go and die."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Final

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.config import ClientConfig
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.examples import seeds
from tests.support.history import GroupRules, Lying
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

TOPIC: Final = "orders"
GROUP: Final = "readers"
PLAIN: Final = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, workers=4)
ORDERLY: Final = replace(PLAIN, order_per_queue=True)
SEEDS: Final = seeds(3, soak=100)


class Members:
    """Members that come and go by themselves. Owned by one test."""

    def __init__(self, cluster: SimulatedCluster, config: PushConsumerConfig) -> None:
        self.finished: defaultdict[str, list[float]] = defaultdict(list)
        self._cluster = cluster
        self._config = config
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: dict[str, asyncio.Event] = {}
        self._count = 0

    def join(self) -> None:
        """Let a new member come."""
        self._count += 1
        host = f"host-{self._count}"
        self._leaving[host] = asyncio.Event()
        self._tasks[host] = self._cluster.tasks.spawn(self._consume(host), host)

    def change(self) -> None:
        """Let one come, go, die, or lose its connections; one at least stays."""
        random = self._cluster.random
        host = random.choice(list(self._tasks))
        happening = random.choice(["join", "leave", "kill", "cut", "cut"])
        if happening == "join":
            self.join()
        elif happening == "cut" or len(self._tasks) == 1:
            self._cluster.network.cut(host)
        elif happening == "leave":
            self._leaving[host].set()
            del self._tasks[host]
        else:
            self._cluster.network.kill(host)
            self._tasks.pop(host).cancel()

    async def end(self) -> None:
        """Let everybody leave."""
        for host in self._tasks:
            self._leaving[host].set()
        await asyncio.wait(self._tasks.values())

    async def _consume(self, host: str) -> None:
        async with PushConsumer(
            GROUP,
            TOPIC,
            listener=self._listener(),
            nameserver=NAMESERVER,
            config=self._config,
            env=self._cluster.environment(host),
        ):
            await self._leaving[host].wait()

    def _listener(self) -> Callable[[StoredMessage], Awaitable[bool]]:
        deliver = self._cluster.listener(GROUP, work_s=0.1)

        async def listen(message: StoredMessage) -> bool:
            answer = await deliver(message)
            name = self._cluster.history.deliveries[-1].message_id
            self.finished[name].append(asyncio.get_running_loop().time())
            return answer

        return listen


async def send(cluster: SimulatedCluster, count: int) -> list[str]:
    """Send messages and return their ids."""
    names = [cluster.next_id() for _ in range(count)]
    async with cluster.producer() as producer:
        await asyncio.gather(*(cluster.send(producer, TOPIC, name) for name in names))
    return names


async def reset(cluster: SimulatedCluster, at_ms: int) -> float:
    """Reset the group, and return the moment before which nothing counts any more."""
    config = ClientConfig(nameservers=(NAMESERVER,))
    async with AdminClient(client=config, env=cluster.environment("operator")) as admin:
        now_s = asyncio.get_running_loop().time()
        await admin.reset_offsets(GROUP, TOPIC, at_ms=at_ms)
    return now_s


def queues_of(lying: Iterable[Lying]) -> list[MessageQueue]:
    """Return the queues in which something lies."""
    return sorted({each.queue for each in lying})


async def run(seed: int, config: PushConsumerConfig) -> None:
    async with simulated_cluster(seed, mode=FlushMode.ASYNC) as cluster:
        members = Members(cluster, config)
        members.join()
        members.join()
        before = await send(cluster, 200)
        await asyncio.sleep(1)
        at_ms = cluster.now_ms()
        after = await send(cluster, 200)
        await cluster.consumed(GROUP)
        await asyncio.sleep(60)
        resets_s: list[float] = []
        for number in range(12):
            members.change()
            if number in (4, 7):
                resets_s.append(await reset(cluster, at_ms))
            await asyncio.sleep(cluster.random.random() * 4)
        await asyncio.sleep(90)
        for name in after:
            assert members.finished[name][-1] > resets_s[-1], f"seed {seed}: {name} was not redone"
        late = [name for name in before if members.finished[name][-1] > resets_s[-1]]
        assert not late, f"seed {seed}: from before the time of the reset: {late}"
        await members.end()
        await cluster.scan(TOPIC, groups=[GROUP])
        cluster.history.check([GroupRules(GROUP, frozenset({TOPIC}))], seed=seed)
        lying = cluster.history.lying
        ends = {queue: sum(each.queue == queue for each in lying) for queue in queues_of(lying)}
        async with PullConsumer(
            GROUP, nameserver=NAMESERVER, env=cluster.environment("looks")
        ) as looks:
            assert {queue: await looks.committed(queue) for queue in ends} == ends


@pytest.mark.parametrize("config", [PLAIN, ORDERLY], ids=["concurrent", "orderly"])
@pytest.mark.parametrize("seed", SEEDS)
def test_reset_redelivers_everything_since_its_time_and_is_not_undone(
    seed: int, config: PushConsumerConfig
) -> None:
    run_in_virtual_time(run(seed, config))


def test_reset_holds_for_a_queue_that_is_being_given_away() -> None:
    run_in_virtual_time(run(2_886_520_812, PLAIN))
