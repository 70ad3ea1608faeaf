"""A cluster in one process, on virtual time, from one seed: brokers that stop, die and lose power.

    async with simulated_cluster(seed=7) as cluster:
        async with cluster.producer() as producer:
            await cluster.send(producer, "orders", "m1")
        cluster.kill("a")
        await cluster.start("a")
        ...
        await cluster.scan("orders")
        cluster.history.check([...], seed=7)

Everything is the product's own code. Every client has a host of its own, named by the test. So has
every broker: "a" is the member 0 of the broker name "a", and "a-1" its member 1.
`simulated_replicas` promotes members and compares their logs, `brokers` is for one broker alone.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

import numpy as np

from ternmq_broker.broker import Broker
from ternmq_model.address import Address
from ternmq_model.errors import ClosedError, TernError
from ternmq_model.message import Message, SendResult, SendStatus
from ternmq_model.message_batch import decode_records
from ternmq_model.names import DEAD_LETTER_PREFIX
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import MASTER_ID
from ternmq_model.stored_message import StoredMessage
from ternmq_producer.producer import Producer
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Rep, Req, UnaryRpc
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_testing.memory.memory_files import PowerLossFileSystem
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import VirtualClock, virtual_environment
from tests.support.brokers import CONFIG, SMALL_STORE, Client
from tests.support.history import Decision, Delivery, History, Lying, Outcome, id_of, make_body
from tests.support.simulated_nameservers import (
    SimulatedNameServers,
    simulated_nameservers,
)

NAMESERVER: Final = "ns:9876"
PORT: Final = 10_911
CLUSTER_STORE: Final = replace(
    SMALL_STORE, commit_log_file_bytes=256 << 10, consume_queue_file_units=200
)

Sender = Callable[[Message], Awaitable[SendResult]]
Wants = Callable[[StoredMessage], bool]


@dataclass
class _Running:
    """One life of a broker."""

    broker: Broker
    task: "asyncio.Task[None]"
    serves: asyncio.Event
    leave: asyncio.Event
    is_dead: bool = False


@dataclass
class SimulatedCluster:
    """Brokers, their disks, and what happened. Made by `simulated_cluster`.

    Attributes:
        clock_offsets_ms: Added to the wall clock of a host, from its next start on.
        disk_s: How long a blocking call takes on a host, at once; up to 5 ms on any other.
    """

    seed: int
    network: MemoryNetwork
    random: Random
    tasks: OwnedTasks
    mode: FlushMode
    store_config: StoreConfig
    broker_settings: dict[str, Any]
    nameservers: SimulatedNameServers
    history: History = field(default_factory=History)
    disks: dict[str, PowerLossFileSystem] = field(default_factory=dict[str, PowerLossFileSystem])
    clock_offsets_ms: dict[str, int] = field(default_factory=dict[str, int])
    disk_s: dict[str, float] = field(default_factory=dict[str, float])
    _running: dict[str, _Running] = field(default_factory=dict[str, _Running])
    _ids: int = 0

    def environment(self, host: str) -> Environment:
        """Return the seams of `host`."""
        random = Random(f"{self.seed} {host}")
        clock = VirtualClock()
        clock.wall_offset_ms = self.clock_offsets_ms.get(host, 0)

        def delay_s() -> float:
            fixed_s = self.disk_s.get(host)
            return random.random() * 0.005 if fixed_s is None else fixed_s

        return virtual_environment(self.network.host(host), random, delay_s, clock=clock)

    def broker(self, name: str) -> Broker:
        """Return the broker of that name, which must run: to look into."""
        return self._running[name].broker

    @property
    def running(self) -> list[str]:
        """Names of the brokers that run, sorted."""
        return sorted(self._running)

    def members(self, broker_name: str) -> list[str]:
        """Return the members of a broker name that run, sorted."""
        return [each for each in self.running if broker_name_of(each) == broker_name]

    def masters(self) -> list[str]:
        """Return the members that serve as masters, sorted."""
        return [each for each in self.running if self.is_master(each)]

    def is_master(self, name: str) -> bool:
        """Tell whether a broker that runs is a master now."""
        try:
            return self.broker(name).identity.broker_id == MASTER_ID
        except ClosedError:
            return False  # between two lives, or before its first

    async def start(self, name: str, **settings: Any) -> None:
        """Start a broker, and return when it serves."""
        await self.begin(name, **settings).wait()

    def begin(self, name: str, **settings: Any) -> asyncio.Event:
        """Start a broker, and return what is set when it serves: it may wait for others first."""
        assert name not in self._running, f"broker {name} runs"
        broker_id = int(name.partition("-")[2] or MASTER_ID)
        config = replace(
            CONFIG,
            name=broker_name_of(name),
            broker_id=broker_id,
            listen="0.0.0.0",
            port=PORT,
            hostname=name,
            store_host=f"10.0.{broker_id}.{ord(name[0])}",
            nameservers=tuple(self.nameservers.addresses),
            flush_mode=self.mode,
        )
        config = replace(config, **{**self.broker_settings, **settings})
        files = self.disks.setdefault(name, PowerLossFileSystem())
        broker = Broker(config, self.store_config, self.environment(name), files=files)
        serves, leave = asyncio.Event(), asyncio.Event()
        running = _Running(
            broker, self.tasks.spawn(self._serve(name, broker, serves, leave), name), serves, leave
        )
        self._running[name] = running
        running.task.add_done_callback(lambda _: serves.set())
        return serves

    async def stop(self, name: str) -> None:
        """Let a broker leave in order, also one that waits for others before it serves."""
        running = self._running[name]
        running.leave.set()
        if not running.serves.is_set():
            running.broker.stop_waiting()
        await running.task
        del self._running[name]

    def kill(self, name: str) -> None:
        """End a broker at once, as `kill -9` does: its files hold all that it wrote."""
        self._end(name, deepcopy(self.disks[name]).restart())

    def lose_power(self, name: str) -> None:
        """End a broker at once, with any of what it did not sync."""
        self._end(name, self.disks[name].lose_power(self.random))

    async def trouble(self, times: int, *, every_s: float) -> None:
        """End one broker after the other in one way or another, and start each again.

        Args:
            times: How many.
            every_s: The longest pause before each.
        """
        for _ in range(times):
            await asyncio.sleep(self.random.random() * every_s)
            name = self.random.choice(self.running)
            end: Any = self.random.choice([self.kill, self.lose_power, self.stop])
            if (ending := end(name)) is not None:
                await ending
            await asyncio.sleep(self.random.random() * 3)
            await self.start(name)

    def destroy_disk(self, name: str) -> None:
        """End a broker at once, with all that it had."""
        self._end(name, PowerLossFileSystem())

    def _end(self, name: str, left: PowerLossFileSystem) -> None:
        running = self._running.pop(name)
        running.is_dead = True
        left.locks.clear()
        self.disks[name] = left
        self.network.kill(name)
        running.task.cancel()

    async def _serve(
        self, name: str, broker: Broker, serves: asyncio.Event, leave: asyncio.Event
    ) -> None:
        try:
            async with broker:
                serves.set()
                await leave.wait()
        except Exception:
            running = self._running.get(name)
            if running is not None and running.broker is broker:
                raise  # nobody killed it

    async def put_topic(self, topic: str, queues: int = 4) -> None:
        """Give every master a topic: its queues stay while brokers come and go."""
        for name in self.masters():
            client = await self.connect(name)
            await client.put_topic(topic, queues)
            await client.connection.close()

    async def connect(self, name: str, host: str = "admin") -> Client:
        """Return a connection to a broker."""
        return Client(await self.network.host(host).connect([Address(name, PORT)]))

    async def ask(self, name: str, rpc: UnaryRpc[Req, Rep], request: Req) -> Rep:
        """Return what a broker answers to an operator's request."""
        client = await self.connect(name)
        try:
            return await client.connection.call(rpc, request, timeout_s=30)
        finally:
            await client.connection.close()

    def producer(self, host: str = "producer", group: str = "senders", **options: Any) -> Producer:
        """Return a producer, not entered."""
        nameserver = self.nameservers.addresses
        return Producer(group, nameserver=nameserver, env=self.environment(host), **options)

    def next_id(self) -> str:
        """Return an id that no message has yet."""
        self._ids += 1
        return f"m{self._ids}"

    async def send(
        self,
        send: Producer | Sender,
        topic: str,
        message_id: str = "",
        *,
        size: int = 0,
        key: str = "",
        not_before_ms: int = 0,
        **fields: Any,
    ) -> SendResult | TernError:
        """Send one message, note what its sender learned, and return that."""
        message_id = message_id or self.next_id()
        message = Message(topic, make_body(message_id, size), sharding_key=key, **fields)
        sender = send.send if isinstance(send, Producer) else send
        sent = self.history.note_sent(
            message_id, topic, Outcome.UNKNOWN, key=key, not_before_ms=not_before_ms
        )
        try:
            result = await sender(message)
        except TernError as error:
            sent.outcome = Outcome.UNKNOWN if error.may_have_happened else Outcome.REFUSED
            return error
        # Any other status says that a failure may lose it.
        is_safe = result.status is SendStatus.SEND_OK
        sent.outcome = Outcome.STORED if is_safe else Outcome.UNKNOWN
        return result

    def decided(self, message_id: str, decision: Decision) -> None:
        """Note what became of a message's transaction."""
        self.history.sent[message_id].decision = decision

    def listener(
        self, group: str, *, wants: Wants = lambda _: True, work_s: float = 0.0
    ) -> Callable[[StoredMessage], Awaitable[bool]]:
        """Return a listener that notes what it gets.

        Args:
            group: Whose it is.
            wants: Tells whether it finishes a message; else it asks for it again.
            work_s: The longest time that it takes.
        """

        async def listen(message: StoredMessage) -> bool:
            if work_s:
                await asyncio.sleep(self.random.random() * work_s)
            is_finished = wants(message)
            self.history.deliveries.append(
                Delivery(
                    id_of(message.body),
                    group,
                    message.body,
                    message.queue,
                    message.queue_offset,
                    self.now_ms(),
                    message.reconsume_times,
                    is_finished,
                )
            )
            return is_finished

        return listen

    def now_ms(self) -> int:
        """Return the wall clock of a host whose clock is right."""
        return VirtualClock().wall_ms()

    async def consumed(
        self, group: str, *, but: frozenset[str] = frozenset(), timeout_s: float = 600
    ) -> None:
        """Wait until the group has finished every message but those of `but`.

        One counts that is acknowledged, or that lies in its topic though its sender knows nothing.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    if not await self._unfinished(group, but):
                        return
                    await asyncio.sleep(0.5)

    async def _unfinished(self, group: str, but: frozenset[str]) -> set[str]:
        done = but | {
            each.message_id
            for each in self.history.deliveries
            if each.group == group and each.is_finished
        }
        left = {
            name: sent
            for name, sent in self.history.sent.items()
            if name not in done and sent.decision in (Decision.NONE, Decision.COMMITTED)
        }
        stored = {name for name, sent in left.items() if sent.outcome is Outcome.STORED}
        unknown = {name for name, sent in left.items() if sent.outcome is Outcome.UNKNOWN}
        if not stored and unknown:
            topics = {left[name].topic for name in unknown}
            lying = [record for topic in topics for _, record in await self.records(topic)]
            stored = unknown & {id_of(record.body) for record in lying}
        return stored

    async def records(self, topic: str) -> list[tuple[MessageQueue, StoredMessage]]:
        """Return every record of a topic, of every master that runs."""
        found: list[tuple[MessageQueue, StoredMessage]] = []
        for name in self.masters():
            client = await self.connect(name, "scanner")
            found += await records_of(client, topic, broker_name_of(name))
            await client.connection.close()
        return found

    async def scan(self, topic: str, *, groups: Sequence[str] = ()) -> None:
        """Note every record of a topic, and every dead letter of the groups."""
        self.history.lying += [lying_of(*each) for each in await self.records(topic)]
        for group in groups:
            letters = await self.records(DEAD_LETTER_PREFIX + group)
            self.history.dead[group] = [lying_of(*each) for each in letters]


def broker_name_of(member: str) -> str:
    """Return the broker name that a member shares."""
    return member.partition("-")[0]


async def records_of(
    client: Client, topic: str, broker_name: str
) -> list[tuple[MessageQueue, StoredMessage]]:
    """Return every record of a broker's topic; none when it does not exist."""
    found: list[tuple[MessageQueue, StoredMessage]] = []
    try:
        request = admin.DescribeTopicRequest(topic=topic)
        described: admin.DescribeTopicReply = await client.call(
            service_methods.DESCRIBE_TOPIC, request
        )
    except TernError:
        return []
    for status in described.queues:
        queue = MessageQueue(topic, broker_name, status.queue_id)
        offset = status.min_offset
        while offset < status.max_offset:
            reply = await client.pull(topic, offset, queue_id=status.queue_id)
            if reply.status.code == ResponseCode.PULL_NOT_FOUND:
                await asyncio.sleep(0.1)  # it is not dispatched yet
                continue
            sizes = np.frombuffer(reply.record_sizes, dtype="<i4")
            found += [(queue, each) for each in decode_records(reply.records, sizes, queue)]
            offset = reply.next_offset
    return found


