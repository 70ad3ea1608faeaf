"""Brokers for tests of producers: they store what they are sent, and fail as they are told to.

One host "nameserver" tells routes; hosts "broker-0", "broker-1"… take batches. Each batch is
recorded, and the promises that producers make to brokers are checked as it comes.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from random import Random

import numpy as np

from ternmq_client.config import ClientConfig
from ternmq_model.address import Address
from ternmq_model.errors import ConnectionLost, TernError, TopicNotFound
from ternmq_model.message_id import offset_message_id
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.properties import decode_properties
from ternmq_model.record import decode_record
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerData, BrokerMember, Permission, QueueData, TopicRoute
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting import contracts
from ternmq_remoting.convert import route_to_pb
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Call, Handler, Identity, Server, ServerStream, stream, unary
from ternmq_runtime.service import OwnedTasks
from tests.support.memory_network import MemoryNetwork
from tests.support.records import BORN_HOST, STORE_HOST
from tests.support.virtual_time import InlineBlocking, VirtualClock

TOPIC = "flights"
SUFFIX = b"CLUSTER\x01toy\x02"

SendServerStream = ServerStream[messages.SendStreamRequest, messages.SendStreamReply]


@dataclass(frozen=True)
class SentRecord:
    """One record as a broker got it."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    born_at_ms: int
    flag: int

    @property
    def unique_key(self) -> str:
        """The key its producer gave it."""
        return self.properties["UNIQ_KEY"]


@dataclass
class SentBatch:
    """One batch as a broker got it."""

    records: list[SentRecord]
    bytes_total: int
    is_retry: bool
    at_s: float

    @property
    def bodies(self) -> list[bytes]:
        """The bodies, in order."""
        return [record.body for record in self.records]


@dataclass(frozen=True)
class Answer:
    """What a broker does with a batch."""

    delay_s: float = 0.0
    code: int = 0
    """Of the whole batch; another than those for stored ones stores nothing."""

    refused: dict[int, int] = field(default_factory=dict[int, int])
    """Codes by place in the batch; the others are stored."""

    breaks: bool = False
    """The stream breaks instead of the answer."""

    stores: bool = True
    """Whether a batch without an answer is stored."""

    is_silent: bool = False
    """No answer ever comes."""


