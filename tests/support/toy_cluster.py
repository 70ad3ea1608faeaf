"""Toy brokers behind a NameServer that tells of them.

    async with ToyCluster(brokers=2) as cluster, cluster.producer() as producer:
        cluster.first.sending.answer = lambda _: Answer(breaks=True)
        ...
        await cluster.stop(cluster.brokers["broker-1"])

The NameServer is the host "nameserver", each broker a host of its name. Faults between them are
the network's.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from random import Random
from typing import Any

from ternmq_client.config import ClientConfig
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.listener.listener_call import Listener
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_consumer.subscriptions import Subscriptions
from ternmq_model.address import Address
from ternmq_model.errors import TernError, TopicNotFound
from ternmq_model.queue import MessageQueue
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import READ_WRITE, BrokerData, BrokerMember, QueueData, TopicRoute
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting import service_methods
from ternmq_remoting.converters import route_to_pb
from ternmq_remoting.environment import Environment
from ternmq_remoting.grpc_network import GrpcNetwork
from ternmq_remoting.rpc import Call, Handler, Identity, Server, unary
from ternmq_runtime.lifecycle import Lifecycle
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import VirtualClock
from tests.support.toy_broker import ToyBroker
from tests.support.toy_log import TOPIC

FIRST = PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET)


class ToyCluster(Lifecycle):
    """A NameServer and brokers, some of which may be down.

    Args:
        brokers: How many begin to serve: "broker-0", "broker-1"…
        queues: Of `TOPIC` at each of them.
        seed: Of everything that is drawn.
        latency_s: How long a message takes through the network on average.
        is_real: Serve over gRPC on this machine, in real time; `network` is not used then.

    Attributes:
        brokers: Those of which the NameServer tells, by name.
        members: What the NameServer tells of each broker name.
        nameserver: The NameServer's address.
        nameserver_error: What the NameServer answers instead of routes.
        untold: The brokers of which the NameServer tells nothing, by name.
        questions: The topics that the NameServer was asked for.
        servers: The brokers that serve, by name.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        queues: int = 4,
        seed: int = 1,
        latency_s: float = 0.001,
        is_real: bool = False,
    ) -> None:
        self.random = Random(seed)
        self.network = MemoryNetwork(
            self.random, latency_s=lambda drawn: drawn.uniform(0.2, 1.8) * latency_s
        )
        names = [f"broker-{number}" for number in range(brokers)]
        self.brokers = {name: ToyBroker(name, queues) for name in names}
        self.members: dict[str, tuple[BrokerMember, ...]] = {}
        self.nameserver = ""
        self.nameserver_error: TernError | None = None
        self.untold: set[str] = set()
        self.questions: list[str] = []
        self.servers: dict[str, AsyncExitStack] = {}
        self._is_real = is_real

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.network)
        server = await stack.enter_async_context(self.serve_nameserver("nameserver"))
        self.nameserver = str(server.address)
        stack.push_async_callback(self._stop_all)
        for broker in self.brokers.values():
            await self.start(broker)

    async def _stop_all(self) -> None:
        for server in self.servers.values():
            await server.aclose()

    @property
    def first(self) -> ToyBroker:
        """The broker "broker-0"."""
        return self.brokers["broker-0"]

    @property
    def queues(self) -> list[MessageQueue]:
        """Every queue of `TOPIC`, sorted."""
        brokers = sorted(self.brokers.items())
        return [queue for _, broker in brokers for queue in broker.queues_of(TOPIC)]

    def environment(self, host: str = "client") -> Environment:
        """Return the world as a client on `host` sees it."""
        return Environment(
            clock=VirtualClock(),
            network=self.network.host(host),
            random=Random(self.random.random()),
            blocking=InlineBlocking(),
        )

    def producer(self, config: ProducerConfig | None = None, host: str = "client") -> Producer:
        """Return a producer on `host`, not entered."""
        return Producer(
            "senders",
            nameserver=self.nameserver,
            config=config,
            client=ClientConfig(host_name=host),
            env=self.environment(host),
        )

    def consumer(
        self,
        host: str,
        config: PushConsumerConfig = FIRST,
        *,
        topics: Subscriptions = TOPIC,
        listener: Listener | None = None,
        **more: Any,
    ) -> PushConsumer:
        """Return a consumer of group "g" on `host`, not entered."""
        return PushConsumer(
            "g",
            topics,
            listener=listener,
            nameserver=self.nameserver,
            config=config,
            env=self.environment(host),
            **more,
        )

    def append(self, queue: MessageQueue, body: bytes, tag: str = "") -> int:
        """Store a message and return its offset."""
        return self.brokers[queue.broker_name].append(queue.queue_id, body, tag)

    def fill(self, per_queue: int, tags: Sequence[str] = ("",)) -> int:
        """Store messages in every queue, with these tags in turn, and return how many."""
        for queue in self.queues:
            for number in range(per_queue):
                self.append(queue, b"body", tags[number % len(tags)])
        return per_queue * len(self.queues)

    def committed(self, group: str, queue: MessageQueue) -> int:
        """Return the committed offset, -1 for none."""
        return self.brokers[queue.broker_name].groups.committed(group, queue)

    def put_topic(self, topic: str, queues: int, names: Sequence[str] | None = None) -> None:
        """Have brokers `names`, or all, serve a topic, and no others."""
        for name, broker in self.brokers.items():
            broker.topics.pop(topic, None)
            if names is None or name in names:
                broker.topics[topic] = queues

    def route(self, topic: str) -> TopicRoute:
        """Return what the NameServer tells of a topic.

        Raises:
            TopicNotFound: No broker has the topic.
        """
        serving = {
            name: broker.topics[topic]
            for name, broker in sorted(self.brokers.items())
            if topic in broker.topics and name not in self.untold
        }
        if not serving:
            raise TopicNotFound(ResponseCode.TOPIC_NOT_EXIST, f"no topic {topic}")
        return TopicRoute(
            topic,
            queues=tuple(QueueData(name, n, n, READ_WRITE) for name, n in serving.items()),
            brokers=tuple(BrokerData("toy", name, self.members[name]) for name in serving),
        )

    async def get_topic_route(
        self, request: nameserver.GetTopicRouteRequest, call: Call
    ) -> nameserver.GetTopicRouteReply:
        """Serve the NameServer's one question."""
        self.questions.append(request.topic)
        if self.nameserver_error is not None:
            raise self.nameserver_error
        return nameserver.GetTopicRouteReply(route=route_to_pb(self.route(request.topic)))

    def serve_nameserver(self, host: str) -> AbstractAsyncContextManager[Server]:
        """Serve the NameServer at `host` while the block runs."""
        return self._serve(
            Address(host, 0), [unary(service_methods.GET_TOPIC_ROUTE, self.get_topic_route)]
        )

    async def start(self, broker: ToyBroker) -> None:
        """Let `broker` serve, at the address it had before if it served already."""
        name = broker.name
        listen = self.members[name][0].endpoints[0] if name in self.members else Address(name, 0)
        stack = AsyncExitStack()
        server = await stack.enter_async_context(
            self._serve(listen, broker.handlers(), Identity("toy", name, 0, 0))
        )
        self.servers[name] = stack
        self.brokers[name] = broker
        self.members.setdefault(name, (BrokerMember(0, (server.address,)),))

    async def stop(self, broker: ToyBroker) -> None:
        """Let `broker` vanish."""
        await self.servers.pop(broker.name).aclose()

    def _serve(
        self, listen: Address, handlers: Sequence[Handler], identity: Identity | None = None
    ) -> AbstractAsyncContextManager[Server]:
        if self._is_real:
            return GrpcNetwork().serve(handlers, Address("127.0.0.1", 0), identity=identity)
        return self.network.host(listen.host).serve(handlers, listen, identity=identity)
