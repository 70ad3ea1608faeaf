"""One real broker on a network, a disk and a clock in memory, and raw streams to talk to it.

For tests of what one broker answers: it needs no NameServer, and its test enters and leaves it
where it likes. `simulated_cluster` is for what brokers, NameServers and clients do together; it
takes the settings of its brokers and its `Client` from here.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from ternmq_broker.broker import Broker
from ternmq_broker.config import BrokerConfig
from ternmq_model.address import parse_address
from ternmq_model.message_batch import decode_records
from ternmq_model.queue import MessageQueue
from ternmq_model.route import READ_WRITE, Permission
from ternmq_model.stored_message import StoredMessage
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting import service_methods
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import ClientStream, Connection, Identity
from ternmq_remoting.system_environment import system_environment
from ternmq_runtime.processes import Processes
from ternmq_store.config import FlushMode, StoreConfig
from ternmq_testing.memory.memory_files import MemoryFileSystem
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import VirtualClock, virtual_environment
from tests.support.processes import SOON_S, eventually
from tests.support.records import record, sizes_of

CONFIG = BrokerConfig(
    data=Path("/broker"),
    port=0,
    nameservers=(),
    memory_bytes=1 << 30,
    hostname="broker-host",
    store_host="127.0.0.1",
)
SMALL_STORE = StoreConfig(
    commit_log_file_bytes=4 << 20,
    consume_queue_file_units=1000,
    consume_queue_ext_file_bytes=1 << 16,
    index_slots=1000,
    index_entries=4000,
)

SendStream = ClientStream[messages.SendStreamReply, messages.SendStreamRequest]
PullStream = ClientStream[messages.PullStreamReply, messages.PullStreamRequest]
SessionStream = ClientStream[groups.SessionReply, groups.SessionRequest]

EVERYTHING = messages.Subscription(expression="*")


@dataclass
class World:
    """Everything around one simulated broker. A test may change what it finds here."""

    network: MemoryNetwork
    files: MemoryFileSystem = field(default_factory=MemoryFileSystem)
    config: BrokerConfig = CONFIG
    store_config: StoreConfig = SMALL_STORE
    clock: VirtualClock = field(default_factory=VirtualClock)
    sync_s: float = 0.0
    """How long every blocking call takes."""
    processes: Processes | None = None

    def environment(self, host: str = "localhost") -> Environment:
        """Return the seams as `host` has them."""
        return virtual_environment(
            self.network.host(host),
            Random(7),
            lambda: self.sync_s,
            clock=self.clock,
            processes=self.processes,
        )

    def broker(self, host: str = "localhost", **settings: Any) -> Broker:
        """Return a broker over this world's files, not entered."""
        config = replace(self.config, **settings)
        return Broker(config, self.store_config, self.environment(host), files=self.files)

    async def connect(self, broker: Broker, host: str = "localhost") -> "Client":
        """Return a client of `broker`."""
        network = self.network.host(host)
        return Client(await network.connect([broker.address], expect=broker.identity))


@asynccontextmanager
async def world(*, seed: int = 1, **settings: Any) -> AsyncGenerator[World]:
    """Give a world without a broker; `settings` are the broker's, other than the defaults."""
    async with MemoryNetwork(Random(seed)) as network:
        yield World(network, config=replace(CONFIG, **settings))


@asynccontextmanager
async def serving(
    *, topics: dict[str, int] | None = None, **settings: Any
) -> AsyncGenerator[tuple[World, "Client"]]:
    """Give a broker with these topics and numbers of queues, and a client of it.

    Flushes asynchronously unless told otherwise.
    """
    settings.setdefault("flush_mode", FlushMode.ASYNC)
    async with world(**settings) as around, around.broker() as broker:
        client = await around.connect(broker)
        for topic, queues in (topics or {}).items():
            await client.put_topic(topic, queues)
        try:
            yield around, client
        finally:
            await client.connection.close()


