"""Clients on machines of their own, between which and the brokers the network fails.

Run as a module, it is one of them: `python -m tests.support.parted_clients ROLE JSON`. What a
client did lies in the *notes*, as `tests/support/killed_clients.py` writes them. SIGTERM ends it in
order.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push import PushConsumer
from ternmq_model.errors import TernError
from ternmq_model.message import Message
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_runtime.clock import SystemClock
from tests.support.history import Delivery, Outcome, id_of, make_body
from tests.support.killed_clients import Notes

TOPIC: Final = "orders"
GROUP: Final = "readers"
TASKS: Final = 4
BODY_BYTES: Final = 500
_PAUSE_S: Final = 0.02


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


async def send(told: dict[str, Any]) -> None:
    """Be a sender: some tasks that each send one message after the other, until told to end."""
    notes, clock, over = Notes(Path(told["notes"])), SystemClock(), _until_told()
    name = told["name"]

    async def send_all(producer: Producer, task: int) -> None:
        number = 0
        while not over.is_set():
            number += 1
            message_id = f"{name}-{task}-{number}"
            notes.note("begin", message_id)
            began_ms, broker = clock.wall_ms(), ""
            try:
                result = await producer.send(Message(TOPIC, make_body(message_id, BODY_BYTES)))
                outcome, broker, text = Outcome.STORED, result.queue.broker_name, result.status.name
            except TernError as error:
                text = f"{type(error).__name__}: {error}"
                outcome = Outcome.UNKNOWN if error.may_have_happened else Outcome.REFUSED
            ended_ms = clock.wall_ms()
            notes.note("sent", message_id, outcome.name, broker, began_ms, ended_ms, text)
            await asyncio.sleep(_PAUSE_S)

    config = ProducerConfig(duplicates_allowed=told["duplicates_allowed"])
    async with Producer("senders", nameserver=told["nameserver"], config=config) as producer:
        async with asyncio.TaskGroup() as group:
            for task in range(told["tasks"]):
                group.create_task(send_all(producer, task))
        await over.wait()


async def read(told: dict[str, Any]) -> None:
    """Be a member of a group that takes whatever comes, until told to end."""
    notes, clock, over = Notes(Path(told["notes"])), SystemClock(), _until_told()

    async def listen(message: StoredMessage) -> None:
        queue, name = message.queue, id_of(message.body)
        place = (queue.topic, queue.broker_name, queue.queue_id, message.queue_offset)
        attempt = message.reconsume_times
        notes.note(
            "got", told["group"], name, message.body.decode(), *place, clock.wall_ms(), attempt
        )

    config = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET, commit_s=0.5, retry_s=0.5)
    async with PushConsumer(
        *(told["group"], told["topic"]),
        listener=listen,
        nameserver=told["nameserver"],
        config=config,
    ):
        notes.note("ready", told["name"])
        await over.wait()


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


def deliveries_of(notes: Iterable[list[Any]], of_group: str = GROUP) -> list[Delivery]:
    """Return what the members of a group took."""
    return [
        Delivery(
            *(words[0], group, words[1].encode(), MessageQueue(*words[2:5])),
            *(words[5], words[6], words[7], True),
        )
        for kind, group, *words in notes
        if kind == "got" and group == of_group
    ]


def _until_told() -> asyncio.Event:
    """Return what SIGTERM sets."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    return over


_ROLES: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {"send": send, "read": read}

if __name__ == "__main__":
    asyncio.run(_ROLES[sys.argv[1]](json.loads(sys.argv[2])))
