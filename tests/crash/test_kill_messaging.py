"""Transactions, delays, retries and order keep their promises whoever is killed, and when.

Every test ends in the check of its history: what was acknowledged lies in its queue, what was
committed lies there once, nothing came before its time, and a dead letter is one for a reason.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.consume_status import ReconsumeLater
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import TernError
from ternmq_model.message import Message
from ternmq_model.names import DEAD_LETTER_PREFIX
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution, TransactionResult
from ternmq_producer.producer import Producer
from ternmq_producer.transactions.transaction_producer import TransactionProducer
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import FlushMode
from tests.support.client_process import (
    NEVER,
    PAYERS,
    READERS,
    TOPIC,
    Ledger,
    Notes,
    is_end_refused,
    orderly_deliveries_of,
    read_notes,
)
from tests.support.examples import SEED, seeds
from tests.support.history import Decision, Delivery, GroupRules, Outcome, id_of, make_body
from tests.support.killed_cluster import KilledCluster, killed_cluster
from tests.support.processes import SOON_S, eventually

KILLS: Final = 3
"""Of one cluster."""

REPEATS: Final = seeds(1, soak=12)
RETRIES_MAX: Final = 2
_DECISIONS: Final = {
    Resolution.COMMIT: Decision.COMMITTED,
    Resolution.ROLLBACK: Decision.ROLLED_BACK,
}


@dataclass
class Load:
    """Senders and a consumer in the test's process, and what they know. One broker is killed.

    Attributes:
        wishes: How often a message fails before it is taken; doomed ones always do.
        decided: How transactions ended, each once.
        questions: How often a transaction is asked for before the answer; NEVER = none comes.
    """

    cluster: KilledCluster
    wishes: dict[str, int] = field(default_factory=dict[str, int])
    decided: dict[str, Resolution] = field(default_factory=dict[str, Resolution])
    questions: dict[str, int] = field(default_factory=dict[str, int])
    ended: dict[str, TransactionResult] = field(default_factory=dict[str, TransactionResult])
    finished: set[str] = field(default_factory=set[str])
    is_over: bool = False

    @property
    def doomed(self) -> frozenset[str]:
        """Messages that the listener never takes."""
        return frozenset(name for name, fails in self.wishes.items() if fails == NEVER)

    def draw_failures(self, name: str) -> None:
        """Decide how often a message will fail."""
        drawn = self.cluster.random.random()
        self.wishes[name] = NEVER if drawn < 0.03 else 1 if drawn < 0.15 else 0

    async def send_all(self, producer: Producer, task: int) -> None:
        """Send plain, delayed and timed messages, one after the other, until it is over."""
        number, chance = 0, self.cluster.random
        while not self.is_over:
            name = f"s{task}-{number}"
            number += 1
            self.draw_failures(name)
            now_ms = self.cluster.clock.wall_ms()
            after_ms, told = self._time(now_ms)
            sent = self.cluster.history.note_sent(
                name, TOPIC, Outcome.UNKNOWN, not_before_ms=now_ms + after_ms
            )
            try:
                await producer.send(Message(TOPIC, make_body(name, 200), **told))
                sent.outcome = Outcome.STORED
            except TernError as error:
                if not error.may_have_happened:
                    sent.outcome = Outcome.REFUSED
            await asyncio.sleep(chance.random() * 0.04)

    def _time(self, now_ms: int) -> tuple[int, dict[str, Any]]:
        """Return how long a message is to wait at least, and the words for it."""
        chance = self.cluster.random
        after_ms = chance.randrange(200, 3000)
        match chance.randrange(5):
            case 0:
                return 1000, {"delay_level": 1}
            case 1:
                return (5000, {"delay_level": 2}) if chance.random() < 0.3 else (0, {})
            case 2:
                return after_ms, {"deliver_at_ms": now_ms + after_ms}
            case 3:
                return after_ms, {"deliver_after_ms": after_ms}
            case _:
                return 0, {}

    async def pay_all(self, producer: TransactionProducer, task: int) -> None:
        """Send transactions, one after the other, until it is over."""
        number = 0
        while not self.is_over:
            name = f"t{task}-{number}"
            number += 1
            self.draw_failures(name)
            self.questions[name] = self.cluster.random.choice((0, 0, 0, 1, 2, NEVER))
            sent = self.cluster.history.note_sent(
                name, TOPIC, Outcome.UNKNOWN, decision=Decision.UNDECIDED
            )
            try:
                self.ended[name] = await producer.send(Message(TOPIC, make_body(name, 200)))
                sent.outcome = Outcome.STORED
            except TernError as error:
                if not error.may_have_happened:
                    sent.outcome = Outcome.REFUSED
            await asyncio.sleep(self.cluster.random.random() * 0.04)

    async def execute(self, message: Message, argument: object) -> Resolution:
        """Do the local transaction, or leave it for later."""
        name = id_of(message.body)
        if name in self.decided:
            return self.decided[name]
        if self.questions[name]:
            return Resolution.UNKNOWN
        return self._decide(name)

    async def check(self, message: StoredMessage) -> Resolution:
        """Answer the broker."""
        name = id_of(message.body)
        if self.cluster.history.sent[name].outcome is Outcome.REFUSED:
            return Resolution.ROLLBACK
        if name in self.decided:
            return self.decided[name]
        if self.questions[name] == NEVER:
            return Resolution.UNKNOWN
        self.questions[name] -= 1
        return Resolution.UNKNOWN if self.questions[name] > 0 else self._decide(name)

    def _decide(self, name: str) -> Resolution:
        drawn = self.cluster.random.choice((Resolution.COMMIT, Resolution.ROLLBACK))
        self.decided[name] = drawn
        self.cluster.history.sent[name].decision = _DECISIONS[drawn]
        return drawn

    async def listen(self, message: StoredMessage) -> ReconsumeLater | None:
        """Take a message, or not yet, or never."""
        name = id_of(message.body)
        fails = self.wishes.get(name, 0)
        is_finished = not fails
        if 0 < fails < NEVER:
            self.wishes[name] -= 1
        self.cluster.history.deliveries.append(
            Delivery(
                name,
                READERS,
                message.body,
                message.queue,
                message.queue_offset,
                self.cluster.clock.wall_ms(),
                message.reconsume_times,
                is_finished,
            )
        )
        if is_finished:
            self.finished.add(name)
        return None if is_finished else ReconsumeLater(delay_level=1)

    def check_ends(self) -> None:
        """Hold confirmed ends to where they say their messages lie."""
        lying = {each.message_id: each for each in self.cluster.history.lying}
        for name, result in self.ended.items():
            assert not is_end_refused(result), (name, result.error)
            if result.is_confirmed and result.resolution is Resolution.COMMIT:
                at = lying[name]
                told = (result.queue_id, result.queue_offset)
                assert (at.queue.queue_id, at.queue_offset) == told, name


async def kill_broker(cluster: KilledCluster) -> None:
    """Kill the broker at some moment, often while it starts, and have it serve again."""
    chance = cluster.random
    await asyncio.sleep(0.3 + chance.random() * 1.2)
    await cluster.kill()
    if chance.random() < 0.3:
        cluster.spawn_broker()
        await asyncio.sleep(chance.random() * 1.0)
        await cluster.kill()
    await cluster.start()


async def until_dead(cluster: KilledCluster, doomed: frozenset[str]) -> None:
    """Wait until the doomed messages are dead letters; the history tells which are not."""

    async def are_dead() -> bool:
        dead = await cluster.records(DEAD_LETTER_PREFIX + READERS)
        return doomed <= {id_of(each.body) for _, each in dead}

    await eventually(are_dead)


async def until_decided(
    cluster: KilledCluster, committed: Callable[[], set[str]], left: int = 0
) -> None:
    """Wait until no more transactions are open than `left`, and what was committed lies there.

    A broker that was started a moment ago has not counted its transactions yet. What does not lie
    there in time is left to the history to tell.
    """
    open_ = 0

    async def are_decided() -> bool:
        nonlocal open_
        lacking = committed() - {id_of(each.body) for _, each in await cluster.records(TOPIC)}
        open_ = await cluster.open_transactions()
        return open_ <= left and not lacking

    await eventually(are_decided)
    assert open_ <= left, f"{open_} transactions are open, {left} may be"


@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize("mode", FlushMode)
def test_messages_of_every_kind_survive_kills_of_their_broker(
    tmp_path: Path, mode: FlushMode, repeat: int
) -> None:
    async def main() -> None:
        seed = f"{SEED} broker {mode} {repeat}"
        async with killed_cluster(tmp_path, mode, seed=seed) as cluster:
            cluster.history.stored_twice_allowed = True
            await cluster.put_topic(TOPIC, 3)
            load, names = Load(cluster), cluster.nameserver
            config = PushConsumerConfig(
                consume_from=ConsumeFrom.FIRST_OFFSET,
                retries_max=RETRIES_MAX,
                commit_s=0.5,
                retry_s=0.5,
            )
            payer = TransactionProducer(
                PAYERS, execute=load.execute, check=load.check, topics=(TOPIC,), nameserver=names
            )
            consumer = PushConsumer(
                READERS, TOPIC, listener=load.listen, nameserver=names, config=config
            )
            async with (
                Producer("senders", nameserver=names) as producer,
                payer,
                consumer,
                OwnedTasks() as tasks,
            ):
                sending = [
                    *(tasks.spawn(load.send_all(producer, n), f"send {n}") for n in range(4)),
                    *(tasks.spawn(load.pay_all(payer, n), f"pay {n}") for n in range(4)),
                ]
                for _ in range(KILLS):
                    await kill_broker(cluster)
                load.is_over = True
                await asyncio.gather(*sending)
                await settle(cluster, load)
            await cluster.scan(TOPIC, groups=[READERS])
            load.check_ends()
            rules = GroupRules(
                READERS, frozenset({TOPIC}), doomed=load.doomed, attempts=RETRIES_MAX + 1
            )
            cluster.history.check([rules], seed=seed)
            print(f"mode={mode.value} lives={cluster.lives} stored={len(cluster.history.lying)}")

    asyncio.run(main())


async def settle(cluster: KilledCluster, load: Load) -> None:
    """Wait until everything that must come has come; what lacks after that is a fault."""
    undecided = [name for name, left in load.questions.items() if left == NEVER]
    await until_decided(cluster, lambda: cluster.must_be_stored(TOPIC), len(undecided))
    await eventually(lambda: cluster.must_be_stored(TOPIC) - load.doomed <= load.finished)
    stored = {id_of(each.body) for _, each in await cluster.records(TOPIC)}
    await eventually(lambda: stored - load.doomed <= load.finished)
    await until_dead(cluster, load.doomed & stored)


def moments(chance: random.Random) -> Sequence[str]:
    """Return when the payers of a test die: each moment once, in any order."""
    return chance.sample(("before", "after", "any"), KILLS)


@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize("also_broker", [False, True])
def test_payments_of_killed_producer_are_delivered_and_no_others(
    tmp_path: Path, repeat: int, *, also_broker: bool
) -> None:
    async def main() -> None:
        seed = f"{SEED} payer {also_broker} {repeat}"
        async with killed_cluster(tmp_path, FlushMode.SYNC, seed=seed) as cluster:
            await cluster.put_topic(TOPIC, 2)
            Notes(cluster.notes)
            cluster.spawn("pay", "checker", moment="never", at=0)
            for life, moment in enumerate(moments(cluster.random)):
                await kill_payer(cluster, f"p{life}", moment, also_broker=also_broker)
            await settle_payments(cluster)
            await cluster.scan(TOPIC)
            cluster.history.check(seed=seed)
            print(f"stored={len(cluster.history.lying)} sent={len(cluster.history.sent)}")

    asyncio.run(main())


async def kill_payer(cluster: KilledCluster, name: str, moment: str, *, also_broker: bool) -> None:
    """Let a payer pay until it is killed, and with it the broker if that is asked for."""
    chance = cluster.random
    payer = cluster.spawn("pay", name, moment=moment, at=chance.randrange(1, 150))
    assert await eventually(lambda: ["ready", name] in read_notes(cluster.notes))
    if also_broker and chance.random() < 0.5:
        await kill_broker(cluster)
        also_broker = False
    if moment == "any":
        paid = len(Ledger(cluster.folder / "ledger").read())
        at = paid + chance.randrange(1, 150)
        assert await eventually(lambda: len(Ledger(cluster.folder / "ledger").read()) >= at)
        await asyncio.sleep(chance.random() * 0.02)
        payer.kill()
    assert await asyncio.to_thread(payer.wait, SOON_S) == -9
    if also_broker:
        await asyncio.sleep(chance.random() * 0.7)
        await cluster.kill()
        await cluster.start()


async def settle_payments(cluster: KilledCluster) -> None:
    """Wait until every transaction is ended, and note what the ledger says of each."""
    ledger = Ledger(cluster.folder / "ledger")

    def committed() -> set[str]:
        return {name for name, each in ledger.read().items() if each is Resolution.COMMIT}

    await until_decided(cluster, committed)
    decided = ledger.read()
    ends = 0
    for kind, name, *told in read_notes(cluster.notes):
        if kind == "send":
            decision = _DECISIONS.get(decided.get(name, Resolution.UNKNOWN), Decision.UNDECIDED)
            is_stored = decision is Decision.COMMITTED
            outcome = Outcome.STORED if is_stored else Outcome.UNKNOWN
            cluster.history.note_sent(name, TOPIC, outcome, decision=decision)
        elif kind == "failed" and not told[0]:
            cluster.history.sent[name].outcome = Outcome.REFUSED
        elif kind == "ended":
            is_confirmed, error, is_refused = told
            assert not is_refused, (name, error)
            ends += is_confirmed
    assert ends > 0


@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize("also_broker", [False, True])
def test_order_survives_kills_of_consumers(
    tmp_path: Path, repeat: int, *, also_broker: bool
) -> None:
    async def main() -> None:
        seed = f"{SEED} order {also_broker} {repeat}"
        async with killed_cluster(tmp_path, FlushMode.ASYNC, seed=seed) as cluster:
            cluster.history.stored_twice_allowed = True
            await cluster.put_topic(TOPIC, 4)
            Notes(cluster.notes)
            is_over = asyncio.Event()
            async with (
                Producer("senders", nameserver=cluster.nameserver) as producer,
                OwnedTasks() as tasks,
            ):
                sending = [
                    tasks.spawn(
                        send_in_order(cluster, producer, MessageQueue(TOPIC, "killed", n), is_over),
                        f"send {n}",
                    )
                    for n in range(4)
                ]
                await kill_readers(cluster, also_broker=also_broker)
                is_over.set()
                await asyncio.gather(*sending)
            # What was not acknowledged may be stored, too, and is consumed last.
            await cluster.scan(TOPIC)
            stored = {lying.message_id for lying in cluster.history.lying}
            await eventually(lambda: stored <= finished(cluster), 30)
            deliveries, trespasses = orderly_deliveries_of(read_notes(cluster.notes))
            cluster.history.deliveries += deliveries
            # A broker that was killed knows no locks: two may have a queue until the old one hears.
            assert also_broker or not trespasses, trespasses[:5]
            rules = GroupRules(READERS, frozenset({TOPIC}), is_orderly=True)
            cluster.history.check([rules], seed=seed)
            print(f"stored={len(stored)} deliveries={len(deliveries)}")

    asyncio.run(main())


def finished(cluster: KilledCluster) -> set[str]:
    """Return what the readers have finished so far."""
    deliveries, _ = orderly_deliveries_of(read_notes(cluster.notes))
    return {each.message_id for each in deliveries if each.is_finished}


async def kill_readers(cluster: KilledCluster, *, also_broker: bool) -> None:
    """Have two readers; kill one of them, again and again, and see that another takes over.

    With `also_broker`, the broker dies near each of them.
    """
    chance = cluster.random
    cluster.spawn("read_in_order", "stays", moment="never", at=0)
    for life, moment in enumerate(moments(chance)):
        name = f"r{life}"
        at = chance.randrange(3, 40)
        reader = cluster.spawn("read_in_order", name, moment=moment, at=at)

        def begun(name: str = name) -> int:
            notes = read_notes(cluster.notes)
            return sum(each[:2] == ["begin", name] for each in notes)

        if moment == "any":
            assert await eventually(lambda: begun() >= at)  # noqa: B023 - awaited at once
            await asyncio.sleep(chance.random() * 0.03)
            reader.kill()
        assert await asyncio.to_thread(reader.wait, SOON_S) == -9
        if also_broker:
            await kill_broker(cluster)


async def send_in_order(
    cluster: KilledCluster, producer: Producer, queue: MessageQueue, is_over: asyncio.Event
) -> None:
    """Send messages to one queue, each when the one before it is stored."""
    number = 0
    while not is_over.is_set():
        name = f"q{queue.queue_id}-{number}"
        number += 1
        sent = cluster.history.note_sent(name, TOPIC, Outcome.UNKNOWN, key=str(queue))
        try:
            await producer.send(Message(TOPIC, make_body(name, 50)), queue=queue)
            sent.outcome = Outcome.STORED
        except TernError as error:
            if not error.may_have_happened:
                sent.outcome = Outcome.REFUSED
        await asyncio.sleep(cluster.random.random() * 0.05)
