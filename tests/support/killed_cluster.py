"""One broker as a process that is killed and started again, and clients as processes.

    async with killed_cluster(folder, FlushMode.SYNC, seed=7) as cluster:
        ...
        await cluster.kill()
        await cluster.start()
        ...
        await cluster.scan("orders", groups=["readers"])
        cluster.history.check([...], seed=7)

Every life of the broker has the same data and the same port.
"""

import asyncio
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from ternmq_model.names import DEAD_LETTER_PREFIX
from ternmq_model.queue import MessageQueue
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting import service_methods
from ternmq_runtime.clock import SystemClock
from ternmq_store.config import FlushMode
from tests.support.brokers import Client, connected
from tests.support.client_process import start_client
from tests.support.history import Decision, History, Outcome
from tests.support.processes import TINY, ServiceProcess, kill, running_broker, running_nameserver
from tests.support.simulated_cluster import lying_of, records_of

BROKER: Final = "killed"
SETTINGS: Final = (
    *TINY,
    "broker.offsets_interval_ms=500",
    "broker.broken_session_ms=500",
    "broker.transaction_timeout_ms=500",
    "broker.transaction_check_interval_ms=500",
    "broker.transaction_checks_max=1000",
    "broker.transaction_op_interval_ms=300",
)


@dataclass
class KilledCluster:
    """The broker, its data, and what happened. Made by `killed_cluster`.

    Attributes:
        folder: Of the clients' notes and ledger too.
        random: Draws the moments.
        clock: The machine's.
        lives: How often the broker was started.
    """

    folder: Path
    mode: FlushMode
    nameserver: str
    random: Random
    history: History = field(default_factory=History)
    clock: SystemClock = field(default_factory=SystemClock)
    lives: int = 0
    _broker: ServiceProcess | None = None
    _address: str = ":0"
    _clients: list[subprocess.Popen[str]] = field(default_factory=list[subprocess.Popen[str]])

    @property
    def notes(self) -> Path:
        """A file that every client appends to."""
        return self.folder / "notes"

    def spawn_broker(self) -> ServiceProcess:
        """Begin a life of the broker."""
        assert self._broker is None, "the broker runs"
        port = self._address.rpartition(":")[2]
        settings = (*SETTINGS, f"broker.flush_mode={self.mode.value}")
        self._broker = running_broker(
            self.folder / BROKER, self.nameserver, port=port, settings=settings
        )
        self.lives += 1
        return self._broker

    async def start(self) -> None:
        """Start the broker, and return when it serves."""
        broker = self.spawn_broker()
        await asyncio.to_thread(broker.until_ready)
        self._address = broker.broker

    async def kill(self) -> None:
        """End the broker as `kill -9` does."""
        broker, self._broker = self._broker, None
        assert broker is not None, "the broker does not run"
        assert broker.process.poll() is None, f"the broker ended: {broker.process.returncode}"
        await asyncio.to_thread(broker.kill)

    def spawn(self, role: str, name: str, **told: Any) -> subprocess.Popen[str]:
        """Start a client in a process of its own; it ends with the cluster."""
        process = start_client(role, self.folder, name, self.nameserver, **told)
        self._clients.append(process)
        return process

    def close(self) -> None:
        """Kill what still runs."""
        for client in self._clients:
            kill(client)
        if self._broker is not None:
            self._broker.kill()

    def connect(self) -> AbstractAsyncContextManager[Client]:
        """Give a connection to the broker."""
        return connected(self._address)

    async def put_topic(self, topic: str, queues: int) -> None:
        """Make a topic, whose queues stay."""
        async with self.connect() as client:
            await client.put_topic(topic, queues)

    async def open_transactions(self) -> int:
        """Return how many transactions nobody has ended yet."""
        async with self.connect() as client:
            reply = await client.call(
                service_methods.DESCRIBE_BROKER, admin.DescribeBrokerRequest()
            )
        count: int = reply.transactions.open
        return count

    async def records(self, topic: str) -> list[tuple[MessageQueue, StoredMessage]]:
        """Return every record of a topic; none when it does not exist."""
        async with self.connect() as client:
            return await records_of(client, topic, BROKER)

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


@asynccontextmanager
async def killed_cluster(
    folder: Path, mode: FlushMode, *, seed: object
) -> AsyncGenerator[KilledCluster]:
    """Give a cluster whose broker serves. Leaving kills the broker and the clients.

    Args:
        folder: Of everything; is there.
        mode: How the broker flushes.
        seed: Of what is drawn in the test's own process.
    """
    with running_nameserver(folder / "nameserver") as names:
        cluster = KilledCluster(folder, mode, names.nameserver, Random(f"{seed}"))
        try:
            await cluster.start()
            yield cluster
        finally:
            cluster.close()
