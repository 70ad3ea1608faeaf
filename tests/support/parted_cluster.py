"""NameServers, brokers and clients as processes on machines of their own, and a network that fails.

    async with parted_cluster(folder) as cluster:
        await cluster.start_nameserver("names")
        await cluster.start_broker("broker-a")
        await cluster.start_client("sender", "send")
        cluster.network.part("sender", "broker-a")
        ...
        cluster.network.heal()
        await cluster.end_clients()
        cluster.check()

The test's own process reaches every machine whatever is dropped between them.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ternmq_client.admin import AdminClient
from ternmq_client.config import ClientConfig, nameserver_texts
from ternmq_model.address import Address
from ternmq_model.clock import Clock
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting import contracts
from ternmq_remoting.environment import Environment
from ternmq_remoting.system import system_environment
from ternmq_store.disk.layout import commit_log_folder
from tests.support.brokers import Client
from tests.support.history import GroupRules, History
from tests.support.killed_clients import read_notes
from tests.support.namespaces import Machine, PrivateNetwork, private_network
from tests.support.parted_clients import GROUP, TASKS, TOPIC, SendNote, deliveries_of, sends_of
from tests.support.simulated_cluster import lying_of, records_of

NAMESERVERS: Final = ("names-1", "names-2")
SOON_S: Final = 60.0
SETTINGS: Final = (
    "store.commit_log_file_bytes=4MiB",
    "store.consume_queue_file_units=1000",
    "store.index_slots=1000",
    "store.index_entries=4000",
    "broker.offsets_interval_ms=500",
)
_LOOK_S: Final = 0.05
_ROOT: Final = Path(__file__).parents[2]
_PORTS: Final = {"nameserver": 9876, "broker": 10911}

Socket = tuple[str, str]
"""Both ends of a connection, as `host:port`."""


@dataclass
class PartedCluster:
    """The processes, by their machines' names, and what happened. Made by `parted_cluster`.

    Attributes:
        brokers: Names of the machines on which masters run, with the brokers' names.
    """

    folder: Path
    network: PrivateNetwork
    env: Environment
    history: History = field(default_factory=History)
    nameservers: list[str] = field(default_factory=list[str])
    brokers: dict[str, str] = field(default_factory=dict[str, str])
    _processes: dict[str, Process] = field(default_factory=dict[str, Process])
    _clients: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def clock(self) -> Clock:
        """The machine's: every process has the same."""
        return self.env.clock

    @property
    def nameserver(self) -> str:
        """What services and clients are told of the NameServers."""
        return ",".join(self.nameservers)

    @property
    def notes(self) -> Path:
        """A file that every client appends to."""
        return self.folder / "notes"

    def sends(self) -> list[SendNote]:
        """Return what the senders did up to now."""
        return sends_of(read_notes(self.notes))

    async def start_nameserver(self, name: str) -> None:
        """Start a NameServer on a machine of that name. Start all of them before the brokers."""
        address = await self._serve(name, "nameserver")
        self.nameservers.append(address)

    async def start_broker(
        self, machine: str, *settings: str, name: str = "", is_master: bool = True
    ) -> None:
        """Start a broker on a machine, which is made if it is not there; return when it serves.

        Args:
            machine: Its name.
            settings: More of them, `section.name=value`.
            name: The broker's; empty = the machine's.
            is_master: Whether it is expected to take sends.
        """
        told = [word for each in (*SETTINGS, *settings) for word in ("--set", each)]
        words = ("--name", name or machine, "--nameserver", self.nameserver, *told)
        await self._serve(machine, "broker", *words)
        if is_master:
            self.brokers[machine] = name or machine

    async def start_client(
        self,
        machine: str,
        role: str,
        *,
        group: str = GROUP,
        topic: str = TOPIC,
        tasks: int = TASKS,
        duplicates_allowed: bool = True,
    ) -> None:
        """Start a client on a machine of its own.

        Args:
            machine: Its name, and the client's.
            role: `send` or `read`.
            group: Of a reader.
            topic: Of a reader.
            tasks: Of a sender.
            duplicates_allowed: To a sender.
        """
        told: dict[str, Any] = {
            "name": machine,
            "notes": str(self.notes),
            "nameserver": self.nameserver,
            "group": group,
            "topic": topic,
            "tasks": tasks,
            "duplicates_allowed": duplicates_allowed,
        }
        command = (sys.executable, "-m", "tests.support.parted_clients", role, json.dumps(told))
        await self._spawn(machine, *command)
        self._clients[machine] = role

    async def end_clients(self) -> None:
        """End the senders, let the group take the rest, end it too, and note all that happened."""
        senders = [name for name, role in self._clients.items() if role == "send"]
        await self._end(*senders)
        for each in self.sends():
            self.history.note_sent(each.message_id, TOPIC, each.outcome)
        await self._scan()
        lying = {each.message_id for each in self.history.lying}

        def is_consumed() -> bool:
            return lying <= {each.message_id for each in deliveries_of(read_notes(self.notes))}

        if self._clients:
            await eventually(is_consumed)  # what lacks then, the history tells
        await self._end(*list(self._clients))
        self.history.deliveries = deliveries_of(read_notes(self.notes))

    async def _end(self, *names: str) -> None:
        for name in names:
            self._processes[name].send_signal(signal.SIGTERM)
        for name in names:
            async with asyncio.timeout(SOON_S):
                assert await self._processes.pop(name).wait() == 0, self.log(name)
            del self._clients[name]

    async def stop(self, machine: str, signal_: signal.Signals = signal.SIGINT) -> None:
        """End what runs on a machine."""
        process = self._processes.pop(machine)
        process.send_signal(signal_)
        async with asyncio.timeout(SOON_S):
            await process.wait()

    def check(self, *, redeliveries_max: int | None = None) -> None:
        """Hold the history to what was promised: all that lies in the queues was consumed.

        Args:
            redeliveries_max: How many messages the group may have finished more than once.
        """
        rules = GroupRules(GROUP, frozenset({TOPIC}), redeliveries_max=redeliveries_max)
        self.history.check([rules])

    async def _scan(self) -> None:
        for machine, name in self.brokers.items():
            client = await self.connect(machine)
            try:
                found = await records_of(client, TOPIC, name)
            finally:
                await client.connection.close()
            self.history.lying += [lying_of(*each) for each in found]

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

    async def connect(self, machine: str) -> Client:
        """Return a connection of the test's own to a broker."""
        address = Address(self.network.machines[machine].host, _PORTS["broker"])
        return Client(await self.env.network.connect([address]))

    @asynccontextmanager
    async def admin(self, nameserver: str = "") -> AsyncGenerator[AdminClient]:
        """Give what asks the cluster from the test's own process.

        Args:
            nameserver: Asked alone; empty = all of them.
        """
        config = ClientConfig(nameservers=nameserver_texts(nameserver or self.nameserver))
        async with AdminClient(config, env=self.env) as admin:
            yield admin

    async def until_same_logs(self, master: str, slave: str) -> None:
        """Wait until a slave has all of its master's log, stop both, and compare every byte."""

        async def is_whole() -> bool:
            ends: list[int] = []
            for machine in (master, slave):
                client = await self.connect(machine)
                try:
                    reply = await client.call(
                        contracts.REPLICATION_STATUS, replication.ReplicationStatusRequest()
                    )
                finally:
                    await client.connection.close()
                ends += (reply.log_end, reply.confirm_offset)
            return len(set(ends)) == 1

        await until(is_whole)
        for machine in (slave, master):
            await self.stop(machine)
        same_logs(self.folder / master, self.folder / slave)

    def sockets(self, machine: str, other: str) -> set[Socket]:
        """Return the connections that a machine believes to have with another one."""
        at, far = self.network.machines[machine], self.network.machines[other]
        command = at.command("ss", "-Htn", "state", "established", "dst", far.host)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        lines = (line.split() for line in done.stdout.splitlines())
        return {(local, remote) for _, _, local, remote, *_ in lines}

    def log(self, machine: str) -> str:
        """Return what the processes on a machine said last."""
        return (self.folder / f"{machine}.log").read_text()[-3000:]

    async def close(self) -> None:
        """Kill what still runs."""
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _serve(self, machine: str, verb: str, *words: str) -> str:
        """Start a service on its usual port; return its address when it tells that it serves."""
        at = self._machine(machine)
        data = self.folder / machine
        told = ("--listen", at.host, f"--port-{verb}", str(_PORTS[verb]), "--data", str(data))
        process = await self._spawn(machine, sys.executable, "-m", "ternmq", verb, *told, *words)
        assert process.stdout is not None
        async with asyncio.timeout(SOON_S):
            line = (await process.stdout.readline()).decode().strip()
        assert line, f"{machine} ended: {self.log(machine)}"
        return line.split()[-1]

    async def _spawn(self, machine: str, *command: str) -> Process:
        at = self._machine(machine)
        assert machine not in self._processes, f"{machine} runs something already"
        with (self.folder / f"{machine}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *at.command(*command),
                cwd=_ROOT,
                env=os.environ | {"PYTHONPATH": ""},
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=log,
            )
        self._processes[machine] = process
        return process

    def _machine(self, name: str) -> Machine:
        return self.network.machines.get(name) or self.network.add_machine(name)


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


async def until(is_so: Callable[[], Awaitable[bool]], timeout_s: float = SOON_S) -> None:
    """Wait until a question to the cluster is answered with yes.

    Raises:
        TimeoutError: It was not in time.
    """
    async with asyncio.timeout(timeout_s):
        answer = await is_so()
        while not answer:
            await asyncio.sleep(_LOOK_S)
            answer = await is_so()


async def eventually(is_so: Callable[[], bool], timeout_s: float = SOON_S) -> bool:
    """Wait until `is_so`; return whether it became so in time."""
    for _ in range(round(timeout_s / _LOOK_S)):
        if is_so():
            return True
        await asyncio.sleep(_LOOK_S)
    return False


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
        async with system_environment() as env:
            cluster = PartedCluster(folder, network, env)
            try:
                for name in nameservers:
                    await cluster.start_nameserver(name)
                yield cluster
            finally:
                await cluster.close()
