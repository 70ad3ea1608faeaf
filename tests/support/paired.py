"""A master and a slave of its name, for what clients make of the two."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from ternmq_broker import Broker, BrokerConfig
from ternmq_model.address import Address
from ternmq_model.errors import TopicNotFound
from ternmq_model.stored_message import StoredMessage
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import contracts
from ternmq_remoting.environment import Environment
from ternmq_store.config import FlushMode
from tests.support.brokers import SMALL_STORE, Client
from tests.support.files import PowerLossFileSystem
from tests.support.memory_network import MemoryNetwork
from tests.support.virtual_time import InlineBlocking, VirtualClock

NAMESERVER = "ns:9876"
PORT = 10_911
TOPIC = "A"


@dataclass
class Pair:
    """The two members of broker name "a". Made by `paired`.

    Attributes:
        sent: Bodies, as they were acknowledged.
        heard: Messages, as listeners got them.
        sync_s: How long every blocking call takes, by host.
        work_s: How long a listener works on a message.
    """

    network: MemoryNetwork
    settings: dict[str, Any]
    disks: dict[str, PowerLossFileSystem] = field(default_factory=dict[str, PowerLossFileSystem])
    sent: list[bytes] = field(default_factory=list[bytes])
    heard: list[StoredMessage] = field(default_factory=list[StoredMessage])
    running: dict[str, AsyncExitStack] = field(default_factory=dict[str, AsyncExitStack])
    sync_s: dict[str, float] = field(default_factory=dict[str, float])
    work_s: float = 0.01

    def environment(self, host: str) -> Environment:
        """Return the seams of `host`."""
        return Environment(
            clock=VirtualClock(),
            network=self.network.host(host),
            random=Random(host),
            blocking=InlineBlocking(lambda: self.sync_s.get(host, 0.0)),
        )

    async def start(self, host: str = "master", broker_id: int = 0, **settings: Any) -> None:
        """Let a member serve, with the disk that the host has."""
        config = BrokerConfig(
            data=Path("/broker"),
            name="a",
            broker_id=broker_id,
            listen="0.0.0.0",
            port=PORT,
            hostname=host,
            store_host="10.0.0.1",
            nameservers=(NAMESERVER,),
            flush_mode=FlushMode.SYNC,
            memory_bytes=1 << 30,
        )
        config = replace(config, **self.settings, **settings)
        files = self.disks.setdefault(host, PowerLossFileSystem())
        broker = Broker(config, SMALL_STORE, self.environment(host), files=files)
        stack = self.running[host] = AsyncExitStack()
        await stack.enter_async_context(broker)

    async def start_slave(self) -> None:
        """Let a slave serve, and return when it has everything that was sent."""
        await self.start("slave", 1)
        await self.synced()

    async def synced(self) -> None:
        """Wait until the slave has every message and table of its master."""
        for _ in range(600):
            await asyncio.sleep(0.1)
            if sum(await self.ends("slave")) == len(self.sent):
                break
        await asyncio.sleep(1.5)

    async def read_by(self, host: str, group: str = "g") -> int:
        """Return how many messages a member has given to a group."""
        client = await self.client(host)
        key = f"{TOPIC}@{group}"
        request = admin.DescribeStatisticsRequest(name="GROUP_GET_NUMS", key=key)
        reply = await client.call(contracts.DESCRIBE_STATISTICS, request)
        await client.connection.close()
        return sum(item.total for item in reply.items)

    async def ends(self, host: str) -> list[int]:
        """Return where each queue ends at a member."""
        client = await self.client(host)
        try:
            request = admin.DescribeTopicRequest(topic=TOPIC)
            reply = await client.call(contracts.DESCRIBE_TOPIC, request)
            return [status.max_offset for status in reply.queues]
        except TopicNotFound:
            return []
        finally:
            await client.connection.close()

    async def stop(self, host: str = "master") -> None:
        """Let a member leave in order."""
        await self.running.pop(host).aclose()

    async def client(self, host: str = "master") -> Client:
        """Return a client of a member."""
        network = self.environment("test").network
        return Client(await network.connect([Address(host, PORT)]))

    async def send(self, count: int, queues: int = 2, host: str = "master") -> None:
        """Send messages to the master."""
        client = await self.client(host)
        for _ in range(count):
            body = b"%d" % len(self.sent)
            await client.send(TOPIC, body, queue_id=len(self.sent) % queues)
            self.sent.append(body)
        await client.connection.close()

    async def listen(self, message: StoredMessage) -> bool:
        """Take a message."""
        self.heard.append(message)
        await asyncio.sleep(self.work_s)
        return True

    @property
    def bodies(self) -> list[bytes]:
        """What listeners got, each once, in the order it was sent."""
        return sorted({message.body for message in self.heard}, key=int)

    def has_all(self) -> bool:
        """Tell whether listeners got every message that was sent, and no other."""
        return len(self.heard) >= len(self.sent) and self.bodies == self.sent

    async def committed(self, host: str, group: str = "g", queues: int = 2) -> list[int]:
        """Return the group's offsets as a member has them."""
        client = await self.client(host)
        found: list[int] = []
        for queue_id in range(queues):
            request = groups.QueryOffsetRequest(group=group, topic=TOPIC, queue_id=queue_id)
            found.append((await client.call(contracts.QUERY_OFFSET, request)).offset)
        await client.connection.close()
        return found


@asynccontextmanager
async def paired(*, queues: int = 2, **settings: Any) -> AsyncGenerator[Pair]:
    """Give a master that serves a topic, and a NameServer; there is no slave yet."""
    async with MemoryNetwork(Random(1)) as network, AsyncExitStack() as stack:
        pair = Pair(network, settings)
        config = NameServerConfig(listen="0.0.0.0", port=9876)
        await stack.enter_async_context(NameServer(config, pair.environment("ns")))
        await pair.start()
        client = await pair.client()
        await client.put_topic(TOPIC, queues)
        await client.connection.close()
        yield pair
        for host in list(pair.running):
            await pair.stop(host)
