"""NameServer, broker, producer and two consumers in one process, on virtual time, from one seed.

Everything is the product's own code; the network, the disk and the clock are those of
`tests/support`. A failure is repeated by its seed, which is in the test's id.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final

import pytest

from ternmq_broker import Broker, BrokerConfig
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push import PushConsumer
from ternmq_model.errors import TernError
from ternmq_model.message import Message, SendResult, SendStatus
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_producer.producer import Producer
from ternmq_remoting.environment import Environment
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import FlushMode, StoreConfig
from tests.support.brokers import World, bodies
from tests.support.files import MemoryFileSystem, PowerLossFileSystem
from tests.support.memory_network import MemoryNetwork
from tests.support.virtual_time import InlineBlocking, VirtualClock, run_in_virtual_time

TOPIC: Final = "flights"
NAMESERVER: Final = "ns:9876"
KEYS: Final = 40
STORE: Final = StoreConfig(
    commit_log_file_bytes=256 << 10,
    consume_queue_file_units=200,
    index_slots=1000,
    index_entries=4000,
)
EVERYTHING: Final = PushConsumerConfig(
    consume_from=ConsumeFrom.FIRST_OFFSET, order_per_queue=True, workers=4
)


def broker_config(mode: FlushMode, data: str = "/broker") -> BrokerConfig:
    return BrokerConfig(
        data=Path(data),
        listen="0.0.0.0",
        port=10_911,
        hostname="broker",
        store_host="10.0.0.1",
        nameservers=(NAMESERVER,),
        flush_mode=mode,
        memory_bytes=1 << 30,
    )


@dataclass
class Universe:
    """One seed's network and what it has seen."""

    seed: int
    network: MemoryNetwork
    files: MemoryFileSystem
    random: Random
    acknowledged: dict[bytes, SendResult] = field(default_factory=dict[bytes, SendResult])
    in_doubt: set[bytes] = field(default_factory=set[bytes])
    consumed: Counter[bytes] = field(default_factory=Counter[bytes])
    places: defaultdict[MessageQueue, list[int]] = field(
        default_factory=lambda: defaultdict(list[int])
    )

    def environment(self, host: str) -> Environment:
        """Return the seams of `host`; its disk takes up to 5 ms."""
        random = Random(f"{self.seed} {host}")
        return Environment(
            clock=VirtualClock(),
            network=self.network.host(host),
            random=random,
            blocking=InlineBlocking(lambda: random.random() * 0.005),
        )

    def broker(self, mode: FlushMode) -> Broker:
        return Broker(broker_config(mode), STORE, self.environment("broker"), files=self.files)

    def producer(self) -> Producer:
        return Producer("sellers", nameserver=NAMESERVER, env=self.environment("producer"))

    def consumer(self, host: str) -> PushConsumer:
        async def listen(message: StoredMessage) -> None:
            await asyncio.sleep(self.random.random() * 0.01)
            self.consumed[message.body] += 1
            self.places[message.queue].append(message.queue_offset)

        return PushConsumer(
            "readers",
            TOPIC,
            listener=listen,
            nameserver=NAMESERVER,
            config=EVERYTHING,
            env=self.environment(host),
        )

    async def send(self, producer: Producer, number: int) -> None:
        """Send one message and note what became of it."""
        body = b"%d" % number
        message = Message(TOPIC, body, tags="ab"[number % 2], sharding_key=str(number % KEYS))
        try:
            result = await producer.send(message)
        except TernError as error:
            if error.may_have_happened:
                self.in_doubt.add(body)
            return
        assert result.status is SendStatus.SEND_OK
        self.acknowledged[body] = result

    async def is_done(self) -> None:
        """Wait until every acknowledged message was consumed."""
        async with asyncio.timeout(300):
            while self.acknowledged.keys() - self.consumed.keys():
                await asyncio.sleep(0.5)


@asynccontextmanager
async def universe(seed: int, files: MemoryFileSystem | None = None) -> AsyncGenerator[Universe]:
    """Give a network with a NameServer on it."""
    random = Random(seed)
    network = MemoryNetwork(random, latency_s=lambda chance: chance.random() * 0.002)
    async with network:
        made = Universe(seed, network, files or MemoryFileSystem(), random)
        config = NameServerConfig(listen="0.0.0.0", port=9876)
        async with NameServer(config, made.environment("ns")):
            yield made


