"""Several NameServers, some or all of which go, come back empty, or know only a part."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from ternmq_client.config import ClientConfig
from ternmq_client.instance import ClientInstance
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import TernError
from ternmq_model.message import SendResult
from ternmq_model.queue import MessageQueue
from ternmq_producer.producer import Producer
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster

NAMES = ("ns:9876", "ns2:9876")
TOPIC = "orders"
ASKING = ClientConfig(nameservers=NAMES, route_refresh_s=0.4)
"""Hears of everything that NameServers do not know yet."""

SEND_EVERY_S = 0.25
"""A wrong route lasts until the next refresh, so at least one send meets it."""

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


@dataclass
class Routed:
    """A cluster of two brokers and two NameServers."""

    cluster: SimulatedCluster

    async def stop(self, *hosts: str) -> None:
        """End NameServers."""
        for host in hosts:
            await self.cluster.nameservers.stop(host)

    async def start(self, *hosts: str) -> None:
        """Start NameServers, which know no broker."""
        for host in hosts:
            await self.cluster.nameservers.start(host)

    def consumer(self, host: str, config: ClientConfig = ASKING) -> PushConsumer:
        """Return a consumer, not entered."""
        return PushConsumer(
            "readers",
            TOPIC,
            client=config,
            env=self.cluster.environment(host),
            config=FIRST,
            listener=self.cluster.listener("readers"),
        )

    def producer(self, host: str = "producer") -> Producer:
        """Return a producer, not entered."""
        return Producer("senders", client=ASKING, env=self.cluster.environment(host))

    def owned(self, consumer: PushConsumer) -> list[MessageQueue]:
        """Return the queues of the topic that a consumer owns."""
        return [queue for queue in consumer.assignment() if queue.topic == TOPIC]

    async def send(self, producer: Producer, for_s: float) -> None:
        """Send all the time; nothing may fail, and nothing may have to be sent twice."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + for_s
        while loop.time() < end_s:
            result = await self.cluster.send(producer, TOPIC)
            assert isinstance(result, SendResult), result
            await asyncio.sleep(SEND_EVERY_S)


@asynccontextmanager
async def routed(seed: int = 1) -> AsyncGenerator[Routed]:
    """Give the cluster; its topic is known to both NameServers."""
    async with simulated_cluster(seed, nameservers=2) as cluster:
        await cluster.put_topic(TOPIC, 2)
        yield Routed(cluster)


def test_clients_work_with_some_and_without_any_nameserver() -> None:
    async def main() -> None:
        async with routed() as around, around.producer() as producer:
            async with around.consumer("c1") as one, around.consumer("c2") as two:
                await one.assigned()
                await two.assigned()
                await asyncio.sleep(2)
                owned = (one.assignment(), two.assignment())
                await around.send(producer, 5)
                await around.stop("ns")
                await around.send(producer, 40)
                await around.stop("ns2")
                await around.send(producer, 130)  # longer than anything that is known expires
                await around.cluster.consumed("readers", timeout_s=5)
                assert (one.assignment(), two.assignment()) == owned
            cluster = around.cluster
            assert len(cluster.history.deliveries) == len(cluster.history.sent)

    run_in_virtual_time(main())


@pytest.mark.parametrize("hosts", [("ns",), ("ns2",), ("ns", "ns2")])
def test_nameservers_returning_empty_take_no_queues_from_clients(
    hosts: tuple[str, ...],
) -> None:
    async def main() -> None:
        async with routed() as around, around.producer() as producer:
            async with around.consumer("c1") as one, around.consumer("c2") as two:
                await one.assigned()
                await two.assigned()
                await asyncio.sleep(2)
                owned = (one.assignment(), two.assignment())
                await around.send(producer, 1)
                for pause_s in (0.0, 3.0, 29.0, 45.0):
                    await around.stop(*hosts)
                    await around.send(producer, pause_s)
                    await around.start(*hosts)
                    await around.send(producer, 10)
                    assert (one.assignment(), two.assignment()) == owned
                await around.cluster.consumed("readers", timeout_s=5)
            cluster = around.cluster
            assert len(cluster.history.deliveries) == len(cluster.history.sent)

    run_in_virtual_time(main())


