"""Everything that clients do, at once, on a simulated cluster: senders, groups, members that die.

A `Load` draws what is sent and how, keeps what its groups were promised, and has one method for
each kind of sender and of member. A member comes and goes by itself: each of its lives has a host
of its own, and ends in order or by death. What a dead one still does counts for nothing.
"""

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final

from ternmq_client.config import ClientConfig
from ternmq_consumer.config import (
    ConsumeFrom,
    MessageModel,
    OffsetsKept,
    PullConsumerConfig,
    PushConsumerConfig,
)
from ternmq_consumer.process_queue.queue_locks import TRUST_MS
from ternmq_consumer.pull.pull_consumer import PullConsumer
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_consumer.subscriptions import Subscriptions
from ternmq_model.errors import TernError
from ternmq_model.message import Message, SendResult, SendStatus
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_model.subscription import sql
from ternmq_model.transaction import Resolution
from ternmq_producer.producer import Producer
from ternmq_producer.transactions.transaction_producer import TransactionProducer
from ternmq_runtime.service import OwnedTasks
from tests.support.history import Decision, Delivery, GroupRules, Outcome, id_of, make_body
from tests.support.simulated_cluster import NAMESERVER, SimulatedCluster

CLOCKS_APART_MS: Final = 5
"""Two clocks that are read to the millisecond, in two brokers one after the other."""

PLAIN: Final = "plain"
KEYED: Final = "keyed"
PAID: Final = "paid"
CONCURRENT: Final = "concurrent"
ORDERLY: Final = "orderly"
FILTERED: Final = "filtered"
PULLING: Final = "pulling"
BROADCAST: Final = "broadcast"
RETRIES: Final = 3
TAGS: Final = ("red", "green", "blue")
CONDITIONS: Final[tuple[Subscriptions, ...]] = (
    {PLAIN: "red || green"},
    {PLAIN: sql("number > 4 AND TAGS IS NOT NULL")},
    {PLAIN: sql("TAGS = 'blue' OR number BETWEEN 2 AND 3")},
)
BOTH: Final = {PLAIN: "*", PAID: "*"}
_FIRST: Final = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, workers=8)


def _takes(condition: int, tag: str, number: int) -> bool:
    """Tell what `CONDITIONS[condition]` should say of a message."""
    if condition == 0:
        return tag in ("red", "green")
    return number > 4 if condition == 1 else tag == "blue" or number in (2, 3)


@dataclass(slots=True)
class Life:
    """One life of a member."""

    host: str
    is_dead: bool = False


@dataclass(slots=True)
class Call:
    """A message in the hands of an orderly member."""

    life: Life
    message_id: str
    began_s: float
    ended_s: float = float("inf")


