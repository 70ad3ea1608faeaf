"""A master and its slaves as whole brokers, with a NameServer, on virtual time.

async with duo() as both, both.member(0), both.member(1):
    master, slave = await both.client(0), await both.client(1)
    await until(lambda: follows(slave))
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any, Final

from ternmq_broker import Broker
from ternmq_broker.config import BrokerRole
from ternmq_model.address import Address
from ternmq_model.errors import TernError
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting import contracts
from ternmq_remoting.environment import Environment
from ternmq_store.config import StoreConfig
from tests.support.brokers import CONFIG, SMALL_STORE, Client
from tests.support.files import MemoryFileSystem
from tests.support.memory_network import MemoryNetwork
from tests.support.virtual_time import InlineBlocking, VirtualClock

PORT: Final = 10_911


class Duo:
    """A NameServer, and members of one name on hosts `a0`, `a1` and so on."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.files = [MemoryFileSystem() for _ in range(4)]

    def environment(self, host: str) -> Environment:
        """Return the seams of a host."""
        return Environment(
            clock=VirtualClock(),
            network=self.network.host(host),
            random=Random(host),
            blocking=InlineBlocking(lambda: 0.001),
        )

    def member(
        self, number: int, *, store_config: StoreConfig = SMALL_STORE, **settings: Any
    ) -> Broker:
        """Return a broker, not entered."""
        host = f"a{number}"
        config = replace(
            CONFIG,
            name="a",
            listen="0.0.0.0",
            port=PORT,
            hostname=host,
            broker_id=number,
            role=BrokerRole.SYNC_MASTER,
            nameservers=("ns:9876",),
            **settings,
        )
        return Broker(config, store_config, self.environment(host), files=self.files[number])

    async def client(self, number: int) -> Client:
        """Return a client of a member."""
        network = self.network.host("client")
        return Client(await network.connect([Address(f"a{number}", PORT)]))

    def nameserver(self) -> NameServer:
        """Return the NameServer, not entered."""
        config = NameServerConfig(listen="0.0.0.0", port=9876, data=None)
        return NameServer(config, self.environment("ns"))


@asynccontextmanager
async def duo() -> AsyncGenerator[Duo]:
    async with MemoryNetwork(Random(1)) as network:
        both = Duo(network)
        async with both.nameserver():
            yield both


async def until(is_so: Callable[[], Awaitable[bool]], within_s: float = 10.0) -> None:
    """Wait until a member says so."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                if await is_so():
                    return
            except TernError:
                pass
            await asyncio.sleep(0.02)


async def follows(slave: Client) -> bool:
    request = replication.ReplicationStatusRequest()
    reply = await slave.call(contracts.REPLICATION_STATUS, request)
    following = reply.following
    return following.is_connected and following.metadata_age_ms >= 0 and not following.lag_bytes