@pytest.mark.parametrize("host", ["a", "b"])
def test_broker_cut_off_from_a_nameserver_stays_known_to_clients(host: str) -> None:
    async def main() -> None:
        async with (
            routed() as around,
            around.producer() as producer,
            around.consumer("c1") as consumer,
        ):
            await consumer.assigned()
            around.cluster.network.partition(host, "ns")
            await around.send(producer, 150)  # the nameserver forgets the broker after 120 s
            queues = [each for each in consumer.assignment() if each.topic == TOPIC]
            assert len(queues) == 4

    run_in_virtual_time(main())


@pytest.mark.parametrize("host", ["a", "b"])
def test_client_of_partly_informed_nameserver_learns_all_brokers(
    host: str,
) -> None:
    async def main() -> None:
        async with routed() as around, around.producer() as producer:
            around.cluster.network.partition(host, "ns")
            await asyncio.sleep(130)
            around.cluster.network.partition("c1", "ns2")
            config = ClientConfig(nameservers=NAMES)
            async with around.consumer("c1", config) as consumer:
                await consumer.assigned()
                assert len(around.owned(consumer)) == 2
                around.cluster.network.heal()
                around.cluster.network.partition(host, "ns")
                await asyncio.sleep(3)
                assert len(around.owned(consumer)) == 4
                await around.send(producer, 5)
                await around.cluster.consumed("readers", timeout_s=5)

    run_in_virtual_time(main())


def test_client_started_while_nameservers_return_gets_whole_route() -> None:
    async def main() -> None:
        async with routed() as around, around.producer() as producer:
            await around.stop("ns", "ns2")
            around.cluster.network.partition("b", "ns")
            around.cluster.network.partition("b", "ns2")
            await around.start("ns", "ns2")
            await asyncio.sleep(2)
            async with around.consumer("c1", ClientConfig(nameservers=NAMES)) as consumer:
                await consumer.assigned()
                assert len(around.owned(consumer)) == 2
                around.cluster.network.heal()
                await asyncio.sleep(3)
                assert len(around.owned(consumer)) == 4
                await around.send(producer, 1)

    run_in_virtual_time(main())


def test_clients_start_with_one_of_several_nameservers_dead() -> None:
    async def main() -> None:
        for dead in ("ns", "ns2"):
            async with routed() as around:
                await around.stop(dead)
                async with around.producer() as producer, around.consumer("c1") as consumer:
                    await consumer.assigned()
                    await around.send(producer, 3)
                    await around.cluster.consumed("readers", timeout_s=5)

    run_in_virtual_time(main())


@pytest.mark.parametrize("away_s", [0.0, 0.7, 60.0])
def test_routes_return_two_seconds_after_the_nameservers(away_s: float) -> None:
    async def main() -> None:
        async with routed() as around:
            await around.cluster.start("c", hostname="c")
            await around.stop("ns", "ns2")
            await asyncio.sleep(away_s)
            await around.start("ns", "ns2")
            began_s = asyncio.get_running_loop().time()
            config = ClientConfig(nameservers=NAMES)
            async with ClientInstance(config, env=around.cluster.environment("new")) as client:
                while True:
                    try:
                        route = await client.routes.route("TBW102")
                    except TernError:
                        route = None
                    if route is not None and len(route.brokers) == 3:
                        break
                    client.routes.expire("TBW102")
                    await client.routes.refresh()
                    await asyncio.sleep(0.05)
            took_s = asyncio.get_running_loop().time() - began_s
            assert took_s < 2, f"took {took_s} s"

    run_in_virtual_time(main())


def test_consumer_waiting_for_its_topic_gets_it_two_seconds_after_return() -> None:
    async def main() -> None:
        async with routed() as around:
            found: list[Any] = []
            async with around.producer() as producer, around.consumer("c1") as consumer:
                await consumer.assigned()
                await around.stop("ns", "ns2")
                async with ClientInstance(
                    ClientConfig(nameservers=NAMES), env=around.cluster.environment("late")
                ) as client:
                    client.routes.watch(TOPIC)
                    client.routes.add_listener(found.append)
                    await asyncio.sleep(30)
                    await around.start("ns")
                    await asyncio.sleep(2)
                    assert TOPIC in found
                await around.send(producer, 1)

    run_in_virtual_time(main())
