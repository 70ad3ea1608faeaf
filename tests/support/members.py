"""The members of one broker name on virtual time: each on its own host, with its own disk.

async with members() as group:
    await group.start("m")
    await group.start("s", broker_id=1)
    client = await group.client("m")
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from ternmq_broker import Broker, BrokerConfig
from ternmq_model.address import Address
from ternmq_model.errors import TernError
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting import contracts
from ternmq_remoting.environment import Environment
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import StoreConfig
from tests.support.brokers import SMALL_STORE, Client
from tests.support.files import PowerLossFileSystem
from tests.support.memory_network import MemoryNetwork
from tests.support.virtual_time import InlineBlocking, VirtualClock

NAME = "a"
PORT = 10_911
NAMESERVER_PORT = 9876


@dataclass
class Running:
    """A service that runs until it is told to leave."""

    service: Broker | NameServer
    leave: asyncio.Event
    serves: asyncio.Event
    task: "asyncio.Task[None]"


@dataclass
class Members:
    """Made by `members`."""

    network: MemoryNetwork
    tasks: OwnedTasks
    nameservers: tuple[str, ...]
    settings: dict[str, Any]
    store_config: StoreConfig = SMALL_STORE
    disks: dict[str, PowerLossFileSystem] = field(default_factory=dict[str, PowerLossFileSystem])
    disk_s: dict[str, float] = field(default_factory=dict[str, float])
    """How long a call that blocks takes on a host, if not a millisecond."""

    running: dict[str, Running] = field(default_factory=dict[str, Running])
    nameserver_tasks: dict[str, Running] = field(default_factory=dict[str, Running])

    def environment(self, host: str) -> Environment:
        """Return the seams as `host` has them."""
        return Environment(
            clock=VirtualClock(),
            network=self.network.host(host),
            random=Random(host),
            blocking=InlineBlocking(lambda: self.disk_s.get(host, 0.001)),
        )

    def broker(self, host: str) -> Broker:
        """Return the member that runs on `host`."""
        broker = self.running[host].service
        assert isinstance(broker, Broker)
        return broker

    async def start(self, host: str, *, wait_s: float = 60, **settings: Any) -> None:
        """Start a member, and return when it serves; or does not for `wait_s`."""
        config = BrokerConfig(
            data=Path("/broker"),
            name=NAME,
            listen="0.0.0.0",
            port=PORT,
            hostname=host,
            store_host="10.0.0.1",
            nameservers=tuple(f"{each}:{NAMESERVER_PORT}" for each in self.nameservers),
            memory_bytes=1 << 30,
        )
        config = replace(config, **{**self.settings, **settings})
        files = self.disks.setdefault(host, PowerLossFileSystem())
        broker = Broker(config, self.store_config, self.environment(host), files=files)
        leave, serves = asyncio.Event(), asyncio.Event()

        async def live() -> None:
            async with broker:
                serves.set()
                await leave.wait()

        async def run() -> None:
            try:
                await live()
            except Exception:
                if host in self.running and self.running[host].service is broker:
                    raise

        self.running[host] = Running(broker, leave, serves, self.tasks.spawn(run(), host))
        await soon(serves.is_set, within_s=wait_s, must=False)

    def serves(self, host: str) -> bool:
        """Tell whether the member on `host` has begun to serve."""
        return self.running[host].serves.is_set()

    async def stop(self, host: str) -> None:
        """Let a member leave in order."""
        running = self.running[host]
        running.leave.set()
        if not running.serves.is_set():
            self.broker(host).stop_waiting()
        await running.task
        del self.running[host]

    def kill(self, host: str) -> None:
        """End a member at once, as `kill -9` does: its files hold all that it wrote."""
        self._end(host, deepcopy(self.disks[host]).restart())

    def lose_power(self, host: str, seed: int = 1) -> None:
        """End a member at once, with any of what it did not sync."""
        self._end(host, self.disks[host].lose_power(Random(seed)))

    def _end(self, host: str, left: PowerLossFileSystem) -> None:
        running = self.running.pop(host)
        left.locks.clear()
        self.disks[host] = left
        self.network.kill(host)
        running.task.cancel()

    async def start_nameserver(self, host: str, data: Path | None = None) -> None:
        """Start a NameServer, which knows what its directory holds."""
        config = NameServerConfig(listen="0.0.0.0", port=NAMESERVER_PORT, data=data)
        server = NameServer(config, self.environment(host))
        leave, serves = asyncio.Event(), asyncio.Event()

        async def run() -> None:
            async with server:
                serves.set()
                await leave.wait()

        task = self.tasks.spawn(run(), host)
        self.nameserver_tasks[host] = Running(server, leave, serves, task)
        await serves.wait()

    async def stop_nameserver(self, host: str) -> None:
        """Stop a NameServer."""
        running = self.nameserver_tasks.pop(host)
        running.leave.set()
        await running.task

    async def client(self, host: str, at: str = "client") -> Client:
        """Return a client of whoever serves on `host`."""
        return Client(await self.network.host(at).connect([Address(host, PORT)]))

    async def status(self, host: str) -> replication.ReplicationStatusReply:
        """Ask a member how it stands."""
        client = await self.client(host)
        try:
            request = replication.ReplicationStatusRequest()
            reply: replication.ReplicationStatusReply = await client.call(
                contracts.REPLICATION_STATUS, request
            )
            return reply
        finally:
            await client.connection.close()

    async def promote(self, host: str, *, is_forced: bool = False) -> admin.PromoteReply:
        """Promote a member."""
        client = await self.client(host)
        try:
            request = admin.PromoteRequest(is_forced=is_forced)
            reply: admin.PromoteReply = await client.call(contracts.PROMOTE, request)
            return reply
        finally:
            await client.connection.close()

    async def registered(self, nameserver_host: str = "ns") -> dict[int, tuple[str, int]]:
        """Return host and epoch of every registered member, by id."""
        network = self.network.host("client")
        connection = await network.connect([Address(nameserver_host, NAMESERVER_PORT)])
        request = nameserver.GetClusterRequest(broker_name=NAME)
        reply = await connection.call(contracts.GET_CLUSTER, request, timeout_s=5)
        await connection.close()
        return {
            member.broker_id: (member.endpoints[0].host, member.epoch)
            for data in reply.brokers
            for member in data.members
        }

    async def followed(self, master: str, slave: str, *, within_s: float = 30) -> None:
        """Wait until a slave has all that its master has."""

        async def has_all() -> bool:
            one, other = await self.status(master), await self.status(slave)
            ends = {one.log_end, other.safe_offset, other.dispatched_offset}
            return other.following.is_connected and len(ends) == 1

        await until(has_all, within_s=within_s)
        await asyncio.sleep(1.5)  # for the tables


async def soon(is_true: Callable[[], bool], *, within_s: float = 30, must: bool = True) -> None:
    """Wait until something is true."""
    for _ in range(int(within_s / 0.05)):
        if is_true():
            return
        await asyncio.sleep(0.05)
    assert not must, f"not within {within_s} s"


async def until(check: Callable[[], Awaitable[bool]], *, within_s: float = 30) -> None:
    """Wait until `check` returns True; errors of the transport count as False."""
    for _ in range(int(within_s / 0.1)):
        try:
            if await check():
                return
        except TernError:
            pass
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within {within_s} s")


@asynccontextmanager
async def members(
    *, nameservers: tuple[str, ...] = ("ns",), seed: int = 1, **settings: Any
) -> AsyncGenerator[Members]:
    """Give a network with these NameServers, in memory, and no member.

    Args:
        nameservers: Their hosts.
        seed: Of the network.
        settings: Of every member.
    """
    async with MemoryNetwork(Random(seed)) as network, OwnedTasks() as tasks:
        group = Members(network, tasks, nameservers, settings)
        for host in nameservers:
            await group.start_nameserver(host)
        yield group
        for host in list(group.running):
            await group.stop(host)
        for host in list(group.nameserver_tasks):
            await group.stop_nameserver(host)
