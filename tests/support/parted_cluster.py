"""NameServers, brokers and clients as processes on machines of their own, and a network that fails.

    async with parted_cluster(folder) as cluster:
        await cluster.start_broker("broker-a")
        cluster.start_reader("reader")
        cluster.start_sender()
        cluster.network.part("sender", "broker-a")
        ...
        cluster.network.heal()
        await cluster.end_clients()
        cluster.check()

The test's own process reaches every machine whatever is dropped between them.
"""

import asyncio
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.config import ClientConfig, nameserver_texts
from ternmq_runtime.clock import SystemClock
from ternmq_store.disk.layout import commit_log_folder
from tests.support.brokers import Client, connected
from tests.support.client_process import (
    READERS,
    TOPIC,
    SendNote,
    deliveries_of,
    read_notes,
    sends_of,
    start_client,
)
from tests.support.history import GroupRules, History
from tests.support.namespaces import Machine, PrivateNetwork, private_network
from tests.support.processes import (
    SOON_S,
    TERNMQ,
    TINY,
    ServiceProcess,
    eventually,
    kill,
    running_broker,
    running_nameserver,
)
from tests.support.simulated_cluster import lying_of, records_of

NAMESERVERS: Final = ("names-1", "names-2")
SETTINGS: Final = (
    *TINY,
    "store.commit_log_file_bytes=4MiB",
    "broker.offsets_interval_ms=500",
)
_NAMESERVER_PORT: Final = 9876
_BROKER_PORT: Final = 10911

Socket = tuple[str, str]
"""Both ends of a connection, as `host:port`."""


