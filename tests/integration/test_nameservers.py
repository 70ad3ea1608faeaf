"""Several NameServers over real gRPC: back-off of real channels, real ports."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from ternmq_broker.broker import Broker
from ternmq_broker.config import BrokerConfig
from ternmq_broker.registration import Registrant, register_request
from ternmq_broker.state.topics import TopicTable
from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.config import ClientConfig
from ternmq_client.instance import ClientInstance
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.address import Address
from ternmq_model.data_version import DataVersion
from ternmq_model.errors import InvalidParameter, TernError
from ternmq_model.message import Message
from ternmq_model.route import TopicConfig
from ternmq_model.stored_message import StoredMessage
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_producer.producer import Producer
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Identity
from ternmq_remoting.service_methods import LIST_TOPICS, REGISTER_BROKER
from ternmq_remoting.system_environment import system_environment
from ternmq_store.config import FlushMode, StoreConfig
from tests.support.processes import free_port

STORE = StoreConfig(
    commit_log_file_bytes=1 << 20,
    consume_queue_file_units=1000,
    index_slots=1000,
    index_entries=4000,
)
SOON_S = 150.0
RETURN_S = 15.0
"""Half of the time after which a broker would register in any case. Simulated brokers have 2 s."""


@asynccontextmanager
async def nameserver(env: Environment, port: int) -> AsyncGenerator[None]:
    """Run a NameServer that knows nothing."""
    async with NameServer(NameServerConfig(port=port), env):
        yield


def test_clients_outlive_their_nameservers_and_routes_return_at_once(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        ports = [free_port() for _ in range(3)]
        names = [f"127.0.0.1:{port}" for port in ports]
        async with asyncio.timeout(SOON_S), AsyncExitStack() as stack:
            env = await stack.enter_async_context(system_environment())
            serving = [AsyncExitStack(), AsyncExitStack()]
            for each, port in zip(serving, ports[1:], strict=True):
                await each.enter_async_context(nameserver(env, port))
            config = BrokerConfig(
                data=tmp_path, port=0, nameservers=tuple(names), flush_mode=FlushMode.ASYNC
            )
            await stack.enter_async_context(Broker(config, STORE, env))
            heard: list[bytes] = []
            all_heard = asyncio.Event()

            async def listen(message: StoredMessage) -> None:
                heard.append(message.body)
                if len(set(heard)) == 12:
                    all_heard.set()

            # The first of three is dead from the beginning.
            producer = await stack.enter_async_context(Producer("p", nameserver=names))
            await producer.send(Message("orders", b"0"))
            consumer = await stack.enter_async_context(
                PushConsumer(
                    "g",
                    "orders",
                    nameserver=names,
                    listener=listen,
                    config=PushConsumerConfig(consume_from=ConsumeFrom.FIRST_OFFSET),
                )
            )
            await consumer.assigned()
            owned = consumer.assignment()
            for number, each in enumerate(serving):
                await each.aclose()
                await producer.send(Message("orders", b"%d" % (1 + number)))
            # Long enough for channels to back off as far as they do.
            for number in range(3, 11):
                await asyncio.sleep(0.5)
                await producer.send(Message("orders", b"%d" % number))
            for each, port in zip(serving, ports[1:], strict=True):
                await each.enter_async_context(nameserver(env, port))
                began_s = time.monotonic()
                took_s = await _route_is_back(f"127.0.0.1:{port}") - began_s
                assert took_s < RETURN_S, f"took {took_s} s"
            await producer.send(Message("orders", b"11"))
            await all_heard.wait()
            assert len(heard) == 12
            assert [each for each in consumer.assignment() if each in owned] == owned
            for each in serving:
                stack.push_async_callback(each.aclose)

    asyncio.run(main())


async def _route_is_back(name: str) -> float:
    """Return when a new client has a route from a NameServer."""
    while True:
        try:
            async with ClientInstance(ClientConfig(nameservers=(name,))) as client:
                await client.routes.route("orders")
                return time.monotonic()
        except TernError:
            await asyncio.sleep(0.02)


def test_largest_tables_are_registered_and_listed_in_pages() -> None:
    async def main() -> None:
        async with system_environment() as env:
            port = free_port()
            async with nameserver(env, port):
                address = Address("127.0.0.1", port)
                connection = await env.network.connect([address], timeout_s=SOON_S)
                names: list[str] = []
                for broker in ("a", "b", "c"):
                    topics = TopicTable(DataVersion(1))
                    for number in range(30_000):
                        name = f"{broker}-{number:06}-".ljust(120, "x")
                        names.append(name)
                        topics.put(TopicConfig(name, 1, 1), now_ms=1)
                    registrant = Registrant(Identity("c", broker, 0, 1), (address,), "1")
                    request = register_request(registrant, topics)
                    assert request.ByteSize() > 3 << 20
                    await connection.call(REGISTER_BROKER, request, timeout_s=30)
                config = ClientConfig(nameservers=(str(address),))
                async with AdminClient(client=config, env=env) as admin:
                    assert [name for name in await admin.topics() if len(name) == 120] == names
                    assert [data.broker_name for data in await admin.brokers()] == ["a", "b", "c"]
                with pytest.raises(InvalidParameter, match="set page_size"):
                    await connection.call(LIST_TOPICS, pb.ListTopicsRequest(), timeout_s=30)
                await connection.close()

    asyncio.run(main())
