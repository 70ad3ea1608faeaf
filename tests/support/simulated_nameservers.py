"""NameServers of a simulated cluster, which stop and come back with what they keep durably."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_runtime.service import OwnedTasks
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import virtual_environment

PORT = 9876


@dataclass
class SimulatedNameServers:
    """Every NameServer: the hosts "ns", "ns2", … Their files, if any, are real ones."""

    network: MemoryNetwork
    folder: Path | None
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
        environment = virtual_environment(self.network.host(host), Random(f"{self.seed} {host}"))
        data = None if self.folder is None else self.folder / host
        config = NameServerConfig(listen="0.0.0.0", port=PORT, data=data)
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
    network: MemoryNetwork, count: int, *, seed: int, is_durable: bool = True
) -> AsyncGenerator[SimulatedNameServers]:
    """Give `count` NameServers, all of which serve; those that are not durable have no files."""
    hosts = ["ns", *(f"ns{number}" for number in range(2, count + 1))]
    with tempfile.TemporaryDirectory() as folder:
        async with OwnedTasks() as tasks:
            data = Path(folder) if is_durable else None
            nameservers = SimulatedNameServers(network, data, tasks, hosts, seed)
            for host in hosts:
                await nameservers.start(host)
            yield nameservers
            await nameservers.stop_all()