def check(all_of_it: Universe, sent: int) -> None:
    """Assert what a group is promised."""
    lost = all_of_it.acknowledged.keys() - all_of_it.consumed.keys()
    assert not lost, f"seed {all_of_it.seed}: acknowledged and never consumed: {sorted(lost)}"
    strangers = all_of_it.consumed.keys() - {b"%d" % number for number in range(sent)}
    assert not strangers
    unsent = all_of_it.consumed.keys() - all_of_it.acknowledged.keys() - all_of_it.in_doubt
    assert not unsent, f"seed {all_of_it.seed}: refused and consumed: {sorted(unsent)}"


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("seed", range(3))
def test_a_message_sent_arrives_once_and_in_order_when_nothing_breaks(
    seed: int, mode: FlushMode
) -> None:
    async def main() -> None:
        async with (
            universe(seed) as everything,
            everything.broker(mode),
            everything.producer() as producer,
            everything.consumer("one") as one,
            everything.consumer("two") as two,
        ):
            await everything.send(producer, 0)
            await asyncio.gather(one.assigned(), two.assigned())
            for first in range(1, 600, 50):
                await asyncio.gather(
                    *(everything.send(producer, number) for number in range(first, first + 50))
                )
            await everything.is_done()
            check(everything, 601)
            assert len(everything.acknowledged) == 601
            assert everything.consumed.total() == 601
            for places in everything.places.values():
                assert places == sorted(places)
            queues = {result.queue for result in everything.acknowledged.values()}
            assert everything.places.keys() == queues

    run_in_virtual_time(main())


@pytest.mark.parametrize("mode", FlushMode)
@pytest.mark.parametrize("seed", range(10, 15))
def test_nothing_acknowledged_is_lost_when_connections_break_and_members_and_brokers_come_and_go(
    seed: int, mode: FlushMode
) -> None:
    sent = 800

    async def cut(everything: Universe) -> None:
        while True:
            await asyncio.sleep(everything.random.random() * 3)
            everything.network.cut(everything.random.choice(["broker", "producer", "one", "ns"]))

    async def come_and_go(everything: Universe, host: str) -> None:
        while True:
            async with everything.consumer(host):
                await asyncio.sleep(3 + everything.random.random() * 10)
            await asyncio.sleep(everything.random.random() * 2)

    async def restart(everything: Universe) -> None:
        while True:
            async with everything.broker(mode):
                await asyncio.sleep(5 + everything.random.random() * 10)

    async def main() -> None:
        async with universe(seed) as everything:
            async with OwnedTasks() as tasks, everything.producer() as producer:
                restarting = tasks.spawn(restart(everything), "restart")
                troubles = [
                    tasks.spawn(cut(everything), "cut"),
                    tasks.spawn(come_and_go(everything, "one"), "one"),
                    tasks.spawn(come_and_go(everything, "two"), "two"),
                ]
                await asyncio.sleep(1)
                for number in range(sent):
                    tasks.spawn(everything.send(producer, number), f"send-{number}")
                    await asyncio.sleep(everything.random.random() * 0.05)
                for task in (*troubles, restarting):
                    task.cancel()
                await asyncio.wait([*troubles, restarting])
                async with AsyncExitStack() as stack:
                    await stack.enter_async_context(everything.broker(mode))
                    await stack.enter_async_context(everything.consumer("three"))
                    await asyncio.sleep(30)
                    await everything.is_done()
            check(everything, sent)
            assert len(everything.acknowledged) > sent // 2

    run_in_virtual_time(main())


@pytest.mark.parametrize("seed", range(20, 30))
def test_what_a_synchronous_broker_acknowledged_survives_a_loss_of_power(seed: int) -> None:
    async def main() -> None:
        files = PowerLossFileSystem()
        async with universe(seed, files) as everything:
            left: PowerLossFileSystem | None = None
            acknowledged: dict[bytes, SendResult] = {}
            async with (
                everything.broker(FlushMode.SYNC),
                everything.producer() as producer,
                OwnedTasks() as tasks,
            ):
                moment = everything.random.randrange(50, 300)
                for number in range(300):
                    tasks.spawn(everything.send(producer, number), f"send-{number}")
                    await asyncio.sleep(everything.random.random() * 0.01)
                    if number == moment:
                        # What a loss of power in this very moment would leave behind.
                        left = files.lose_power(everything.random)
                        acknowledged = dict(everything.acknowledged)
            assert left is not None
            await check_survivors(everything, left, acknowledged)

    run_in_virtual_time(main())


async def check_survivors(
    everything: Universe, left: PowerLossFileSystem, acknowledged: dict[bytes, SendResult]
) -> None:
    """Assert that a broker on what was left has every message that was acknowledged before."""
    assert acknowledged
    config = replace(broker_config(FlushMode.SYNC), port=0, nameservers=(), listen="127.0.0.1")
    world = World(everything.network, left, config, STORE)
    async with world.broker("survivor") as broker:
        client = await world.connect(broker, "survivor")
        found: dict[tuple[int, int], bytes] = {}
        for queue_id in range(4):
            offset = 0
            while (reply := await client.pull(TOPIC, offset, queue_id=queue_id)).records:
                for place, body in enumerate(bodies(reply), offset):
                    found[queue_id, place] = body
                offset = reply.next_offset
        for body, result in acknowledged.items():
            assert found[result.queue.queue_id, result.queue_offset] == body