@dataclass
class Load:
    """What is done to one cluster. Owned by its test.

    Attributes:
        keeps_time: Whether brokers' clocks are right, so that a time asked for means something.
        hosts: Where a client lives at present.
        starts_s: When each broker was started again; told by the test.
    """

    cluster: SimulatedCluster
    folder: Path
    keeps_time: bool = True
    rows: dict[str, Resolution] = field(default_factory=dict[str, Resolution])
    batches: list[list[str]] = field(default_factory=list[list[str]])
    taken: set[str] = field(default_factory=set[str])
    doomed: set[str] = field(default_factory=set[str])
    calls: defaultdict[MessageQueue, list[Call]] = field(
        default_factory=lambda: defaultdict(list[Call])
    )
    hosts: list[str] = field(default_factory=lambda: ["producer"])
    starts_s: defaultdict[str, list[float]] = field(
        default_factory=lambda: defaultdict(list[float])
    )
    _left: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    _lives: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.condition = self._random.randrange(len(CONDITIONS))

    @property
    def _random(self) -> Random:
        return self.cluster.random

    # What is sent.

    def message(self, topic: str, message_id: str, **more: Any) -> Message:
        """Draw a message, and what becomes of it in each group."""
        random = self._random
        tag, number = random.choice(TAGS), random.randrange(10)
        size = random.choice((0, 100, 100, 1000, 9000))
        if topic == PLAIN:
            if _takes(self.condition, tag, number):
                self.taken.add(message_id)
            if random.random() < 0.04:
                self.doomed.add(message_id)
        for group in (CONCURRENT, ORDERLY, FILTERED):
            if random.random() < 0.1:
                self._left[group, message_id] = random.randrange(1, 3)
        return Message(
            topic,
            make_body(message_id, size),
            tags=tag,
            properties={"number": str(number)},
            **more,
        )

    async def send_one(self, producer: Producer) -> None:
        """Send one message in one of the ways."""
        way = self._random.choice(("plain", "plain", "delayed", "timed", "one way", "batch"))
        if way == "one way":
            await self._send([self.cluster.next_id()], self._one_way(producer))
        elif way == "batch":
            names = [self.cluster.next_id() for _ in range(self._random.randrange(2, 6))]
            self.batches.append(names)
            await self._send(names, self._batch(producer))
        else:
            await self._send_plain(producer, way)

    async def _send_plain(self, producer: Producer, way: str) -> None:
        more: dict[str, Any] = {}
        after_ms = 0
        if way == "delayed":
            level = self._random.randrange(1, 4)
            more, after_ms = {"delay_level": level}, (1000, 5000, 10_000)[level - 1]
        elif way == "timed":
            after_ms = self._random.randrange(1, 40_000)
            more = {"deliver_after_ms": after_ms}
            if self._random.random() < 0.5:
                more = {"deliver_at_ms": self.cluster.now_ms() + after_ms}
        due_ms = 0
        if after_ms and self.keeps_time:
            due_ms = self.cluster.now_ms() + after_ms - CLOCKS_APART_MS

        async def send(messages: Sequence[Message]) -> bool:
            return (await producer.send(messages[0])).status is SendStatus.SEND_OK

        await self._send([self.cluster.next_id()], send, not_before_ms=due_ms, **more)

    def _one_way(self, producer: Producer) -> Callable[[Sequence[Message]], Awaitable[bool]]:
        async def send(messages: Sequence[Message]) -> bool:
            await producer.send_one_way(messages[0])
            return False

        return send

    def _batch(self, producer: Producer) -> Callable[[Sequence[Message]], Awaitable[bool]]:
        async def send(messages: Sequence[Message]) -> bool:
            results = await producer.send_batch(messages)
            return all(each.status is SendStatus.SEND_OK for each in results)

        return send

    async def _send(
        self,
        names: Sequence[str],
        send: Callable[[Sequence[Message]], Awaitable[bool]],
        *,
        not_before_ms: int = 0,
        **more: Any,
    ) -> None:
        """Send messages, and note what their sender learned; False = they may be lost."""
        history = self.cluster.history
        sent = [
            history.note_sent(name, PLAIN, Outcome.UNKNOWN, not_before_ms=not_before_ms)
            for name in names
        ]
        outcome = Outcome.UNKNOWN
        try:
            if await send([self.message(PLAIN, name, **more) for name in names]):
                outcome = Outcome.STORED
        except TernError as error:
            outcome = Outcome.UNKNOWN if error.may_have_happened else Outcome.REFUSED
        for each in sent:
            each.outcome = outcome

    async def send_in_order(self, producer: Producer, key: str, count: int) -> None:
        """Send messages of one key, each when the one before was answered."""
        for _ in range(count):
            name = self.cluster.next_id()

            async def send(message: Message) -> SendResult:
                return await producer.send(
                    replace(self.message(KEYED, id_of(message.body)), sharding_key=key)
                )

            await self.cluster.send(send, KEYED, name, key=key)
            await asyncio.sleep(self._random.random() * 0.2)

    # Transactions: the data base is `rows`.

    def payer(self, host: str) -> TransactionProducer:
        """Return a producer of transactions, not entered."""
        return TransactionProducer(
            "payers",
            execute=self._execute,
            check=self._check,
            topics=(PAID,),
            nameserver=NAMESERVER,
            env=self.cluster.environment(host),
        )

    async def _execute(self, message: Message, wanted: Resolution) -> Resolution:
        await asyncio.sleep(self._random.random() * 0.05)
        if wanted is Resolution.UNKNOWN:
            return wanted
        return self.rows.setdefault(id_of(message.body), wanted)

    async def _check(self, message: StoredMessage) -> Resolution:
        return self.rows.setdefault(id_of(message.body), Resolution.ROLLBACK)

    async def pay(self, producer: TransactionProducer) -> None:
        """Do one transaction."""
        name = self.cluster.next_id()
        sent = self.cluster.history.note_sent(name, PAID, Outcome.UNKNOWN)
        sent.decision = Decision.IN_DOUBT
        wanted = self._random.choice((*[Resolution.COMMIT] * 3, *Resolution))
        try:
            await producer.send(self.message(PAID, name), wanted)
            sent.outcome = Outcome.STORED
        except TernError as error:
            if not error.may_have_happened:
                sent.outcome = Outcome.REFUSED

    async def pay_and_die(self) -> None:
        """Do transactions in many lives, until cancelled."""
        random = self._random
        while True:
            host = f"payer-{next(self._lives)}"
            task = self.cluster.tasks.spawn(self._keep_paying(host), host)
            try:
                await asyncio.wait([task], timeout=2 + random.random() * 10)
                if random.random() < 0.5:
                    self.cluster.network.kill(host)
            finally:
                task.cancel()
                await asyncio.wait([task])

    async def _keep_paying(self, host: str) -> None:
        async with self.payer(host) as payer, OwnedTasks() as tasks:
            self.hosts.append(host)
            try:
                while True:
                    tasks.spawn(self.pay(payer), "pay")
                    await asyncio.sleep(self._random.random() * 3)
            finally:
                self.hosts.remove(host)

    def decide(self) -> None:
        """Note what became of every transaction, by the data base; without a row it never was.

        What was committed there must lie in its topic, whatever its sender learned.
        """
        for name, sent in self.cluster.history.sent.items():
            if sent.decision is not Decision.NONE:
                is_done = self.rows.get(name) is Resolution.COMMIT
                sent.outcome = Outcome.STORED if is_done else sent.outcome
                sent.decision = Decision.COMMITTED if is_done else Decision.ROLLED_BACK

    # Who consumes.

    def wants(self, group: str, message: StoredMessage) -> bool:
        """Tell whether a listener finishes the message this time."""
        name = id_of(message.body)
        if group == CONCURRENT and name in self.doomed:
            return False
        self._left[group, name] -= 1
        return self._left[group, name] < 0

    def _listener(
        self, group: str, life: Life, name: str
    ) -> Callable[[StoredMessage], Awaitable[bool]]:
        deliver = self.cluster.listener(
            name, wants=lambda message: group == BROADCAST or self.wants(group, message)
        )

        async def listen(message: StoredMessage) -> bool:
            if life.is_dead:
                return False
            call = Call(life, id_of(message.body), _now_s())
            if group == ORDERLY:
                self.calls[message.queue].append(call)
            try:
                await asyncio.sleep(self._random.random() * 0.1)
                return not life.is_dead and await deliver(message)
            finally:
                call.ended_s = min(call.ended_s, _now_s())

        return listen

    def pushing(self, group: str, member: str, life: Life) -> PushConsumer:
        """Return a push consumer for one life of a member."""
        config, topics, name = replace(_FIRST, retries_max=RETRIES), PLAIN, group
        client = ClientConfig(nameservers=(NAMESERVER,))
        wanted: Subscriptions = topics
        if group == ORDERLY:
            config = replace(_FIRST, order_per_queue=True, suspend_s=0.2)
            wanted = KEYED
        elif group == FILTERED:
            wanted = CONDITIONS[self.condition]
        elif group == BROADCAST:
            kept = OffsetsKept.AT_BROKERS if member.endswith("1") else OffsetsKept.LOCALLY
            config = replace(
                _FIRST,
                message_model=MessageModel.BROADCASTING,
                offsets_kept=kept,
                offsets_folder=self.folder,
            )
            client = replace(client, host_name=member, instance_name="steady")
            wanted, name = BOTH, member
        return PushConsumer(
            group,
            wanted,
            listener=self._listener(group, life, name),
            config=config,
            client=client,
            env=self.cluster.environment(life.host),
        )

    @asynccontextmanager
    async def polling(self, life: Life) -> AsyncGenerator[None]:
        """Be a pulling member of a group while the block runs."""
        config = PullConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
        consumer = PullConsumer(
            PULLING, nameserver=NAMESERVER, config=config, env=self.cluster.environment(life.host)
        )
        async with consumer:
            await consumer.subscribe(BOTH)
            task = self.cluster.tasks.spawn(self._poll(consumer, life), life.host)
            try:
                yield
            finally:
                task.cancel()
                await asyncio.wait([task])

    async def _poll(self, consumer: PullConsumer, life: Life) -> None:
        while True:
            for message in await consumer.poll(messages_max=self._random.randrange(1, 50)):
                if not life.is_dead:
                    self._note(PULLING, message)
            await consumer.commit()

    def _note(self, group: str, message: StoredMessage) -> None:
        self.cluster.history.deliveries.append(
            Delivery(
                id_of(message.body),
                group,
                message.body,
                message.queue,
                message.queue_offset,
                self.cluster.now_ms(),
                0,
                True,
            )
        )

    def entered(self, group: str, member: str, life: Life) -> AbstractAsyncContextManager[object]:
        """Return one life of a member, to be entered."""
        return self.polling(life) if group == PULLING else self.pushing(group, member, life)

    async def come_and_go(self, group: str, member: str) -> None:
        """Live many lives, until cancelled."""
        random = self._random
        while True:
            life = Life(f"{member}-{next(self._lives)}")
            task = self.cluster.tasks.spawn(self._live(group, member, life), life.host)
            try:
                await asyncio.wait([task], timeout=2 + random.random() * 20)
                if random.random() < 0.4:
                    life.is_dead = True
                    self._bury(life)
                    self.cluster.network.kill(life.host)
            finally:
                task.cancel()
                await asyncio.wait([task])
            await asyncio.sleep(random.random() * 2)

    def _bury(self, life: Life) -> None:
        for call in itertools.chain.from_iterable(self.calls.values()):
            if call.life is life:
                call.ended_s = min(call.ended_s, _now_s())

    async def _live(self, group: str, member: str, life: Life) -> None:
        with suppress(TernError):
            async with self.entered(group, member, life):
                self.hosts.append(life.host)
                try:
                    await asyncio.Event().wait()
                finally:
                    self.hosts.remove(life.host)

    async def live_on(self, group: str, member: str, life: Life) -> None:
        """Live one life to its end, begun anew while somebody else has the name."""
        while True:
            await self._live(group, member, life)
            await asyncio.sleep(1)

    # What was promised.

    def rules(self, members: Sequence[str]) -> list[GroupRules]:
        """Return what every group was promised."""
        stored = {each.message_id for each in self.cluster.history.lying}
        plain = frozenset({PLAIN})
        return [
            GroupRules(
                CONCURRENT, plain, doomed=frozenset(self.doomed & stored), attempts=1 + RETRIES
            ),
            GroupRules(ORDERLY, frozenset({KEYED}), is_orderly=True),
            GroupRules(FILTERED, plain, unwanted=frozenset(stored - self.taken)),
            GroupRules(PULLING, frozenset({PLAIN, PAID})),
            *(GroupRules(member, frozenset({PLAIN, PAID})) for member in members),
        ]

    def check_batches(self) -> None:
        """Assert that each batch lies side by side in one queue, or not at all."""
        places: defaultdict[str, set[tuple[MessageQueue, int]]] = defaultdict(set)
        for each in self.cluster.history.lying:
            places[each.message_id].add((each.queue, each.queue_offset))
        for names in self.batches:
            whole = [
                {(queue, offset - index) for queue, offset in places[name]}
                for index, name in enumerate(names)
            ]
            assert all(starts == whole[0] for starts in whole), f"a batch is torn: {names}"

    def check_calls(self) -> None:
        """Assert that no two members had messages of one orderly queue at the same time.

        A broker that was started again knows no locks. For as long as a lock is trusted, its old
        holder may go on beside a new one: its token is refused then, so that it moves no offset.
        """
        for queue, calls in self.calls.items():
            starts_s = self.starts_s[queue.broker_name]
            for before, after in itertools.pairwise(sorted(calls, key=lambda call: call.began_s)):
                is_new = any(0 <= after.began_s - each <= TRUST_MS / 1000 for each in starts_s)
                overlaps = before.life is not after.life and before.ended_s > after.began_s
                assert is_new or not overlaps, f"{queue}: {before} and {after}"


def _now_s() -> float:
    return asyncio.get_running_loop().time()
