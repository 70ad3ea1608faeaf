"""Clients that are killed: payers with local transactions, and members of an orderly group.

Run as a module, it is one of them. What they did outlives them in two files: the *ledger* holds
their local transactions, the *notes* what they sent and were handed. Every line of the notes is one
write to a file opened for appending, so the lines of all processes stand in the order of writing.
"""

import asyncio
import fcntl
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push import PushConsumer
from ternmq_model.errors import RefusedError, TernError
from ternmq_model.message import Message
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution, TransactionResult
from ternmq_producer.transactions import TransactionProducer
from ternmq_runtime.clock import SystemClock
from tests.support.history import Delivery, id_of, make_body

TOPIC: Final = "orders"
PAYERS: Final = "payers"
READERS: Final = "readers"
TASKS: Final = 8
NEVER: Final = 1 << 30


class Notes:
    """What processes did, one line for each deed."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, *words: object) -> None:
        """Add a line. It is there for every process, also when this one is killed next."""
        line = json.dumps(words).encode() + b"\n"
        assert os.write(self._file, line) == len(line)


def read_notes(path: Path) -> list[list[Any]]:
    """Return the deeds so far; none when there is no file."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


class Ledger:
    """Local transactions, decided once each: a file of `id decision`, locked and synced."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def decide(self, name: str, decision: Resolution) -> Resolution:
        """Write a decision unless there is one; return the one that stands."""
        with self._path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            for line in file:
                if line.startswith(f"{name} "):
                    return Resolution[line.split()[1]]
            file.write(f"{name} {decision.name}\n")
            file.flush()
            os.fsync(file.fileno())
        return decision

    def read(self) -> dict[str, Resolution]:
        """Return every decision."""
        if not self._path.exists():
            return {}
        rows = (line.split() for line in self._path.read_text().splitlines())
        return {name: Resolution[decision] for name, decision in rows}


def is_end_refused(result: TransactionResult) -> bool:
    """Tell whether a broker would not have a transaction end so: it has ended otherwise."""
    error = result.error
    return isinstance(error, RefusedError) and not error.may_have_happened


def kill_self() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Payer:
    """A process that pays, or one that only answers for others.

    Attributes:
        moment: When it kills itself: `before` or `after` its local commit, or not.
        at: At which of its transactions.
    """

    ledger: Ledger
    notes: Notes
    name: str
    moment: str
    at: int
    random: Random
    begun: int = 0

    def execute(self, message: Message, argument: object) -> Resolution:
        """Do the local transaction: runs in a thread, as many others do."""
        self.begun += 1
        is_last = self.begun == self.at
        if is_last and self.moment == "before":
            kill_self()
        drawn = self.random.random()
        decision = Resolution.ROLLBACK if drawn < 0.25 else Resolution.COMMIT
        decided = self.ledger.decide(id_of(message.body), decision)
        if is_last and self.moment == "after":
            kill_self()
        return decided if self.random.random() < 0.8 else Resolution.UNKNOWN

    def check(self, message: StoredMessage) -> Resolution:
        """Return what the ledger says; what is not in it never will be."""
        return self.ledger.decide(id_of(message.body), Resolution.ROLLBACK)

    async def pay(self, producer: TransactionProducer, task: int) -> None:
        """Send transactions, one after the other, until killed."""
        for number in range(NEVER):
            name = f"{self.name}-{task}-{number}"
            self.notes.note("send", name)
            try:
                result = await producer.send(Message(TOPIC, make_body(name, 100)))
            except TernError as error:
                self.notes.note("failed", name, error.may_have_happened, str(error))
                await asyncio.sleep(0.05)
                continue
            is_refused = is_end_refused(result)
            self.notes.note("ended", name, result.is_confirmed, str(result.error), is_refused)


async def pay(told: dict[str, Any]) -> None:
    """Be a payer, until killed."""
    folder = Path(told["folder"])
    payer = Payer(
        ledger=Ledger(folder / "ledger"),
        notes=Notes(folder / "notes"),
        name=told["name"],
        moment=told["moment"],
        at=told["at"],
        random=Random(told["name"]),
    )
    async with TransactionProducer(
        PAYERS,
        execute=payer.execute,
        check=payer.check,
        topics=(TOPIC,),
        nameserver=told["nameserver"],
    ) as producer:
        payer.notes.note("ready", payer.name)
        if told["moment"] == "never":
            await asyncio.Event().wait()
        await asyncio.gather(*(payer.pay(producer, task) for task in range(TASKS)))


async def read_in_order(told: dict[str, Any]) -> None:
    """Be a member of an orderly group, until killed."""
    random, clock = Random(told["name"]), SystemClock()
    notes, count = Notes(Path(told["folder"]) / "notes"), 0

    async def listen(message: StoredMessage) -> bool:
        nonlocal count
        queue, name = message.queue, id_of(message.body)
        place = (queue.topic, queue.broker_name, queue.queue_id, message.queue_offset)
        wall_ms, attempt = clock.wall_ms(), message.reconsume_times
        notes.note("begin", told["name"], name, message.body.decode(), *place, wall_ms, attempt)
        count += 1
        if count == told["at"] and told["moment"] == "before":
            kill_self()
        await asyncio.sleep(random.random() * 0.03)
        if random.random() < 0.03:
            notes.note("fail", told["name"], *place)
            return False
        notes.note("finish", told["name"], *place)
        if count >= told["at"] and told["moment"] == "after":
            kill_self()
        return True

    config = PushConsumerConfig(
        consume_from=ConsumeFrom.FIRST_OFFSET,
        order_per_queue=True,
        workers=4,
        suspend_s=0.05,
        commit_s=0.2,
        drop_wait_s=30.0,
    )
    async with PushConsumer(
        READERS, TOPIC, listener=listen, nameserver=told["nameserver"], config=config
    ):
        await asyncio.Event().wait()


def deliveries_of(notes: Iterable[list[Any]]) -> tuple[list[Delivery], list[str]]:
    """Return what orderly members were handed, and where two of them had a queue at once.

    A message that its member began and never ended, for it was killed, is not finished.
    """
    begun: list[list[Any]] = []
    finished: set[int] = set()
    under_way: dict[tuple[object, ...], int] = {}
    trespasses: list[str] = []
    present: dict[tuple[object, ...], str] = {}
    for kind, member, *words in notes:
        if kind == "begin":
            queue = tuple(words[2:5])
            present[queue] = member
            under_way[member, *words[2:6]] = len(begun)
            begun.append(words)
        elif kind in ("finish", "fail"):
            at = under_way.pop((member, *words[:4]))
            if kind == "finish":
                finished.add(at)
            if present[tuple(words[:3])] != member:
                trespasses.append(f"{member} ended {words} which {present[tuple(words[:3])]} has")
    deliveries = [
        Delivery(
            *(words[0], READERS, words[1].encode(), MessageQueue(*words[2:5])),
            *(words[5], words[6], words[7], at in finished),
        )
        for at, words in enumerate(begun)
    ]
    return deliveries, trespasses


_ROLES: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "payer": pay,
    "reader": read_in_order,
}

if __name__ == "__main__":
    asyncio.run(_ROLES[sys.argv[1]](json.loads(sys.argv[2])))
