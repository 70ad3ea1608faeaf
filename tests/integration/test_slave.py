"""A master and its slave over real gRPC and files: consumers go on while the master is away."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from ternmq_broker.broker import Broker
from ternmq_broker.config import BrokerConfig
from ternmq_consumer.config import ConsumeFrom, PushConsumerConfig
from ternmq_consumer.push.push_consumer import PushConsumer
from ternmq_model.message import Message
from ternmq_model.stored_message import StoredMessage
from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_producer.producer import Producer
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_remoting.environment import Environment
from ternmq_remoting.system_environment import system_environment
from ternmq_store.config import FlushMode, StoreConfig

STORE = StoreConfig(
    commit_log_file_bytes=1 << 20,
    consume_queue_file_units=1000,
    index_slots=1000,
    index_entries=4000,
)
SOON_S = 150.0


@asynccontextmanager
async def broker(
    env: Environment, data: Path, nameserver: str, broker_id: int, port: int = 0
) -> AsyncGenerator[Broker]:
    """Run a member of broker name "a"."""
    config = BrokerConfig(
        data=data,
        name="a",
        broker_id=broker_id,
        port=port,
        nameservers=(nameserver,),
        flush_mode=FlushMode.ASYNC,
    )
    async with Broker(config, STORE, env) as member:
        yield member


async def committed(env: Environment, member: Broker) -> int:
    """Return how many messages the group has finished, as a member has it."""
    connection = await env.network.connect([member.address], timeout_s=SOON_S)
    total = 0
    for queue_id in range(4):
        request = groups.QueryOffsetRequest(group="g", topic="orders", queue_id=queue_id)
        reply = await connection.call(service_methods.QUERY_OFFSET, request, timeout_s=30)
        total += max(reply.offset, 0)
    await connection.close()
    return total


async def has_committed(
    env: Environment, member: Broker, count: int, *, or_more: bool = False
) -> None:
    """Wait until a member has so many messages as finished."""
    found = -1
    while found < count if or_more else found != count:
        await asyncio.sleep(0.1)
        found = await committed(env, member)


def test_consumers_switch_to_the_slave_and_back_to_the_master(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(SOON_S), AsyncExitStack() as stack:
            env = await stack.enter_async_context(system_environment())
            config = NameServerConfig(port=0)
            server = await stack.enter_async_context(NameServer(config, env))
            name = str(server.address)
            master_stack = await stack.enter_async_context(AsyncExitStack())
            master = await master_stack.enter_async_context(broker(env, tmp_path / "0", name, 0))
            port = master.address.port
            slave = await stack.enter_async_context(broker(env, tmp_path / "1", name, 1))
            heard: list[bytes] = []
            wanted = asyncio.Condition()

            async def listen(message: StoredMessage) -> None:
                await asyncio.sleep(0.01)
                async with wanted:
                    heard.append(message.body)
                    wanted.notify_all()

            async def until(count: int) -> None:
                async with wanted:
                    await wanted.wait_for(lambda: len(set(heard)) >= count)

            producer = await stack.enter_async_context(Producer("p", nameserver=name))
            for number in range(100):
                await producer.send(Message("orders", b"%d" % number))
            consumer = PushConsumer(
                "g",
                "orders",
                nameserver=name,
                listener=listen,
                config=PushConsumerConfig(
                    consume_from=ConsumeFrom.FIRST_OFFSET, workers=1, commit_s=0.5
                ),
            )
            await stack.enter_async_context(consumer)
            await until(20)
            await has_committed(env, slave, 1, or_more=True)
            await master_stack.aclose()
            await until(100)
            await has_committed(env, slave, 100)
            again = await stack.enter_async_context(broker(env, tmp_path / "0", name, 0, port=port))
            await has_committed(env, again, 100)
            for number in range(100, 120):
                await producer.send(Message("orders", b"%d" % number))
            await until(120)
            await has_committed(env, again, 120)
            assert len(heard) <= 121, "what was in hand may come twice"

    asyncio.run(main())
