"""Cluster of one exploration: on virtual time, with latencies, disks and faults of a seed."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from random import Random
from typing import Any, ClassVar, Final

from ternmq_client.admin.admin_client import AdminClient
from ternmq_consumer.config import MessageModel
from ternmq_consumer.listener.listener_call import Listener
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_consumer.subscriptions import Subscriptions
from ternmq_model.errors import GroupNotFound
from ternmq_model.names import is_system_topic
from ternmq_model.queue import MessageQueue
from ternmq_producer.transactions.transaction_checks import Check
from ternmq_producer.transactions.transaction_producer import Execute
from ternmq_remoting.environment import Blocking, Environment, EnvironmentUser
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import FlushMode
from ternmq_testing.cluster.cluster import Cluster
from ternmq_testing.cluster.wires import CLIENTS, MemoryWires, Wires
from ternmq_testing.explore.journal import ConsumeJournal, Journal
from ternmq_testing.explore.noted_clients import (
    NotedPullConsumer,
    NotedPushConsumer,
    NotedTransactionProducer,
)
from ternmq_testing.explore.promises import Stored, broken_promises
from ternmq_testing.explore.trouble import Trouble, TwinnedConsumer
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.cluster_time import ClusterTime
from ternmq_testing.time.virtual_time import VirtualClock

_LATENCIES_S: Final = (0.0002, 0.002, 0.02, 0.1)
"""Longest ways of a message through the network."""

_DISK_S: Final = 0.005
_BACK_S: Final = 2.0
"""Time in which clients find brokers that are back: they try about each second."""

_SETTLED_S: Final = 300.0


class ExploredCluster(Cluster):
    """Cluster of one seed, which `explore` gives to a scenario. See `Cluster`.

    Time is virtual: nothing takes real time but computing. Clients that it makes are noted.

    Args:
        faults: Names of the faults that may strike.
        seed: Seed of everything.
        settings: Other arguments of `Cluster`.

    Attributes:
        random: Random numbers for the scenario, from the seed.
    """

    _look_s: ClassVar = 0.5

    def __init__(self, *, faults: Collection[str], seed: int, **settings: Any) -> None:
        super().__init__(seed=seed, **settings)
        self._faults = faults
        self.random = Random(f"{seed} scenario")
        self._draws = Random(f"{seed} faults")
        self._latency_s = self._draws.choice(_LATENCIES_S)
        self.slow_s: dict[str, float] = {}
        self.members: dict[TwinnedConsumer, None] = {}
        self.network: MemoryNetwork

        self.journal: Journal
        self._settled_events = -1
        self._open_members: dict[NotedPushConsumer, str] = {}

    @property
    def history(self) -> str:
        """Events with their times, one per line."""
        return self.journal.text() if hasattr(self, "journal") else ""

    async def _open(self, stack: AsyncExitStack) -> None:
        await super()._open(stack)
        tasks = await stack.enter_async_context(OwnedTasks())
        timers = self.time.agenda()
        self._trouble = Trouble(self, timers, self._draws, self._faults, tasks)

    def _new_time(self) -> ClusterTime:
        time = ClusterTime(VirtualClock())
        self.journal = Journal(time.now_s, time.wall_ms, lambda: self._trouble.begin())
        self._joined = ConsumeJournal(self.journal)
        return time

    def _new_wires(self, time: ClusterTime, random: Random) -> AbstractAsyncContextManager[Wires]:
        return self._wires_in_memory(time, random)

    @asynccontextmanager
    async def _wires_in_memory(self, time: ClusterTime, random: Random) -> AsyncGenerator[Wires]:
        longest_s = self._latency_s
        self.network = MemoryNetwork(
            random,
            latency_s=lambda draw: draw.random() * longest_s,
            timers=time.agenda(),
            on_message=time.note_activity,
        )
        async with self.network:
            yield MemoryWires(self.network)

    def _blocking_of(self, host: str) -> Blocking:
        random = Random(f"{self._seed} disk of {host}")

        def delay_s() -> float:
            return random.random() * self.slow_s.get(host, _DISK_S)

        return InlineBlocking(delay_s, lambda: random.random() < 0.5, timers=self.time.agenda())

    def note(self, text: str) -> None:
        """Add an event to the journal."""
        super().note(text)
        if hasattr(self, "journal"):
            self.journal.note(text)

    def transaction_producer(
        self, group: str, *, execute: Execute, check: Check, **options: Any
    ) -> NotedTransactionProducer:
        """Return a transaction producer whose sends and outcomes are noted."""
        options |= {"execute": execute, "env": self.environment}
        return NotedTransactionProducer(self.journal, group, check=check, **options)

    def pull_consumer(self, group: str = "", **options: Any) -> NotedPullConsumer:
        """Return a pull consumer whose messages are noted. See `Cluster.pull_consumer`."""
        return NotedPullConsumer(self.journal, group, env=self.environment, **options)

    def push_consumer(
        self, group: str, topics: Subscriptions, *, listener: Listener | None = None, **options: Any
    ) -> PushConsumer:
        """Return a push consumer whose messages are noted. See `Cluster.push_consumer`.

        One with a listener may get company: another member of its group, with the same listener.
        """
        options |= {"listener": listener}

        def join(host: str) -> PushConsumer:
            return PushConsumer(group, topics, env=self._environment_on(host), **options)

        def on_open(opened: NotedPushConsumer) -> Callable[[], Awaitable[None]]:
            self._open_members[opened] = group
            consumer = TwinnedConsumer(group, join)
            if _may_have_company(options):
                self.members[consumer] = None

            async def leave() -> None:
                self.members.pop(consumer, None)
                del self._open_members[opened]
                await consumer.leave()

            return leave

        env = self.environment
        return NotedPushConsumer(self.journal, on_open, group, topics, env=env, **options)

    def environment(self, client: EnvironmentUser) -> AbstractAsyncContextManager[Environment]:
        """Return the environment of a client, whose sends and deliveries are noted.

        See `Cluster.environment`.
        """
        return self._noted(super().environment(client))

    @asynccontextmanager
    async def _noted(
        self, opened: AbstractAsyncContextManager[Environment]
    ) -> AsyncGenerator[Environment]:
        async with opened as env:
            yield replace(
                env,
                blocking=self._blocking_of(CLIENTS),
                send_interceptors=(self.journal.sender(),),
                consume_interceptors=(self._joined,),
            )

    def _environment_on(self, host: str) -> Environment:
        """Return the environment of a client on a host of its own."""
        self.network.elsewhere[host] = self._nameserver
        return Environment(
            clock=self.time,
            timers=self.time.agenda(),
            network=self.network.host(host),
            random=Random(self._draws.getrandbits(64)),
            blocking=self._blocking_of(host),
            consume_interceptors=(self._joined,),
        )

    async def settled(self, *, timeout_s: float = _SETTLED_S) -> None:
        """End all faults, let crashed brokers come back, and wait until groups have caught up.

        No fault strikes any more. What waits for its time (delays, retries) is not awaited.

        Raises:
            AssertionError: The cluster did not settle within `timeout_s` of virtual time.
        """
        await self._trouble.end()
        self.heal()
        for broker in self.brokers:
            if not broker.is_running:  # the scenario itself has ended it
                await broker.start()
        if len(self.journal.events) == self._settled_events:
            return
        self.note("no more faults")
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        await asyncio.sleep(_BACK_S)
        await super().settled(timeout_s=max(0, until_s - loop.time()))
        self.note("settled")
        self._settled_events = len(self.journal.events)

    async def _groups_behind(self, admin: AdminClient) -> str:
        """Return the groups that have not caught up, or whose members are not back yet."""
        missing = dict(self._open_members)
        for group in dict.fromkeys(self._open_members.values()):
            with suppress(GroupNotFound):
                known = {each.client_id for each in (await admin.describe_group(group)).members}
                missing = {each: of for each, of in missing.items() if each.client_id not in known}
        if missing:
            return f"members are not back: {', '.join(sorted(missing.values()))}"
        return await super()._groups_behind(admin)

    def broken_promises(self) -> list[str]:
        """Return a sentence for each broken promise. Called when the cluster has settled."""
        starts: dict[MessageQueue, int] = {}
        topics: dict[str, None] = {}
        for name, env in self._stores.items():
            for topic, queue_id in env.store.queues():
                if not is_system_topic(topic):
                    topics[topic] = None
                    start, _ = env.store.queue_range(topic, queue_id)
                    starts[MessageQueue(topic, name, queue_id)] = start
        messages = [each for topic in topics for each in self.messages(topic)]
        return broken_promises(
            self.journal,
            Stored.of(messages, starts),
            now_ms=self.time.wall_ms(),
            is_durable=self._flush is FlushMode.SYNC,
        )


def _may_have_company(options: dict[str, Any]) -> bool:
    """Return whether another member can consume like this one: by its listener, in its group."""
    kinds = ("listener", "batch_listener", "columns_listener")
    config, client = options.get("config"), options.get("client")
    is_broadcast = config is not None and config.message_model is MessageModel.BROADCASTING
    has_name = client is not None and client.instance_name
    return any(options.get(kind) for kind in kinds) and not is_broadcast and not has_name
