"""A sync master's process and disk are destroyed under load; its slave has all it promised."""

import asyncio
import contextlib
import random
import shutil
import subprocess
import sys
from asyncio import TaskGroup
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from ternmq_model.address import parse_address
from ternmq_model.errors import TernError
from ternmq_model.message import Message, SendStatus
from ternmq_producer.producer import Producer
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.contracts import REPLICATION_STATUS
from ternmq_remoting.system import system_environment
from ternmq_runtime.clock import SystemClock
from tests.support.brokers import Client
from tests.support.cluster_process import RunningService, running_service
from tests.support.examples import SEED, seeds
from tests.support.history import History, Outcome, make_body
from tests.support.killed_cluster import eventually
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
def members(tmp_path: Path) -> Generator[tuple[str, RunningService, RunningService]]:
    """Yield the NameServer's address, the master and its slave."""
    with ExitStack() as stack:
        named = running_service(
            tmp_path / "nameserver",
            *("nameserver", "--port-nameserver", "0", "--data", str(tmp_path / "nameserver/data")),
        )
        nameserver = stack.enter_context(named).address

        def member(folder: str, *arguments: str) -> RunningService:
            told = [word for each in SETTINGS for word in ("--set", each)]
            data = str(tmp_path / folder / "data")
            return stack.enter_context(
                running_service(
                    tmp_path / folder,
                    *("broker", "--name", "a", "--port-broker", "0", "--data", data),
                    *("--nameserver", nameserver, *arguments, *told),
                )
            )

        yield nameserver, member("a"), member("a-1", "--broker-id", "1")


@asynccontextmanager
async def connected(address: str) -> AsyncGenerator[Client]:
    """Give a connection to a broker."""
    async with system_environment() as env:
        connection = await env.network.connect([parse_address(address, setting="address")])
        yield Client(connection)
        await connection.close()


async def in_sync(master: str) -> None:
    """Wait until the slave counts."""
    async with connected(master) as client, asyncio.timeout(60):
        while True:
            request = replication.ReplicationStatusRequest()
            status = await client.connection.call(REPLICATION_STATUS, request, timeout_s=30)
            if status.in_sync_now == 2:
                return
            await asyncio.sleep(0.05)


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


def promote(nameserver: str) -> None:
    """Promote the slave as an operator does."""
    command = (sys.executable, "-m", "ternmq", "broker", "promote", "a", "--broker-id", "1")
    told = subprocess.run(
        [*command, "--yes", "--nameserver", nameserver], capture_output=True, text=True, timeout=150
    )
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("round_number", ROUNDS)
def test_the_slave_has_every_message_that_was_acknowledged(
    members: tuple[str, RunningService, RunningService], tmp_path: Path, round_number: int
) -> None:
    nameserver, master, slave = members
    seed = SEED + round_number
    chance, history = random.Random(seed), History(stored_twice_allowed=True)

    def stored() -> int:
        return sum(each.outcome is Outcome.STORED for each in history.sent.values())

    async def main() -> tuple[int, int, int]:
        await in_sync(master.address)
        over = asyncio.Event()
        async with Producer("senders", nameserver=nameserver) as producer, TaskGroup() as group:
            for number in range(SENDERS):
                group.create_task(send_until(producer, history, over, number))
            assert await eventually(lambda: stored() >= 100)
            await asyncio.sleep(chance.random() * 1.5)
            master.process.kill()
            master.process.wait(10)
            shutil.rmtree(tmp_path / "a" / "data")
            destroyed_ms = _CLOCK.monotonic_ms()
            before = stored()
            await asyncio.to_thread(promote, nameserver)
            promoted_ms = _CLOCK.monotonic_ms()
            while True:
                with contextlib.suppress(TernError):
                    await producer.send(Message(TOPIC, make_body("last")))
                    break
            serving_ms = _CLOCK.monotonic_ms()
            over.set()
        history.note_sent("last", TOPIC, Outcome.UNKNOWN)
        async with connected(slave.address) as client:
            found = await records_of(client, TOPIC, "a")
        history.lying += [lying_of(*each) for each in found]
        return before, promoted_ms - destroyed_ms, serving_ms - destroyed_ms

    before, promoted_ms, serving_ms = asyncio.run(main())
    print(
        f"seed {seed}: {before} acknowledged messages before the disk was destroyed; "
        f"promoted after {promoted_ms} ms, sending again after {serving_ms} ms"
    )
    history.check(seed=seed)
