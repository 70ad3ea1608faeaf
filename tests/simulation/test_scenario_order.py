"""Messages of one queue are consumed in order, whoever dies: members, brokers, the network."""

import asyncio

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.message import Message, SendResult
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_producer.producer import Producer
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.examples import seeds
from tests.support.history import GroupRules, Outcome
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster

TOPIC = "payments"
GROUP = "ledger"
QUEUES = 6
CONFIG = PushConsumerConfig(
    consume_from=ConsumeFrom.FIRST_OFFSET, order_per_queue=True, workers=8, suspend_s=0.1
)
SEEDS = seeds(6, soak=1000)


def consumer(cluster: SimulatedCluster, host: str) -> PushConsumer:
    def wants(_: StoredMessage) -> bool:
        return cluster.random.random() > 0.03

    return PushConsumer(
        GROUP,
        TOPIC,
        listener=cluster.listener(GROUP, wants=wants, work_s=0.1),
        nameserver=NAMESERVER,
        config=CONFIG,
        env=cluster.environment(host),
    )


async def send_in_order(cluster: SimulatedCluster, producer: Producer, queue: MessageQueue) -> None:
    """Send messages to one queue, each when the one before it is stored.

    By key they would move to another queue whenever the route loses a broker.
    """

    async def send(message: Message) -> SendResult:
        return await producer.send(message, queue=queue)

    for _ in range(60):
        while True:
            message_id = cluster.next_id()
            await cluster.send(send, TOPIC, message_id, key=str(queue))
            if cluster.history.sent[message_id].outcome is Outcome.STORED:
                break
            await asyncio.sleep(0.5)
        await asyncio.sleep(cluster.random.random())


async def trouble(cluster: SimulatedCluster, hosts: list[str]) -> None:
    """Let things break, one after the other."""
    for _ in range(6):
        await asyncio.sleep(cluster.random.random() * 10)
        name = cluster.random.choice(cluster.running)
        match cluster.random.randrange(5):
            case 0:
                cluster.kill(name)
            case 1:
                cluster.lose_power(name)
            case 2:
                await cluster.stop(name)
            case 3:
                cluster.network.cut(cluster.random.choice(hosts))
                continue
            case _:
                cluster.network.partition(cluster.random.choice(hosts), name)
                await asyncio.sleep(cluster.random.random() * 40)
                cluster.network.heal()
                continue
        await asyncio.sleep(cluster.random.random() * 3)
        await cluster.start(name)


@pytest.mark.parametrize("seed", SEEDS)
def test_queues_keep_their_order_while_brokers_and_members_come_and_go(seed: int) -> None:
    async def come_and_go(cluster: SimulatedCluster, host: str) -> None:
        while True:
            async with consumer(cluster, host):
                await asyncio.sleep(5 + cluster.random.random() * 30)
            await asyncio.sleep(cluster.random.random() * 2)

    async def main() -> None:
        async with simulated_cluster(seed) as cluster, cluster.producer() as producer:
            await cluster.put_topic(TOPIC, 3)
            hosts = ["one", "two", "three"]
            members = [cluster.tasks.spawn(come_and_go(cluster, host), host) for host in hosts]
            working = [cluster.tasks.spawn(trouble(cluster, hosts), "trouble")]
            for number in range(QUEUES):
                queue = MessageQueue(TOPIC, "ab"[number % 2], number // 2)
                sending = send_in_order(cluster, producer, queue)
                working.append(cluster.tasks.spawn(sending, f"send-{number}"))
            await asyncio.wait(working)
            for task in members:
                task.cancel()
            await asyncio.wait(members)
            async with consumer(cluster, "last"):
                await cluster.consumed(GROUP)
            await cluster.scan(TOPIC, groups=[GROUP])
            rules = GroupRules(GROUP, frozenset({TOPIC}), is_orderly=True)
            cluster.history.check([rules], seed=seed)
            assert [task.exception() for task in working] == [None] * len(working)

    run_in_virtual_time(main())
