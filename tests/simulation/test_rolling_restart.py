"""Every process of a cluster restarts in turn, again and again: no send fails, nothing is lost."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from ternmq_broker.config import BrokerRole
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import TernError
from ternmq_model.message import Message
from ternmq_model.stored_message import StoredMessage
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.simulation.test_draining import drain
from tests.support.examples import seeds
from tests.support.history import GroupRules
from tests.support.simulated_cluster import SimulatedCluster, broker_name_of, simulated_cluster
from tests.support.simulated_replicas import caught_up, promote

TOPIC = "orders"
GROUP = "g"
MEMBERS = ("a", "a-1", "b", "b-1")
ROUNDS = 10
SENDS_PER_S = 10
LATE_S = 2.0
"""From a send's answer to its listener; measured were 0.5 s at most."""


class Load:
    """Producers that send on whatever the others do. Owns their tasks.

    Attributes:
        errors: What sends raised, by kind and by what was done when they began and ended.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.errors: Counter[str] = Counter()
        self.doing = "nothing"
        self.sends = 0
        self.is_over = False

    async def send_on(self, producer: Producer) -> None:
        """Send one message after the other, without waiting for answers, until it is over."""
        async with asyncio.TaskGroup() as sending:
            while not self.is_over:
                sending.create_task(self._send(producer))
                await asyncio.sleep(2 / SENDS_PER_S)

    async def _send(self, producer: Producer) -> None:
        began = self.doing
        self.sends += 1
        result = await self.cluster.send(producer, TOPIC)
        if isinstance(result, TernError):
            self.errors[f"{result!r} {began} .. {self.doing}"] += 1


async def restart(cluster: SimulatedCluster, load: Load, name: str) -> None:
    """Stop a broker and start it again, as soon as a process may be back."""
    load.doing = f"restart {name}"
    await cluster.stop(name)
    await asyncio.sleep(0.2 + 4 * cluster.random.random())
    await cluster.start(name)
    await caught_up(cluster, broker_name_of(name))


async def switch_over(cluster: SimulatedCluster, load: Load, master: str) -> None:
    """Drain a master, let it stop, promote its slave, and start it again."""
    load.doing = f"switch over from {master}"
    (slave,) = (each for each in cluster.members(broker_name_of(master)) if each != master)
    await drain(cluster, master)
    await asyncio.sleep(cluster.random.random())
    await cluster.stop(master)
    await asyncio.sleep(2 * cluster.random.random())
    await promote(cluster, slave)
    await asyncio.sleep(cluster.random.random())
    await cluster.start(master)
    await caught_up(cluster, broker_name_of(master))


async def roll(cluster: SimulatedCluster, load: Load, *, switches: bool) -> None:
    """Restart NameServers, slaves and masters in turn."""
    for host in ("ns", "ns2"):
        load.doing = f"restart {host}"
        await cluster.nameservers.stop(host)
        await asyncio.sleep(cluster.random.random())
        await cluster.nameservers.start(host)
        await asyncio.sleep(1 + cluster.random.random())
    masters = cluster.masters()
    for slave in (each for each in MEMBERS if each not in masters):
        await restart(cluster, load, slave)
    for master in masters:
        if switches:
            await switch_over(cluster, load, master)
        else:
            await restart(cluster, load, master)


@pytest.mark.parametrize(
    ("role", "switches"), [(BrokerRole.ASYNC_MASTER, False), (BrokerRole.SYNC_MASTER, True)]
)
@pytest.mark.parametrize("seed", seeds(1, soak=50))
def test_ten_rolling_restarts_fail_no_send(role: BrokerRole, switches: bool, seed: int) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(seed, brokers=MEMBERS, nameservers=2, role=role) as cluster,
            cluster.producer("p1") as first,
            cluster.producer("p2") as second,
            PushConsumer(
                GROUP,
                TOPIC,
                listener=cluster.listener(GROUP),
                nameserver=cluster.nameservers.addresses,
                env=cluster.environment("c"),
                config=PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET),
            ),
        ):
            await cluster.put_topic(TOPIC)
            load = Load(cluster)
            async with asyncio.TaskGroup() as sending:
                for producer in (first, second):
                    sending.create_task(load.send_on(producer))
                for _ in range(ROUNDS):
                    await roll(cluster, load, switches=switches)
                    assert not load.errors, f"seed {seed}: {load.errors} of {load.sends}"
                load.is_over = True
            assert not load.errors, f"seed {seed}: {load.errors} of {load.sends}"
            await cluster.consumed(GROUP)
            await cluster.scan(TOPIC, groups=(GROUP,))
            cluster.history.check([GroupRules(GROUP, frozenset({TOPIC}))], seed=seed)

    run_in_virtual_time(main())


@pytest.mark.parametrize("brokers", [("a", "a-1"), MEMBERS])
@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER])
@pytest.mark.parametrize("seed", seeds(1, soak=50))
def test_switch_overs_bring_no_message_twice_and_none_late(
    brokers: tuple[str, ...], role: BrokerRole, seed: int
) -> None:
    async def main() -> None:
        sent_at_s: dict[str, float] = {}
        heard: Counter[str] = Counter()
        late_s: list[float] = []
        loop = asyncio.get_running_loop()

        async def listen(message: StoredMessage) -> None:
            body = message.body.decode()
            heard[body] += 1
            late_s.append(loop.time() - sent_at_s[body])

        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(
                simulated_cluster(seed, brokers=brokers, nameservers=2, role=role)
            )
            await cluster.put_topic(TOPIC)
            for host in ("c", "d"):
                consumer = PushConsumer(
                    GROUP,
                    TOPIC,
                    listener=listen,
                    nameserver=cluster.nameservers.addresses,
                    env=cluster.environment(host),
                    config=PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET),
                )
                await stack.enter_async_context(consumer)
            patient = ProducerConfig(send_timeout_s=20)
            producer = await stack.enter_async_context(cluster.producer("p", config=patient))
            load = Load(cluster)

            async def send(body: str) -> None:
                await producer.send(Message(TOPIC, body.encode()))
                sent_at_s[body] = min(loop.time(), sent_at_s[body])

            async def send_on(sending: asyncio.TaskGroup) -> None:
                while not load.is_over:
                    body = f"{len(sent_at_s)}"
                    sent_at_s[body] = float("inf")
                    sending.create_task(send(body))
                    await asyncio.sleep(0.02)

            await asyncio.sleep(15)  # the members share the queues
            async with asyncio.TaskGroup() as sending:
                sending.create_task(send_on(sending))
                await asyncio.sleep(3)
                for _ in range(2):
                    for master in cluster.masters():
                        await switch_over(cluster, load, master)
                load.is_over = True
            await asyncio.sleep(5)
            assert heard == dict.fromkeys(sent_at_s, 1)
            assert max(late_s) < LATE_S

    run_in_virtual_time(main())
