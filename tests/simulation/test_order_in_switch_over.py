"""Messages of one key or queue stay in order while their master is replaced as planned."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from typing import Final

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_model.errors import TernError, Unreachable
from ternmq_model.message import Message
from ternmq_model.queue import MessageQueue
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_producer.queue_selection.selectors import ByHash
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.simulation.test_draining import drain
from tests.support.examples import seeds
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster
from tests.support.simulated_replicas import caught_up, promote, replicated

TOPIC: Final = "orders"
TIMEOUT_S: Final = 30.0
EVERY_S: Final = 0.05


class Numbered:
    """Sends numbered messages, each call in a task of its own. Owns the tasks.

    Attributes:
        errors: What calls raised.
    """

    def __init__(self, cluster: SimulatedCluster, producer: Producer) -> None:
        self.cluster, self.producer = cluster, producer
        self.errors: list[TernError] = []
        self.is_over = False
        self._numbers: defaultdict[str, int] = defaultdict(int)

    async def send_on(self) -> None:
        """Begin a call of each kind every `EVERY_S`, until it is over."""
        async with asyncio.TaskGroup() as sending:
            while not self.is_over:
                for call in self._calls():
                    sending.create_task(self._note(call))
                await asyncio.sleep(EVERY_S)

    def _calls(self) -> Sequence[Awaitable[object]]:
        producer, keyed = self.producer, self.cluster.random.choice(("one", "many", "batch"))
        calls: list[Awaitable[object]] = [
            producer.send(
                self._next("placed"), queue=MessageQueue(TOPIC, "a", 1), timeout_s=TIMEOUT_S
            ),
            producer.send(self._next("chosen"), selector=ByHash(6), timeout_s=TIMEOUT_S),
        ]
        for key in ("k", "l"):
            if keyed == "one":
                calls.append(producer.send(self._next(key, key), timeout_s=TIMEOUT_S))
                continue
            several = [self._next(key, key) for _ in range(3)]
            send = producer.send_many if keyed == "many" else producer.send_batch
            calls.append(send(several, timeout_s=TIMEOUT_S))
        return calls

    def _next(self, kind: str, key: str = "") -> Message:
        self._numbers[kind] += 1
        return Message(TOPIC, f"{kind} {self._numbers[kind]}".encode(), sharding_key=key)

    async def _note(self, call: Awaitable[object]) -> None:
        try:
            await call
        except TernError as error:
            self.errors.append(error)


async def switch_over(cluster: SimulatedCluster, old: str, new: str) -> None:
    """Replace a master as `docs/operations.md` says, with an operator who takes his time."""
    await drain(cluster, old)
    await asyncio.sleep(cluster.random.random())
    await cluster.stop(old)
    await asyncio.sleep(1 + 8 * cluster.random.random())
    await promote(cluster, new)
    await asyncio.sleep(2 * cluster.random.random())
    await cluster.start(old)
    await caught_up(cluster, "a")


async def numbers(cluster: SimulatedCluster) -> dict[tuple[str, str], list[int]]:
    """Return the numbers by kind and queue as they lie there, but later copies of a message."""
    found: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    stored: set[bytes] = set()
    for queue, record in await cluster.records(TOPIC):
        if record.body in stored:
            continue
        stored.add(record.body)
        kind, number = record.body.decode().split()
        found[kind, str(queue)].append(int(number))
    return found


@pytest.mark.parametrize(
    ("names", "order"),
    [(("a", "a-1"), ""), (("a", "a-1", "b"), ""), (("a", "a-1", "b"), "a:4;b:4")],
)
@pytest.mark.parametrize("seed", seeds(4, soak=200))
def test_ordered_sends_keep_their_order_while_their_master_is_replaced(
    names: Sequence[str], order: str, seed: int
) -> None:
    # Every other time most sends wait for room.
    config = ProducerConfig(batch_bytes=4096, buffer_bytes=(32 << 20, 4 << 10)[seed % 2])

    async def main() -> None:
        async with (
            simulated_cluster(seed, brokers=names) as cluster,
            cluster.producer(config=config) as producer,
            AdminClient(nameserver=NAMESERVER, env=cluster.environment("admin")) as admin,
        ):
            await cluster.put_topic(TOPIC)
            if order:
                await admin.set_topic_order(TOPIC, order)
            load = Numbered(cluster, producer)
            sending = asyncio.create_task(load.send_on())
            await asyncio.sleep(1)
            await switch_over(cluster, "a", "a-1")
            await switch_over(cluster, "a-1", "a")
            load.is_over = True
            await sending
            await replicated(cluster)
            assert not load.errors, f"seed {seed}: {len(load.errors)} {load.errors[:3]}"
            found = await numbers(cluster)
            assert {each: n for each, n in found.items() if n != sorted(n)} == {}, f"seed {seed}"
            if order or len(names) == 2:
                assert len(found) == 4, f"seed {seed}: {list(found)}"

    run_in_virtual_time(main())


def test_sends_without_a_master_wait_for_their_own_time() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def failing(producer: Producer, timeout_s: float) -> float:
            began_s = loop.time()
            with pytest.raises(Unreachable, match="has a master at present") as told:
                await producer.send(Message(TOPIC, b"x", sharding_key="k"), timeout_s=timeout_s)
            assert not told.value.may_have_happened
            return loop.time() - began_s

        async with (
            simulated_cluster(brokers=("a", "a-1")) as cluster,
            cluster.producer() as producer,
        ):
            await cluster.put_topic(TOPIC)
            await replicated(cluster)
            await producer.send(Message(TOPIC, b"before"))
            await cluster.stop("a")
            with pytest.raises(Unreachable):  # now the route without a master is believed
                await producer.send(Message(TOPIC, b"x"), timeout_s=5)
            waits = [1.0, 20.0, 5.0] * 10
            took = await asyncio.gather(*(failing(producer, wait) for wait in waits))
            assert [round(seconds, 1) for seconds in took] == waits

    run_in_virtual_time(main())
