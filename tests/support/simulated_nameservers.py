"""NameServers of a simulation, which stop and come back with what they keep durably."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_remoting.environment import Environment
from ternmq_runtime.service import OwnedTasks
from tests.support.memory_network import MemoryNetwork
from tests.support.virtual_time import InlineBlocking, VirtualClock

PORT = 9876


@dataclass
class SimulatedNameServers:
    """Every NameServer: the hosts "ns", "ns2", … Their files are real ones."""

    network: MemoryNetwork
    folder: Path
    tasks: OwnedTasks
    hosts: list[str]
    seed: int
    _running: dict[str, tuple[asyncio.Event, "asyncio.Task[None]"]] = field(
        default_factory=dict[str, tuple[asyncio.Event, "asyncio.Task[None]"]]
    )

    @property
    def addresses(self) -> list[str]:
        """Where they all are, whether they run or not."""
        return [f"{host}:{PORT}" for host in self.hosts]

    async def start(self, host: str) -> None:
        """Start one, and return when it serves."""
        environment = Environment(
            clock=VirtualClock(),
            network=self.network.host(host),
            random=Random(f"{self.seed} {host}"),
            blocking=InlineBlocking(),
        )
        config = NameServerConfig(listen="0.0.0.0", port=PORT, data=self.folder / host)
        serves, leave = asyncio.Event(), asyncio.Event()

        async def serve() -> None:
            async with NameServer(config, environment):
                serves.set()
                await leave.wait()

        self._running[host] = leave, self.tasks.spawn(serve(), host)
        await serves.wait()

    async def stop(self, host: str) -> None:
        """Let one leave; what it keeps stays."""
        leave, task = self._running.pop(host)
        leave.set()
        await task
        self.network.cut(host)

    async def stop_all(self) -> None:
        """Let all leave that run."""
        for host in list(self._running):
            await self.stop(host)


@asynccontextmanager
async def simulated_nameservers(
    network: MemoryNetwork, count: int, *, seed: int
) -> AsyncGenerator[SimulatedNameServers]:
    """Give `count` NameServers, all of which serve."""
    hosts = ["ns", *(f"ns{number}" for number in range(2, count + 1))]
    with tempfile.TemporaryDirectory() as folder:
        async with OwnedTasks() as tasks:
            nameservers = SimulatedNameServers(network, Path(folder), tasks, hosts, seed)
            for host in hosts:
                await nameservers.start(host)
            yield nameservers
            await nameservers.stop_all()
