"""Clients as processes of their own, which tests kill, part from their brokers, or end by SIGTERM.

Run as a module, it is one of them: `python -m tests.support.client_process ROLE JSON`. What clients
did outlives them in two files of a folder that they share: the *ledger* holds their local
transactions, the *notes* what they sent and were handed. Every line of the notes is one write to a
file opened for appending, so the lines of all processes stand in the order of writing.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.errors import RefusedError, TernError
from ternmq_model.message import Message
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_model.transaction import Resolution, TransactionResult
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_producer.transactions.transaction_producer import TransactionProducer
from ternmq_runtime.clock import SystemClock
from tests.support.history import Delivery, Outcome, id_of, make_body
from tests.support.processes import start_module

TOPIC: Final = "orders"
PAYERS: Final = "payers"
READERS: Final = "readers"
NEVER: Final = 1 << 30
_PAYING_TASKS: Final = 8
_SENDING_TASKS: Final = 4
_CLOCK: Final = SystemClock()


class Notes:
    """What processes did, one line for each deed."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, *words: object) -> None:
        """Add a line. It is there for every process, also when this one is killed next."""
        # Before it, too: who was killed in its write has left half a line.
        line = b"\n" + json.dumps(words).encode() + b"\n"
        assert os.write(self._file, line) == len(line)


def read_notes(path: Path) -> list[list[Any]]:
    """Return the deeds so far; none when there is no file."""
    text = path.read_text() if path.exists() else ""
    notes: list[list[Any]] = []
    for line in text.splitlines():
        # A write that crosses a page is seen by its halves, and its end by nobody after a kill.
        with contextlib.suppress(ValueError):
            notes.append(json.loads(line))
    return notes


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


@dataclass(frozen=True, slots=True)
class SendNote:
    """What became of one send. Times are the wall clock's, in milliseconds."""

    message_id: str
    outcome: Outcome
    broker: str
    """That acknowledged it; empty when none did."""
    began_ms: int
    ended_ms: int
    text: str
    """Of the status, or of the error."""


def start_client(
    role: str,
    folder: Path,
    name: str,
    nameserver: str,
    *,
    launcher: Sequence[str] = (),
    **told: Any,
) -> subprocess.Popen[str]:
    """Start a client in a process of its own.

    Args:
        role: `pay`, `send`, `read` or `read_in_order`: the function that it runs.
        folder: Of the notes and the ledger.
        name: Its own; begins the ids of what it sends.
        nameserver: The NameServers' addresses.
        launcher: What precedes the command.
        told: The other arguments of the function.
    """
    told |= {"folder": str(folder), "name": name, "nameserver": nameserver}
    return start_module(__name__, role, json.dumps(told), launcher=launcher)


@dataclass
class Payer:
    """Local transactions of a process that pays, or of one that only answers for others.

    Attributes:
        moment: When it kills itself: `before` or `after` its local commit, or not.
        at: At which of its transactions.
    """

    ledger: Ledger
    moment: str
    at: int
    random: Random
    begun: int = 0

    def execute(self, message: Message, argument: object) -> Resolution:
        """Do the local transaction: runs in a thread, as many others do."""
        self.begun += 1
        is_last = self.begun == self.at
        if is_last and self.moment == "before":
            _kill_self()
        drawn = self.random.random()
        decision = Resolution.ROLLBACK if drawn < 0.25 else Resolution.COMMIT
        decided = self.ledger.decide(id_of(message.body), decision)
        if is_last and self.moment == "after":
            _kill_self()
        return decided if self.random.random() < 0.8 else Resolution.UNKNOWN

    def check(self, message: StoredMessage) -> Resolution:
        """Return what the ledger says; what is not in it never will be."""
        return self.ledger.decide(id_of(message.body), Resolution.ROLLBACK)


async def pay(folder: Path, name: str, nameserver: str, *, moment: str, at: int) -> None:
    """Send transactions, several at a time, until killed; only answer for others if `never`."""
    notes = Notes(folder / "notes")
    payer = Payer(Ledger(folder / "ledger"), moment, at, Random(name))

    async def pay_all(producer: TransactionProducer, task: int) -> None:
        for number in range(NEVER):
            message_id = f"{name}-{task}-{number}"
            notes.note("send", message_id)
            try:
                result = await producer.send(Message(TOPIC, make_body(message_id, 100)))
            except TernError as error:
                notes.note("failed", message_id, error.may_have_happened, str(error))
                await asyncio.sleep(0.05)
                continue
            is_refused = is_end_refused(result)
            notes.note("ended", message_id, result.is_confirmed, str(result.error), is_refused)

    async with TransactionProducer(
        PAYERS,
        execute=payer.execute,
        check=payer.check,
        topics=(TOPIC,),
        nameserver=nameserver,
    ) as producer:
        notes.note("ready", name)
        if moment == "never":
            await asyncio.Event().wait()
        await asyncio.gather(*(pay_all(producer, task) for task in range(_PAYING_TASKS)))


