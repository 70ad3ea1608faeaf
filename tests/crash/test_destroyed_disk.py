"""A sync master's process and disk are destroyed under load; its slave has all it promised."""

import asyncio
import contextlib
import random
import shutil
from asyncio import TaskGroup
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from ternmq_model.errors import TernError
from ternmq_model.message import Message, SendStatus
from ternmq_producer.producer import Producer
from ternmq_runtime.clock import SystemClock
from tests.support.brokers import connected
from tests.support.examples import SEED, seeds
from tests.support.history import History, Outcome, make_body
from tests.support.processes import (
    ServiceProcess,
    eventually,
    run_ternmq,
    running_broker,
    running_nameserver,
)
from tests.support.simulated_cluster import lying_of, records_of

ROUNDS: Final = seeds(3, soak=30)
TOPIC: Final = "payments"
SENDERS: Final = 16
SETTINGS: Final = (
    "store.commit_log_file_bytes=4MiB",
    "store.consume_queue_file_units=2000",
    "store.index_slots=1000",
    "store.index_entries=40000",
    "broker.role=sync_master",
)
_CLOCK: Final = SystemClock()


@pytest.fixture
def members(tmp_path: Path) -> Generator[tuple[str, ServiceProcess, ServiceProcess]]:
    """Yield the NameServer's address, the master and its slave."""
    with running_nameserver(tmp_path / "nameserver") as names:
        nameserver = names.nameserver
        words = (tmp_path / "a-1", nameserver, "--broker-id", 1)
        with (
            running_broker(tmp_path / "a", nameserver, settings=SETTINGS) as master,
            running_broker(*words, name="a", settings=SETTINGS) as slave,
        ):
            yield nameserver, master, slave


async def send_until(
    producer: Producer, history: History, over: asyncio.Event, number: int
) -> None:
    """Send one message after the other, and note what became of each."""
    count = 0
    while not over.is_set():
        message_id = f"{number}.{count}"
        count += 1
        sent = history.note_sent(message_id, TOPIC, Outcome.UNKNOWN)
        try:
            result = await producer.send(Message(TOPIC, make_body(message_id, 1024)))
        except TernError as error:
            sent.outcome = Outcome.UNKNOWN if error.may_have_happened else Outcome.REFUSED
            await asyncio.sleep(0.05)
            continue
        if result.status is SendStatus.SEND_OK:
            sent.outcome = Outcome.STORED


@pytest.mark.parametrize("round_number", ROUNDS)
def test_slave_has_every_acknowledged_message(
    members: tuple[str, ServiceProcess, ServiceProcess], round_number: int
) -> None:
    nameserver, master, slave = members
    seed = SEED + round_number
    chance, history = random.Random(seed), History(stored_twice_allowed=True)

    def stored() -> int:
        return sum(each.outcome is Outcome.STORED for each in history.sent.values())

    async def main() -> tuple[int, int, int]:
        async with connected(master.broker) as client:
            await client.until_in_sync(2)
        over = asyncio.Event()
        async with Producer("senders", nameserver=nameserver) as producer, TaskGroup() as group:
            for number in range(SENDERS):
                group.create_task(send_until(producer, history, over, number))
            assert await eventually(lambda: stored() >= 100)
            await asyncio.sleep(chance.random() * 1.5)
            master.kill()
            shutil.rmtree(master.data)
            destroyed_ms = _CLOCK.monotonic_ms()
            before = stored()
            promote = ("broker", "promote", "a", "--broker-id", "1", "--yes")
            await asyncio.to_thread(run_ternmq, *promote, "--nameserver", nameserver)
            promoted_ms = _CLOCK.monotonic_ms()
            while True:
                with contextlib.suppress(TernError):
                    await producer.send(Message(TOPIC, make_body("last")))
                    break
            serving_ms = _CLOCK.monotonic_ms()
            over.set()
        history.note_sent("last", TOPIC, Outcome.UNKNOWN)
        async with connected(slave.broker) as client:
            found = await records_of(client, TOPIC, "a")
        history.lying += [lying_of(*each) for each in found]
        return before, promoted_ms - destroyed_ms, serving_ms - destroyed_ms

    before, promoted_ms, serving_ms = asyncio.run(main())
    print(
        f"seed {seed}: {before} acknowledged messages before the disk was destroyed; "
        f"promoted after {promoted_ms} ms, sending again after {serving_ms} ms"
    )
    history.check(seed=seed)
