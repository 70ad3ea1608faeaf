"""A group of one to twelve members that join, leave, die and are cut off, in a whole cluster.

NameServer, two brokers, a producer that sends all the while, and members on hosts of their own, on
virtual time and from one seed. A run is a row of rounds: changes in quick succession, then a calm.
Held to be true:

* Nothing that was acknowledged stays unconsumed, and nothing else is consumed.
* Two rebalance periods after the last change every queue has one owner, and members compute shares
  of equal size.
* Messages come twice only in the wake of a change, never in a calm.
* With orderly consumers no two members ever work on one queue at a time, and each queue is consumed
  in its order.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import pytest

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.config import ClientConfig
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import Unreachable
from ternmq_model.queue import MessageQueue
from ternmq_model.route import TopicConfig
from ternmq_model.stored_message import StoredMessage
from ternmq_store.config import FlushMode
from ternmq_testing.time.virtual_time import run_in_virtual_time
from tests.support.examples import seeds
from tests.support.history import GroupRules
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster, simulated_cluster
from tests.support.slow_jobs import slow_jobs

TOPIC: Final = "orders"
GROUP: Final = "readers"
QUEUES: Final = [MessageQueue(TOPIC, name, number) for name in "ab" for number in range(4)]
MEMBERS_MAX: Final = 12
ROUNDS: Final = 4
SEND_EVERY_S: Final = 0.5
BURST: Final = 300
"""Messages sent at once in every round, so that members have many in hand when they are cut off."""

WORK_S: Final = 0.05
ORDERLY_WORK_S: Final = 1.0
"""The longest listener call. Less than the time between the end of the trust in a lock and its end
at the broker; and so long that a member that is cut off has work in hand until long after that."""

PLAIN: Final = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, workers=4)
ORDERLY: Final = replace(PLAIN, order_per_queue=True)
SETTLED_AFTER_S: Final = 2 * PLAIN.rebalance_s
CALM_S: Final = 15.0
ROUTE_REFRESH_S: Final = ClientConfig().route_refresh_s

SEEDS: Final = seeds(4, soak=300)
STRATEGIES: Final = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM_NEARBY-AVG")


@dataclass
class Member:
    """One consumer on a host of its own."""

    host: str
    make: Callable[[], PushConsumer]
    consumer: PushConsumer | None = None
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None

    async def run(self) -> None:
        """Consume until told to leave; who cannot join tries again."""
        while not self.leaving.is_set():
            self.consumer = self.make()
            with suppress(Unreachable):
                async with self.consumer:
                    await self.leaving.wait()
            await asyncio.sleep(0.1)

    def owned(self) -> list[MessageQueue]:
        """Return the queues that the consumer owns."""
        owned = self.consumer.assignment() if self.consumer else []
        return [queue for queue in owned if queue.topic == TOPIC]


@dataclass
class Group:
    """The members, and what their listeners saw. Owned by one test."""

    cluster: SimulatedCluster
    config: PushConsumerConfig
    members: list[Member] = field(default_factory=list[Member])
    ended: "list[asyncio.Task[None]]" = field(default_factory=list["asyncio.Task[None]"])
    changes: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """When, and what."""
    working: dict[MessageQueue, str] = field(default_factory=dict[MessageQueue, str])
    two_at_a_time: list[str] = field(default_factory=list[str])
    finished: dict[str, float] = field(default_factory=dict[str, float])
    """When each message was finished last."""
    late_duplicates: list[str] = field(default_factory=list[str])
    joined: int = 0

    def join(self) -> None:
        """Let a new member come."""
        self.joined += 1
        host = f"host-{self.joined}"
        listener, environment = self._listener(host), self.cluster.environment(host)
        member = Member(
            host,
            lambda: PushConsumer(
                GROUP,
                TOPIC,
                listener=listener,
                nameserver=NAMESERVER,
                config=self.config,
                env=environment,
            ),
        )
        member.task = self.cluster.tasks.spawn(member.run(), host)
        self.members.append(member)
        self._note(f"{host} joins")

    def leave(self, member: Member) -> None:
        """Let a member go in order."""
        member.leaving.set()
        self._remove(member, "leaves")

    def kill(self, member: Member) -> None:
        """Let a member die: its tasks stop, and its host says nothing more."""
        assert member.task is not None
        self.cluster.network.kill(member.host)
        member.task.cancel()
        self._remove(member, "dies")

    def isolate(self, member: Member) -> None:
        """Cut a member off; it does not know that anything has changed, and works on."""
        for other in ("ns", "a", "b"):
            self.cluster.network.partition(member.host, other)
        self._note(f"{member.host} is cut off")

    def heal(self) -> None:
        """End every partition."""
        self.cluster.network.heal()
        self._note("all are connected")

    def change(self) -> None:
        """Let something happen to the group; it has one member to twelve."""
        random = self.cluster.random
        happening = random.choice(["join", "join", "leave", "kill", "cut", "isolate", "heal"])
        member = random.choice(self.members)
        if happening == "join" and len(self.members) < MEMBERS_MAX:
            self.join()
        elif happening in ("leave", "kill") and len(self.members) > 1:
            getattr(self, happening)(member)
        elif happening == "cut":
            self.cluster.network.cut(member.host)
            self._note(f"{member.host} loses its connections")
        elif happening == "isolate":
            self.isolate(member)
        elif happening == "heal":
            self.heal()

    async def end(self) -> None:
        """Let everybody leave."""
        for member in list(self.members):
            self.leave(member)
        await asyncio.wait(self.ended)

    def check_owners(self, queues: Sequence[MessageQueue] = QUEUES) -> None:
        """Assert that each of these queues has one owner, and that there are no others."""
        owners = Counter(queue for member in self.members for queue in member.owned())
        told = f"seed {self.cluster.seed}: {owners} after {self.changes[-5:]}"
        assert sorted(owners) == queues, told
        assert set(owners.values()) == {1}, told

    def _remove(self, member: Member, what: str) -> None:
        assert member.task is not None
        self.members.remove(member)
        self.ended.append(member.task)
        self._note(f"{member.host} {what}")

    def _note(self, what: str) -> None:
        self.changes.append((asyncio.get_running_loop().time(), what))

    def _listener(self, host: str) -> Callable[[StoredMessage], Awaitable[bool]]:
        work_s = ORDERLY_WORK_S if self.config.order_per_queue else WORK_S
        deliver = self.cluster.listener(GROUP, work_s=work_s)

        async def listen(message: StoredMessage) -> bool:
            at_work = self.working.get(message.queue)
            if at_work not in (None, host):
                now_s = asyncio.get_running_loop().time()
                self.two_at_a_time.append(f"{message.queue}: {at_work} and {host} at {now_s:.2f}")
            self.working[message.queue] = host
            try:
                answer = await deliver(message)
            finally:
                self.working.pop(message.queue, None)
            self._count(message)
            return answer

        return listen

    def _count(self, message: StoredMessage) -> None:
        name = self.cluster.history.deliveries[-1].message_id
        now_s = asyncio.get_running_loop().time()
        if self.finished.get(name, 0.0) > self.changes[-1][0] + SETTLED_AFTER_S:
            self.late_duplicates.append(f"{name} from {message.queue} at {now_s:.1f}")
        self.finished[name] = now_s


async def send_all_the_while(cluster: SimulatedCluster, *, keys: int) -> None:
    """Send until cancelled; with keys, messages of one key lie in one queue in order."""
    async with cluster.producer() as producer:
        number = 0
        while True:
            number += 1
            await cluster.send(producer, TOPIC, key=f"k{number % keys}" if keys else "")
            await asyncio.sleep(cluster.random.random() * 2 * SEND_EVERY_S)


async def send_burst(cluster: SimulatedCluster) -> None:
    """Send many messages at once."""
    async with cluster.producer("burst") as producer:
        await asyncio.gather(*(cluster.send(producer, TOPIC) for _ in range(BURST)))


async def live(group: Group) -> None:
    """Let members come and go, with a calm at the end of each round in which all is well."""
    cluster = group.cluster
    for _ in range(ROUNDS):
        await send_burst(cluster)
        for _ in range(cluster.random.randrange(2, 10)):
            group.change()
            await asyncio.sleep(cluster.random.random() * 8)
        group.heal()
        with slow_jobs(2):
            await asyncio.sleep(SETTLED_AFTER_S)
            group.check_owners()
            await asyncio.sleep(CALM_S)
            group.check_owners()


async def run(seed: int, config: PushConsumerConfig, *, keys: int) -> Group:
    """Run one seed to its end, check what all groups are promised, and return the group."""
    async with simulated_cluster(seed, mode=FlushMode.ASYNC) as cluster:
        group = Group(cluster, config)
        group.join()
        sending = cluster.tasks.spawn(send_all_the_while(cluster, keys=keys), "send")
        await live(group)
        sending.cancel()
        await asyncio.wait([sending])
        await cluster.consumed(GROUP)
        await group.end()
        await cluster.scan(TOPIC, groups=[GROUP])
        rules = GroupRules(GROUP, frozenset({TOPIC}), is_orderly=config.order_per_queue)
        cluster.history.check([rules], seed=seed)
    assert not group.late_duplicates, f"seed {seed}: twice in a calm: {group.late_duplicates[:5]}"
    assert len(group.finished) > 500
    return group


@pytest.mark.parametrize("seed", SEEDS)
def test_every_queue_keeps_an_owner_while_members_come_and_go(
    seed: int,
) -> None:
    config = replace(PLAIN, allocate=STRATEGIES[seed % len(STRATEGIES)])
    run_in_virtual_time(run(seed, config, keys=0))


@pytest.mark.parametrize("seed", SEEDS)
def test_orderly_queue_never_has_two_owners_and_keeps_its_order(seed: int) -> None:
    async def main() -> None:
        group = await run(seed, ORDERLY, keys=20)
        assert not group.two_at_a_time, f"seed {seed}: {group.two_at_a_time[:5]}"

    run_in_virtual_time(main())


@pytest.mark.parametrize("config", [PLAIN, ORDERLY], ids=["concurrent", "orderly"])
def test_added_queues_of_a_topic_are_shared_out_and_removed_ones_left(
    config: PushConsumerConfig,
) -> None:
    async def main() -> None:
        async with (
            simulated_cluster(5, mode=FlushMode.ASYNC) as cluster,
            AdminClient(nameserver=NAMESERVER, env=cluster.environment("operator")) as admin,
        ):
            group = Group(cluster, config)
            for queues in (4, 7, 2):
                await admin.create_topic(TopicConfig(TOPIC, queues, queues))
                if not group.members:
                    for _ in range(3):
                        group.join()
                await send_burst(cluster)
                await asyncio.sleep(ROUTE_REFRESH_S + SETTLED_AFTER_S)
                group.check_owners(
                    [MessageQueue(TOPIC, name, number) for name in "ab" for number in range(queues)]
                )
            await cluster.consumed(GROUP)
            await group.end()

    run_in_virtual_time(main())
