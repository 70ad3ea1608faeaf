"""A NameServer in the test's process and one broker in its own, which is killed and started again.

    async with killed_cluster(folder, FlushMode.SYNC, seed=7) as cluster:
        ...
        await cluster.kill()
        await cluster.start()
        ...
        await cluster.scan("orders", groups=["readers"])
        cluster.history.check([...], seed=7)

Every life of the broker has the same data and the same port. What else is needed of the world
is real too: gRPC, files, clocks.
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from ternmq_model.address import Address, parse_address
from ternmq_model.clock import Clock
from ternmq_model.names import DEAD_LETTER_PREFIX
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import contracts
from ternmq_remoting.environment import Environment
from ternmq_remoting.system import system_environment
from ternmq_store.config import FlushMode
from tests.support.brokers import Client
from tests.support.history import Decision, History, Outcome
from tests.support.simulated_cluster import lying_of, records_of

BROKER: Final = "killed"
SOON_S: Final = 60.0
SETTINGS: Final = (
    "store.commit_log_file_bytes=1MiB",
    "store.consume_queue_file_units=1000",
    "store.index_slots=1000",
    "store.index_entries=4000",
    "broker.offsets_interval_ms=500",
    "broker.broken_session_ms=500",
    "broker.transaction_timeout_ms=500",
    "broker.transaction_check_interval_ms=500",
    "broker.transaction_checks_max=1000",
    "broker.transaction_op_interval_ms=300",
)
_LOOK_S: Final = 0.05
_ROOT: Final = Path(__file__).parents[2]


@dataclass
class KilledCluster:
    """The broker, its data, and what happened. Made by `killed_cluster`.

    Attributes:
        random: Draws the moments.
        notes: A file that every process of the test appends to.
    """

    folder: Path
    mode: FlushMode
    nameserver: str
    random: Random
    env: Environment
    history: History = field(default_factory=History)
    lives: int = 0
    _process: Process | None = None
    _address: Address | None = None
    _others: list[Process] = field(default_factory=list[Process])

    @property
    def clock(self) -> Clock:
        """The machine's."""
        return self.env.clock

    @property
    def notes(self) -> Path:
        """A file that every process of the test appends to."""
        return self.folder / "notes"

    async def spawn_broker(self) -> None:
        """Begin a life of the broker."""
        assert self._process is None, "the broker runs"
        port = 0 if self._address is None else self._address.port
        told = [*SETTINGS, f"broker.flush_mode={self.mode.value}"]
        with (self.folder / "broker.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "ternmq", "broker", "--name", BROKER),
                *("--port-broker", str(port), "--data", str(self.folder / "data")),
                *("--nameserver", self.nameserver),
                *(word for each in told for word in ("--set", each)),
                cwd=self.folder,
                stdout=PIPE,
                stderr=log,
            )
        self.lives += 1

    async def serves(self) -> None:
        """Wait until the broker tells that it serves."""
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(SOON_S):
            line = (await self._process.stdout.readline()).decode().strip()
        assert line, f"the broker ended: {(self.folder / 'broker.log').read_text()[-2000:]}"
        self._address = parse_address(line.split()[-1], setting="address")

    async def start(self) -> None:
        """Start the broker, and return when it serves."""
        await self.spawn_broker()
        await self.serves()

    async def kill(self) -> None:
        """End the broker as `kill -9` does."""
        process, self._process = self._process, None
        assert process is not None, "the broker does not run"
        assert process.returncode is None, f"the broker ended by itself: {process.returncode}"
        process.kill()
        await process.wait()

    async def spawn(self, role: str, **told: Any) -> Process:
        """Start a client in a process of its own; it ends with the cluster."""
        told |= {"nameserver": self.nameserver, "folder": str(self.folder)}
        with (self.folder / "clients.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.support.killed_clients", role, json.dumps(told)),
                cwd=_ROOT,
                env=os.environ | {"PYTHONPATH": ""},
                stdin=DEVNULL,
                stderr=log,
            )
        self._others.append(process)
        return process

    async def close(self) -> None:
        """Kill what still runs."""
        for process in (*self._others, self._process):
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()

    async def connect(self) -> Client:
        """Return a connection to the broker."""
        assert self._address is not None
        return Client(await self.env.network.connect([self._address]))

    async def put_topic(self, topic: str, queues: int) -> None:
        """Make a topic, whose queues stay."""
        client = await self.connect()
        await client.put_topic(topic, queues)
        await client.connection.close()

    async def open_transactions(self) -> int:
        """Return how many transactions nobody has ended yet."""
        client = await self.connect()
        try:
            reply = await client.call(contracts.DESCRIBE_BROKER, admin.DescribeBrokerRequest())
        finally:
            await client.connection.close()
        count: int = reply.transactions.open
        return count

    async def records(self, topic: str) -> list[tuple[MessageQueue, StoredMessage]]:
        """Return every record of a topic; none when it does not exist."""
        client = await self.connect()
        try:
            return await records_of(client, topic, BROKER)
        finally:
            await client.connection.close()

    async def scan(self, topic: str, *, groups: Sequence[str] = ()) -> None:
        """Note every record of a topic, and every dead letter of the groups."""
        self.history.lying += [lying_of(*each) for each in await self.records(topic)]
        for group in groups:
            letters = await self.records(DEAD_LETTER_PREFIX + group)
            self.history.dead[group] = [lying_of(*each) for each in letters]

    def must_be_stored(self, topic: str) -> set[str]:
        """Return what was acknowledged and, if of a transaction, committed."""
        return {
            name
            for name, sent in self.history.sent.items()
            if sent.topic == topic
            and sent.outcome is Outcome.STORED
            and sent.decision in (Decision.NONE, Decision.COMMITTED)
        }


async def eventually(is_so: Callable[[], bool], timeout_s: float = SOON_S) -> bool:
    """Wait until `is_so`; return whether it became so in time: the history tells what lacks."""
    for _ in range(round(timeout_s / _LOOK_S)):
        if is_so():
            return True
        await asyncio.sleep(_LOOK_S)
    return False


@asynccontextmanager
async def killed_cluster(
    folder: Path, mode: FlushMode, *, seed: object
) -> AsyncGenerator[KilledCluster]:
    """Give a cluster whose broker serves. Leaving kills every process.

    Args:
        folder: Of everything; is there.
        mode: How the broker flushes.
        seed: Of what is drawn in the test's own process.
    """
    async with system_environment() as env, NameServer(NameServerConfig(port=0), env) as names:
        cluster = KilledCluster(folder, mode, str(names.address), Random(f"{seed}"), env)
        try:
            await cluster.start()
            yield cluster
        finally:
            await cluster.close()