class Client:
    """Talks to a broker in the contract's own messages."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def call(self, rpc: Any, request: Any, timeout_s: float = 40.0) -> Any:
        """Make one unary call."""
        return await self.connection.call(rpc, request, timeout_s=timeout_s)

    async def put_topic(
        self, topic: str, queues: int = 4, permissions: Permission = READ_WRITE
    ) -> admin.PutTopicReply:
        """Create or change a topic."""
        config = common.TopicConfig(
            topic=topic, read_queues=queues, write_queues=queues, permissions=int(permissions)
        )
        request = admin.PutTopicRequest(topic=config)
        return await self.connection.call(service_methods.PUT_TOPIC, request, timeout_s=40)

    async def send(self, topic: str, body: bytes = b"body", **fields: Any) -> messages.SendReply:
        """Send one message by the unary call."""
        request = messages.SendRequest(topic=topic, body=body, **fields)
        return await self.connection.call(service_methods.SEND, request, timeout_s=40)

    async def pull(self, topic: str, offset: int = 0, **fields: Any) -> messages.PullReply:
        """Read one queue once."""
        fields.setdefault("subscription", EVERYTHING)
        request = messages.PullRequest(topic=topic, offset=offset, **fields)
        return await self.connection.call(service_methods.PULL, request, timeout_s=40)

    async def replication_status(self) -> replication.ReplicationStatusReply:
        """Return how replication stands with a member."""
        request = replication.ReplicationStatusRequest()
        return await self.connection.call(service_methods.REPLICATION_STATUS, request, timeout_s=5)

    async def until_in_sync(self, count: int) -> None:
        """Wait until a master counts so many members in sync, itself one of them."""

        async def is_in_sync() -> bool:
            return (await self.replication_status()).in_sync_now == count

        assert await eventually(is_in_sync, 20), f"{count} members are not in sync"

    async def open_sender(self, **fields: Any) -> "Sender":
        """Open a SendStream."""
        fields.setdefault("auto_create", messages.AutoCreate(template_topic="TBW102", queues=4))
        stream: SendStream = self.connection.open(service_methods.SEND_STREAM)
        opening = messages.SendStreamOpen(client_id="test@1", **fields)
        await stream.write(messages.SendStreamRequest(open=opening))
        reply = await stream.read()
        assert reply is not None
        return Sender(stream, reply.opened)

    async def open_puller(self, group: str = "") -> "Puller":
        """Open a PullStream."""
        stream: PullStream = self.connection.open(service_methods.PULL_STREAM)
        opening = messages.PullStreamOpen(client_id="test@1", group=group)
        await stream.write(messages.PullStreamRequest(open=opening))
        return Puller(stream)

    async def open_session(
        self, client_id: str, *memberships: groups.ConsumerGroup, incarnation: str = "1"
    ) -> tuple[SessionStream, groups.Welcome]:
        """Open a Session and return it with its welcome."""
        stream: SessionStream = self.connection.open(service_methods.SESSION)
        hello = groups.Hello(
            client_id=client_id, incarnation=incarnation, consumer_groups=memberships
        )
        await stream.write(groups.SessionRequest(hello=hello))
        reply = await stream.read()
        assert reply is not None
        return stream, reply.welcome


@asynccontextmanager
async def connected(
    *addresses: str, expect: Identity | None = None, timeout_s: float = SOON_S
) -> AsyncGenerator[Client]:
    """Give a client, over gRPC, of the first broker that answers, or of the expected one."""
    found = [parse_address(each, setting="address") for each in addresses]
    async with system_environment() as env:
        client = Client(await env.network.connect(found, expect=expect, timeout_s=timeout_s))
        try:
            yield client
        finally:
            await client.connection.close()


class Sender:
    """An open SendStream."""

    def __init__(self, stream: SendStream, opened: messages.SendStreamOpened) -> None:
        self.stream = stream
        self.opened = opened

    def record(self, topic: str, body: bytes = b"body", **fields: Any) -> bytes:
        """Return a record for this stream."""
        fields.setdefault("born_host", self.opened.born_host)
        fields.setdefault("store_host", self.opened.store_host)
        return record(topic, body=body, **fields)

    async def write(self, *records: bytes, sizes: Sequence[int] | None = None) -> None:
        """Send one batch; `sizes` may lie."""
        told = sizes_of(records) if sizes is None else np.array(sizes, dtype="<i4")
        batch = messages.SendBatch(records=b"".join(records), record_sizes=told.tobytes())
        await self.stream.write(messages.SendStreamRequest(batch=batch))

    async def read(self) -> messages.SendBatchReply:
        """Return the next answer."""
        reply = await self.stream.read()
        assert reply is not None
        return reply.stored

    async def send(
        self, *records: bytes, sizes: Sequence[int] | None = None
    ) -> messages.SendBatchReply:
        """Send one batch and return its answer."""
        await self.write(*records, sizes=sizes)
        return await self.read()


class Puller:
    """An open PullStream."""

    def __init__(self, stream: PullStream) -> None:
        self.stream = stream

    async def subscribe(self, handle: int, topic: str, **fields: Any) -> None:
        """Begin to read a queue."""
        fields.setdefault("subscription", EVERYTHING)
        fields.setdefault("credit_bytes", 1 << 20)
        fields.setdefault("credit_messages", 1000)
        request = messages.PullSubscribe(handle=handle, topic=topic, **fields)
        await self.stream.write(messages.PullStreamRequest(subscribe=request))

    async def credit(self, handle: int, *, record_bytes: int = 0, count: int = 0) -> None:
        """Let the broker send more."""
        credit = messages.PullCredit(handle=handle, bytes=record_bytes, messages=count)
        await self.stream.write(messages.PullStreamRequest(credit=credit))

    async def unsubscribe(self, handle: int) -> None:
        """Stop reading a queue."""
        request = messages.PullUnsubscribe(handle=handle)
        await self.stream.write(messages.PullStreamRequest(unsubscribe=request))

    async def read(self) -> list[messages.PulledRecords]:
        """Return the parts of the next reply."""
        reply = await self.stream.read()
        assert reply is not None
        return list(reply.pulled)

    async def read_one(self) -> messages.PulledRecords:
        """Return the next reply, which has one part."""
        (pulled,) = await self.read()
        return pulled


def offsets_of(column: bytes) -> list[int]:
    """Return a reply's column of offsets."""
    values: list[int] = np.frombuffer(column, dtype="<i8").tolist()
    return values


def stored(reply: messages.PullReply | messages.PulledRecords) -> list[StoredMessage]:
    """Return the messages of a reply."""
    sizes = np.frombuffer(reply.record_sizes, dtype="<i4")
    return decode_records(reply.records, sizes, MessageQueue("?", "?", 0))


def bodies(reply: messages.PullReply | messages.PulledRecords) -> list[bytes]:
    """Return the bodies of a reply's messages."""
    return [message.body for message in stored(reply)]


def membership(group: str, *topics: str, expression: str = "*") -> groups.ConsumerGroup:
    """Return what a client says of one of its consumer groups."""
    return groups.ConsumerGroup(
        group=group,
        model=groups.CLUSTERING,
        subscriptions=[
            messages.Subscription(topic=topic, expression=expression) for topic in topics
        ],
    )