@dataclass
class PartedCluster:
    """The processes, by their machines' names, and what happened. Made by `parted_cluster`.

    Attributes:
        clock: Of every machine.
        nameservers: Their addresses.
        brokers: Names of the machines on which masters run, with the brokers' names.
    """

    folder: Path
    network: PrivateNetwork
    clock: SystemClock = field(default_factory=SystemClock)
    history: History = field(default_factory=History)
    nameservers: list[str] = field(default_factory=list[str])
    brokers: dict[str, str] = field(default_factory=dict[str, str])
    _services: dict[str, ServiceProcess] = field(default_factory=dict[str, ServiceProcess])
    _senders: list[subprocess.Popen[str]] = field(default_factory=list[subprocess.Popen[str]])
    _readers: list[subprocess.Popen[str]] = field(default_factory=list[subprocess.Popen[str]])

    @property
    def nameserver(self) -> str:
        """What services and clients are told of the NameServers."""
        return ",".join(self.nameservers)

    def notes(self) -> list[list[Any]]:
        """Return what the clients did up to now."""
        return read_notes(self.folder / "notes")

    def sends(self) -> list[SendNote]:
        """Return what the senders did up to now."""
        return sends_of(self.notes())

    async def start_nameserver(self, name: str) -> None:
        """Start a NameServer on a machine of that name. Start all of them before the brokers."""
        at = self._machine(name)
        service = running_nameserver(
            self.folder / name,
            "--listen",
            at.host,
            port=_NAMESERVER_PORT,
            launcher=at.command(*TERNMQ),
        )
        await self._serve(name, service)
        self.nameservers.append(service.nameserver)

    async def start_broker(
        self, machine: str, *words: str, name: str = "", is_master: bool = True
    ) -> None:
        """Start a broker on a machine, which is made if it is not there; return when it serves.

        Args:
            machine: Its name.
            words: More words of the command line.
            name: The broker's; empty = the machine's.
            is_master: Whether it is expected to take sends.
        """
        at = self._machine(machine)
        service = running_broker(
            self.folder / machine,
            self.nameserver,
            "--listen",
            at.host,
            *words,
            name=name,
            port=_BROKER_PORT,
            settings=SETTINGS,
            launcher=at.command(*TERNMQ),
        )
        await self._serve(machine, service)
        if is_master:
            self.brokers[machine] = name or machine

    async def _serve(self, machine: str, service: ServiceProcess) -> None:
        self._services[machine] = service
        await asyncio.to_thread(service.until_ready)

    def start_sender(self, *, duplicates_allowed: bool = True) -> None:
        """Start a sender on the machine `sender`."""
        self._senders.append(self._client("sender", "send", duplicates_allowed=duplicates_allowed))

    def start_reader(self, machine: str, *, group: str = READERS, topic: str = TOPIC) -> None:
        """Start a member of a group on a machine of its own."""
        self._readers.append(self._client(machine, "read", group=group, topic=topic))

    def _client(self, machine: str, role: str, **told: Any) -> subprocess.Popen[str]:
        launcher = self._machine(machine).command()
        return start_client(role, self.folder, machine, self.nameserver, launcher=launcher, **told)

    async def end_clients(self) -> None:
        """End the senders, let the group take the rest, end it too, and note all that happened."""
        await _end(self._senders)
        for each in self.sends():
            self.history.note_sent(each.message_id, TOPIC, each.outcome)
        for machine, name in self.brokers.items():
            async with self.connect(machine) as client:
                found = await records_of(client, TOPIC, name)
            self.history.lying += [lying_of(*each) for each in found]
        lying = {each.message_id for each in self.history.lying}
        # What lacks in the end, the history tells.
        await eventually(lambda: lying <= {each.message_id for each in deliveries_of(self.notes())})
        await _end(self._readers)
        self.history.deliveries = deliveries_of(self.notes())

    def check(self, *, redeliveries_max: int | None = None) -> None:
        """Hold the history to what was promised: all that lies in the queues was consumed.

        Args:
            redeliveries_max: How many messages the group may have finished more than once.
        """
        rules = GroupRules(READERS, frozenset({TOPIC}), redeliveries_max=redeliveries_max)
        self.history.check([rules])

    async def until_sent(self, since_ms: int, broker: str, count: int = 20) -> int:
        """Wait until a broker acknowledged sends that began after a moment.

        Returns:
            When the first of them was acknowledged; wall clock.
        """

        def found() -> list[int]:
            return [
                each.ended_ms
                for each in self.sends()
                if each.broker == broker and each.began_ms >= since_ms
            ]

        assert await eventually(lambda: len(found()) >= count), f"{broker} takes no sends"
        return min(found())

    def connect(self, machine: str) -> AbstractAsyncContextManager[Client]:
        """Give a connection of the test's own to a broker."""
        return connected(self._services[machine].broker)

    @asynccontextmanager
    async def admin(self, nameserver: str = "") -> AsyncGenerator[AdminClient]:
        """Give what asks the cluster from the test's own process.

        Args:
            nameserver: Asked alone; empty = all of them.
        """
        config = ClientConfig(nameservers=nameserver_texts(nameserver or self.nameserver))
        async with AdminClient(client=config) as admin:
            yield admin

    async def until_same_logs(self, master: str, slave: str) -> None:
        """Wait until a slave has all of its master's log, stop both, and compare every byte."""

        async def is_whole() -> bool:
            ends: list[int] = []
            for machine in (master, slave):
                async with self.connect(machine) as client:
                    status = await client.replication_status()
                ends += (status.log_end, status.confirm_offset)
            return len(set(ends)) == 1

        assert await eventually(is_whole), "the slave has not all of the log"
        for machine in (slave, master):
            await asyncio.to_thread(self._services[machine].end)
        same_logs(self._services[master].data, self._services[slave].data)

    def sockets(self, machine: str, other: str) -> set[Socket]:
        """Return the connections that a machine believes to have with another one."""
        at, far = self.network.machines[machine], self.network.machines[other]
        command = at.command("ss", "-Htn", "state", "established", "dst", far.host)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        lines = (line.split() for line in done.stdout.splitlines())
        return {(local, remote) for _, _, local, remote, *_ in lines}

    def close(self) -> None:
        """Kill what still runs."""
        for process in (*self._senders, *self._readers):
            kill(process)
        for service in self._services.values():
            service.kill()

    def _machine(self, name: str) -> Machine:
        return self.network.machines.get(name) or self.network.add_machine(name)


async def _end(clients: Sequence[subprocess.Popen[str]]) -> None:
    for client in clients:
        client.terminate()
    for client in clients:
        assert await asyncio.to_thread(client.wait, SOON_S) == 0


def same_logs(master: Path, slave: Path) -> None:
    """Compare the logs of two data directories whose brokers have stopped.

    Raises:
        AssertionError: A file differs, or one has a file with bytes that the other one lacks.
    """
    logs = [
        {path.name: path.read_bytes() for path in sorted(commit_log_folder(data).iterdir())}
        for data in (master, slave)
    ]
    for name in sorted(set(logs[0]) | set(logs[1])):
        # A file that was made ahead holds nothing yet.
        one, other = (log.get(name, b"").rstrip(b"\0") for log in logs)
        assert one == other, f"{name}: the logs of {master} and {slave} differ"


@asynccontextmanager
async def parted_cluster(
    folder: Path, nameservers: Sequence[str] = NAMESERVERS
) -> AsyncGenerator[PartedCluster]:
    """Give a cluster of NameServers, which serve; leaving kills every process.

    Args:
        folder: Of everything; is there.
        nameservers: Their machines' names.
    """
    with private_network() as network:
        cluster = PartedCluster(folder, network)
        try:
            for name in nameservers:
                await cluster.start_nameserver(name)
            yield cluster
        finally:
            cluster.close()