async def send(folder: Path, name: str, nameserver: str, *, duplicates_allowed: bool) -> None:
    """Send messages, several at a time, until told to end."""
    notes, over = Notes(folder / "notes"), _until_told()

    async def send_all(producer: Producer, task: int) -> None:
        number = 0
        while not over.is_set():
            number += 1
            message_id = f"{name}-{task}-{number}"
            notes.note("begin", message_id)
            began_ms, broker = _CLOCK.wall_ms(), ""
            try:
                result = await producer.send(Message(TOPIC, make_body(message_id, 500)))
                outcome, broker, text = Outcome.STORED, result.queue.broker_name, result.status.name
            except TernError as error:
                text = f"{type(error).__name__}: {error}"
                outcome = Outcome.UNKNOWN if error.may_have_happened else Outcome.REFUSED
            ended_ms = _CLOCK.wall_ms()
            notes.note("sent", message_id, outcome.name, broker, began_ms, ended_ms, text)
            await asyncio.sleep(0.02)

    config = ProducerConfig(duplicates_allowed=duplicates_allowed)
    async with (
        Producer("senders", nameserver=nameserver, config=config) as producer,
        asyncio.TaskGroup() as group,
    ):
        for task in range(_SENDING_TASKS):
            group.create_task(send_all(producer, task))


async def read(folder: Path, name: str, nameserver: str, *, group: str, topic: str) -> None:
    """Be a member of a group that takes whatever comes, until told to end."""
    notes, over = Notes(folder / "notes"), _until_told()

    async def listen(message: StoredMessage) -> None:
        notes.note("got", group, *_words_of(message))

    config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, commit_s=0.5, retry_s=0.5)
    async with PushConsumer(group, topic, listener=listen, nameserver=nameserver, config=config):
        await over.wait()


async def read_in_order(folder: Path, name: str, nameserver: str, *, moment: str, at: int) -> None:
    """Be a member of an orderly group until killed, by itself at its message number `at`."""
    random, notes, count = Random(name), Notes(folder / "notes"), 0

    async def listen(message: StoredMessage) -> bool:
        nonlocal count
        words = _words_of(message)
        notes.note("begin", name, *words)
        count += 1
        if count == at and moment == "before":
            _kill_self()
        await asyncio.sleep(random.random() * 0.03)
        is_taken = random.random() >= 0.03
        notes.note("finish" if is_taken else "fail", name, *words[2:6])
        if is_taken and count >= at and moment == "after":
            _kill_self()
        return is_taken

    config = PushConsumerConfig(
        consume_from=ConsumeFrom.FIRST_OFFSET,
        order_per_queue=True,
        workers=4,
        suspend_s=0.05,
        commit_s=0.2,
        drop_wait_s=30.0,
    )
    async with PushConsumer(READERS, TOPIC, listener=listen, nameserver=nameserver, config=config):
        await asyncio.Event().wait()


def sends_of(notes: Iterable[list[Any]]) -> list[SendNote]:
    """Return what the senders did, in the order of the ends; what has no end is not known."""
    begun: dict[str, None] = {}
    found: list[SendNote] = []
    for kind, message_id, *rest in notes:
        if kind == "begin":
            begun[message_id] = None
        elif kind == "sent":
            del begun[message_id]
            outcome, broker, began_ms, ended_ms, text = rest
            note = SendNote(message_id, Outcome[outcome], broker, began_ms, ended_ms, text)
            found.append(note)
    return found + [SendNote(name, Outcome.UNKNOWN, "", 0, 0, "under way") for name in begun]


def deliveries_of(notes: Iterable[list[Any]]) -> list[Delivery]:
    """Return what the members of the readers' group took."""
    return [
        _delivery_of(words, is_finished=True)
        for kind, group, *words in notes
        if kind == "got" and group == READERS
    ]


def orderly_deliveries_of(notes: Iterable[list[Any]]) -> tuple[list[Delivery], list[str]]:
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
    deliveries = [_delivery_of(words, is_finished=at in finished) for at, words in enumerate(begun)]
    return deliveries, trespasses


def _words_of(message: StoredMessage) -> tuple[object, ...]:
    """Return what the notes say of a message that is handed over now."""
    place = (*message.queue, message.queue_offset)
    name, body = id_of(message.body), message.body.decode()
    return (name, body, *place, _CLOCK.wall_ms(), message.reconsume_times)


def _delivery_of(words: Sequence[Any], *, is_finished: bool) -> Delivery:
    name, body, *queue, offset, at_ms, attempt = words
    place = (MessageQueue(*queue), offset)
    return Delivery(name, READERS, body.encode(), *place, at_ms, attempt, is_finished)


def _until_told() -> asyncio.Event:
    """Return what SIGTERM sets."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    return over


def _kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(role: str, *, folder: str, **told: Any) -> None:
    """Run one role."""
    roles: dict[str, Any] = {each.__name__: each for each in (pay, send, read, read_in_order)}
    await roles[role](Path(folder), **told)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], **json.loads(sys.argv[2])))