class SendingBroker:
    """One broker. `answer` says what becomes of the next batch; a test may replace it any time."""

    def __init__(self, name: str, queue_count: int) -> None:
        self.name = name
        self.queue_count = queue_count
        self.answer: Callable[[SentBatch], Answer] = lambda _: Answer()
        self.batches: list[SentBatch] = []
        self.stored: dict[tuple[str, int], list[SentRecord]] = {}
        self.opens: list[messages.SendStreamOpen] = []
        self.opened = messages.SendStreamOpened(
            born_host=BORN_HOST,
            store_host=STORE_HOST,
            properties_suffix=SUFFIX,
            body_bytes_max=4 << 20,
            properties_bytes_max=32_767,
            batch_bytes_max=1 << 20,
        )
        self.unanswered_max = 0
        self.hellos: list[groups.Hello] = []
        self.goodbyes = 0
        self.members_changed: asyncio.Event | None = None
        self.heartbeats: list[groups.Heartbeat] = []
        self.session_refusal = 0
        self.requests: list[messages.SendRequest] = []
        self.answer_request: Callable[[messages.SendRequest], Awaitable[int]] = _store
        """What becomes of a unary send: a code, or a refusal that it raises."""

    @property
    def bodies(self) -> list[bytes]:
        """Every stored body, by queue, then in order."""
        return [record.body for key in sorted(self.stored) for record in self.stored[key]]

    def handlers(self) -> list[Handler]:
        """What the broker serves."""
        return [
            stream(contracts.SEND_STREAM, self.send_stream),
            stream(contracts.SESSION, self.session),
            unary(contracts.SEND, self.send),
        ]

    async def send(self, request: messages.SendRequest, call: Call) -> messages.SendReply:
        """Take one message."""
        self.requests.append(request)
        reply = messages.SendReply(
            message_id="KEY",
            offset_message_id=offset_message_id(STORE_HOST, PhysicalOffset(700)),
            queue_id=max(request.queue_id, 0),
            queue_offset=7,
        )
        reply.status.code = await self.answer_request(request)
        return reply

    async def session(
        self, talk: ServerStream[groups.SessionRequest, groups.SessionReply], call: Call
    ) -> None:
        """Serve a Session."""
        first = await talk.read()
        assert first is not None
        assert first.HasField("hello")
        self.hellos.append(first.hello)
        status = common.Status(code=self.session_refusal)
        await talk.write(groups.SessionReply(welcome=groups.Welcome(status=status)))
        if self.session_refusal:
            return
        while (request := await talk.read()) is not None:
            if request.HasField("goodbye"):
                self.goodbyes += 1
                return
            self.heartbeats.append(request.heartbeat)
            if self.members_changed is not None:
                changed = groups.MembersChanged(group="readers")
                await talk.write(groups.SessionReply(members_changed=changed))

    async def send_stream(self, batches: SendServerStream, call: Call) -> None:
        """Take batches; answer them in order, each when `answer` says."""
        first = await batches.read()
        assert first is not None
        assert first.HasField("open")
        self.opens.append(first.open)
        await batches.write(messages.SendStreamReply(opened=self.opened))
        if self.opened.status.code:
            return
        try:
            await self._take_batches(batches)
        except* BreakStream as broken:
            reason = str(broken.exceptions[0])
        else:
            return
        raise ConnectionLost(reason)

    async def _take_batches(self, batches: SendServerStream) -> None:
        waiting: asyncio.Queue[SentBatch] = asyncio.Queue()
        unanswered: list[SentBatch] = []
        async with OwnedTasks() as tasks:
            answering = tasks.spawn(
                self._answer_all(batches, waiting, unanswered), f"answers of {self.name}"
            )
            while (request := await batches.read()) is not None:
                batch = _parse(request.batch)
                unanswered.append(batch)
                self.unanswered_max = max(self.unanswered_max, len(unanswered))
                _check_promises(unanswered)
                self.batches.append(batch)
                waiting.put_nowait(batch)
                if answering.done():
                    return

    async def _answer_all(
        self,
        batches: SendServerStream,
        waiting: "asyncio.Queue[SentBatch]",
        unanswered: list[SentBatch],
    ) -> None:
        while True:
            batch = await waiting.get()
            answer = self.answer(batch)
            if answer.delay_s:
                await asyncio.sleep(answer.delay_s)
            if answer.breaks or answer.is_silent:
                if answer.stores:
                    self._store(batch, answer)
                if answer.is_silent:
                    await asyncio.Event().wait()
                raise BreakStream(f"{self.name} breaks")
            reply = self._store(batch, answer)
            unanswered.remove(batch)
            await batches.write(messages.SendStreamReply(stored=reply))

    def _store(self, batch: SentBatch, answer: Answer) -> messages.SendBatchReply:
        if answer.code not in (0, 10, 11, 12):
            return messages.SendBatchReply(status=common.Status(code=answer.code, remark="toy"))
        offsets: list[int] = []
        for index, record in enumerate(batch.records):
            if index in answer.refused:
                offsets.append(-1)
                continue
            log = self.stored.setdefault((record.topic, record.queue_id), [])
            offsets.append(len(log))
            log.append(record)
        places = np.array(offsets, dtype="<i8")
        return messages.SendBatchReply(
            status=common.Status(code=answer.code),
            queue_offsets=places.tobytes(),
            physical_offsets=(places * 1000).tobytes(),
            refused=[
                messages.RefusedRecord(index=index, status=common.Status(code=code, remark="toy"))
                for index, code in answer.refused.items()
            ],
        )


async def _store(_: messages.SendRequest) -> int:
    return 0


class BreakStream(ConnectionLost):
    """Ends a stream of a toy broker."""


def _parse(batch: messages.SendBatch) -> SentBatch:
    records: list[SentRecord] = []
    at = 0
    for size in np.frombuffer(batch.record_sizes, dtype="<i4").tolist():
        record = decode_record(batch.records, at)
        assert record is not None
        assert record.header.total_bytes == size
        assert record.properties.endswith(SUFFIX)
        records.append(
            SentRecord(
                record.topic.decode(),
                record.header.queue_id,
                record.body,
                decode_properties(record.properties),
                record.header.born_at_ms,
                record.header.flag,
            )
        )
        at += size
    assert at == len(batch.records)
    now_s = asyncio.get_running_loop().time()
    return SentBatch(records, at, batch.is_retry, now_s)


