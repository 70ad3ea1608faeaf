"""Two NameServers that share users, and a broker with a copy of them, on a network in memory."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ternmq_broker.broker import Broker
from ternmq_model.address import Address
from ternmq_model.errors import PermissionRefused
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_remoting.environment import Safeguards
from ternmq_store.config import FlushMode
from tests.support.brokers import Client, World, world
from tests.support.users import Users, authorization_of

PORT = 9876
HOSTS = ("ns1", "ns2")
GET = pb.GetAccessRequest()


@dataclass
class SharedWorld:
    """Two NameServers that know each other, and brokers that know both."""

    around: World
    users: Users = field(default_factory=Users)
    folder: Path | None = None
    _stacks: dict[str, AsyncExitStack] = field(default_factory=dict[str, AsyncExitStack])

    def _env(self, host: str, user: str) -> Any:
        network = self.around.network.host(host)
        network.authorization = authorization_of(user) if user else ""
        return replace(
            self.around.environment(host), safeguards=Safeguards(has_identity=bool(user))
        )

    async def start_nameserver(
        self, host: str, user: str = "names", *, peers: tuple[str, ...] | None = None
    ) -> None:
        """Start a NameServer as a user; empty = without identity. Its peer is the other one."""
        if peers is None:
            peers = tuple(f"{each}:{PORT}" for each in HOSTS if each != host)
        data = self.folder / host if self.folder is not None else None
        config = NameServerConfig(listen="0.0.0.0", port=PORT, peers=peers, data=data)
        await self._enter(host, NameServer(config, self._env(host, user)))

    async def start_broker(self, user: str = "broker-a") -> None:
        """Start the broker as a user; empty = without identity."""
        names = tuple(f"{each}:{PORT}" for each in HOSTS)
        settings: dict[str, Any] = {"listen": "0.0.0.0", "flush_mode": FlushMode.ASYNC}
        config = replace(self.around.config, nameservers=names, port=PORT + 1, **settings)
        env, files = self._env("broker", user), self.around.files
        await self._enter("broker", Broker(config, self.around.store_config, env, files=files))

    async def _enter(self, host: str, service: NameServer | Broker) -> None:
        stack = self._stacks[host] = AsyncExitStack()
        await stack.enter_async_context(service)

    async def stop(self, host: str) -> None:
        """Stop the service of a host."""
        await self._stacks.pop(host).aclose()

    async def stop_all(self) -> None:
        """Stop every service, brokers first."""
        for host in reversed(list(self._stacks)):
            await self.stop(host)

    async def client(self, host: str, user: str = "", number: int = 0) -> Client:
        """Return a client of a service, as a user; empty = without identity."""
        network = self.around.network.host(f"{user or 'nobody'}-host-{number}")
        network.authorization = authorization_of(user, number) if user else ""
        port = PORT + 1 if host == "broker" else PORT
        return Client(await network.connect([Address(host, port)]))

    async def put(self, host: str = "ns1", expected_version: int = 0) -> None:
        """Put the users at a NameServer, as the administrator and from its machine."""
        network = self.around.network.host("localhost")
        network.authorization = authorization_of("root")
        connection = await network.connect([Address(host, PORT)])
        await self.users.put(connection, expected_version)

    async def change(self, change: Callable[[Users], None], host: str = "ns1") -> None:
        """Change the users at a NameServer."""
        version = self.users.table.version
        change(self.users)
        await self.put(host, version)


@asynccontextmanager
async def shared(folder: Path | None = None) -> AsyncGenerator[SharedWorld]:
    async with world() as around:
        shared = SharedWorld(around, folder=folder)
        shared.users.add("names", "replicate cluster")
        shared.users.add("broker-a", "replicate cluster")
        shared.users.add("shop", "publish topic:orders", "subscribe topic:orders")
        try:
            yield shared
        finally:
            await shared.stop_all()


async def named(all_: SharedWorld) -> None:
    """Start two NameServers, which learn from each other that there are no users."""
    for host in HOSTS:
        await all_.start_nameserver(host)
    await asyncio.sleep(2)


async def started(all_: SharedWorld) -> None:
    """Start two NameServers with the users, the broker, and create the topic."""
    await named(all_)
    await all_.put()
    await all_.start_broker()
    await (await all_.client("broker", "root")).put_topic("orders", 1)


async def is_refused(call: Awaitable[object]) -> bool:
    try:
        await call
    except PermissionRefused:
        return True
    return False