def lying_of(queue: MessageQueue, message: StoredMessage) -> Lying:
    """Return a record as a history notes it."""
    body = message.body
    return Lying(id_of(body), body, queue, message.queue_offset, message.stored_at_ms)


@asynccontextmanager
async def simulated_cluster(
    seed: int = 1,
    *,
    brokers: Sequence[str] = ("a", "b"),
    mode: FlushMode = FlushMode.SYNC,
    store: StoreConfig = CLUSTER_STORE,
    latency_s: float = 0.002,
    nameservers: int = 1,
    durable_nameservers: bool = True,
    **broker_settings: Any,
) -> AsyncGenerator[SimulatedCluster]:
    """Give a cluster with NameServers and these brokers, all of which serve.

    Args:
        seed: Of everything that is drawn.
        brokers: Their names, which are their hosts' names too.
        mode: How they flush.
        store: How they keep messages.
        latency_s: The longest way of a message through the network.
        nameservers: How many.
        durable_nameservers: They keep the highest epochs over a restart.
        broker_settings: Other settings of every broker.
    """
    random = Random(seed)
    network = MemoryNetwork(random, latency_s=lambda chance: chance.random() * latency_s)
    async with (
        network,
        simulated_nameservers(
            network, nameservers, seed=seed, is_durable=durable_nameservers
        ) as named,
        OwnedTasks() as tasks,
    ):
        settings = dict(broker_settings)
        cluster = SimulatedCluster(seed, network, random, tasks, mode, store, settings, named)
        for name in brokers:
            await cluster.start(name)
        yield cluster
        for name in cluster.running:
            await cluster.stop(name)
