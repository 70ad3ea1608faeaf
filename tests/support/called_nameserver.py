"""A NameServer over the in-memory network on virtual time, and what is asked of it."""

import contextlib
import io
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path
from random import Random
from typing import Any

from ternmq_nameserver.config import NameServerConfig
from ternmq_nameserver.server import NameServer
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Connection, Rep, Req, UnaryRpc
from ternmq_runtime.logs import LogFormat, LoggingSettings, configure_logging
from ternmq_testing.memory.inline_blocking import InlineBlocking
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time


class Caller:
    """A connection that needs no timeout."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def __call__(self, rpc: UnaryRpc[Req, Rep], request: Req) -> Rep:
        return await self._connection.call(rpc, request, timeout_s=3.0)


@contextlib.asynccontextmanager
async def nameserver(data: Path | None = None, **settings: Any) -> AsyncGenerator[Caller]:
    async with MemoryNetwork(Random(1)) as network:
        env = Environment(
            clock=VirtualClock(), network=network, random=Random(1), blocking=InlineBlocking()
        )
        config = NameServerConfig(port=0, data=data, **settings)
        async with NameServer(config, env) as server:
            yield Caller(await network.connect([server.address]))


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def started() -> None:
        await main()

    run_in_virtual_time(started())


@contextlib.contextmanager
def json_log() -> Generator[io.StringIO]:
    """Log as a service does, limits included, for as long as the block lasts."""
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    configure_logging(LoggingSettings(format=LogFormat.JSON), stream)
    try:
        yield stream
    finally:
        for handler in root.handlers:
            if handler not in handlers:
                handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)


def registration(*topics: str, broker_id: int = 0, epoch: int = 0) -> pb.RegisterBrokerRequest:
    return pb.RegisterBrokerRequest(
        cluster="c",
        broker_name="a",
        broker_id=broker_id,
        endpoints=[common.Endpoint(host=f"a-{broker_id}", port=10911)],
        data_version=common.DataVersion(timestamp_ms=1),
        topics=[
            common.TopicConfig(topic=topic, read_queues=4, write_queues=4, permissions=6)
            for topic in topics
        ],
        incarnation=f"life-{broker_id}",
        epoch=epoch,
    )