def _check_promises(unanswered: Sequence[SentBatch]) -> None:
    """Hold a producer to what it promises a broker."""
    assert len(unanswered) <= 2, "more than two batches are unanswered"
    newest = unanswered[-1]
    assert newest.bytes_total <= 1 << 20 or len(newest.records) == 1, "the batch is too large"
    queues = Counter(
        key
        for batch in unanswered
        for key in {
            (record.topic, record.queue_id)
            for record in batch.records
            if "__SHARDINGKEY" in record.properties
        }
    )
    assert all(count == 1 for count in queues.values()), "an ordered queue is in two batches"


@dataclass
class SendCluster:
    """A NameServer and brokers, some of which may be down."""

    network: MemoryNetwork
    random: Random
    brokers: list[SendingBroker]
    routes: dict[str, TopicRoute] = field(default_factory=dict[str, TopicRoute])
    route_questions: list[str] = field(default_factory=list[str])
    servers: dict[str, AsyncExitStack] = field(default_factory=dict[str, AsyncExitStack])
    addresses: dict[str, Address] = field(default_factory=dict[str, Address])
    nameserver_address: str = ""
    nameserver_error: TernError | None = None

    def environment(self, host: str = "client") -> Environment:
        """Return the world as `host` sees it."""
        return Environment(
            clock=VirtualClock(),
            network=self.network.host(host),
            random=self.random,
            blocking=InlineBlocking(),
        )

    def producer(self, config: ProducerConfig | None = None, host: str = "client") -> Producer:
        """Return a producer on `host`, not yet open."""
        return Producer(
            "senders",
            nameserver=self.nameserver_address,
            config=config,
            client=ClientConfig(host_name=host),
            env=self.environment(host),
        )

    def put_route(self, topic: str, queue_count: int, names: Sequence[str] | None = None) -> None:
        """Let the NameServer know `topic`, served by brokers `names` or all."""
        serving = [broker.name for broker in self.brokers if names is None or broker.name in names]
        both = Permission.READ | Permission.WRITE
        self.routes[topic] = TopicRoute(
            topic,
            queues=tuple(QueueData(name, queue_count, queue_count, both) for name in serving),
            brokers=tuple(
                BrokerData("toy", name, (BrokerMember(0, (self.addresses[name],)),))
                for name in serving
            ),
        )

    async def start(self, broker: SendingBroker) -> None:
        """Let `broker` serve, at the address it had before if it served already."""
        stack = AsyncExitStack()
        listen = self.addresses.get(broker.name, Address(broker.name, 0))
        server: Server = await stack.enter_async_context(
            self.network.host(broker.name).serve(
                broker.handlers(), listen, identity=Identity("toy", broker.name, 0, 0)
            )
        )
        self.addresses[broker.name] = server.address
        self.servers[broker.name] = stack

    async def stop(self, broker: SendingBroker) -> None:
        """Let `broker` vanish."""
        await self.servers.pop(broker.name).aclose()

    async def get_topic_route(
        self, request: nameserver.GetTopicRouteRequest, call: Call
    ) -> nameserver.GetTopicRouteReply:
        """Serve the NameServer's one question."""
        self.route_questions.append(request.topic)
        if self.nameserver_error is not None:
            raise self.nameserver_error
        route = self.routes.get(request.topic)
        if route is None:
            raise TopicNotFound(ResponseCode.TOPIC_NOT_EXIST, f"no topic {request.topic}")
        return nameserver.GetTopicRouteReply(route=route_to_pb(route))


@asynccontextmanager
async def send_cluster(
    brokers: int = 1, queues: int = 4, *, seed: int = 1, latency_s: float = 0.001
) -> AsyncGenerator[SendCluster]:
    """Run a NameServer and `brokers` with `queues` each for `TOPIC`."""
    random = Random(seed)
    async with MemoryNetwork(random, latency_s=lambda _: latency_s) as network:
        cluster = SendCluster(
            network, random, [SendingBroker(f"broker-{each}", queues) for each in range(brokers)]
        )
        async with network.host("nameserver").serve(
            [unary(contracts.GET_TOPIC_ROUTE, cluster.get_topic_route)], Address("nameserver", 0)
        ) as server:
            cluster.nameserver_address = str(server.address)
            for broker in cluster.brokers:
                await cluster.start(broker)
            cluster.put_route(TOPIC, queues)
            try:
                yield cluster
            finally:
                for broker in cluster.brokers:
                    if broker.name in cluster.servers:
                        await cluster.stop(broker)
