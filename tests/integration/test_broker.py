"""One broker over real gRPC, on real files."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ternmq_broker.broker import Broker
from ternmq_broker.config import BrokerConfig
from ternmq_model.errors import (
    CannotListen,
    ConnectionLost,
    InvalidParameter,
    MessageRefused,
    RefusedError,
    StoreLocked,
    TopicNotFound,
    TransportError,
)
from ternmq_model.response_code import ResponseCode as Code
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting import service_methods
from ternmq_remoting.environment import Environment
from ternmq_remoting.system_environment import system_environment
from ternmq_runtime.service import OwnedTasks
from ternmq_store.config import FlushMode, StoreConfig
from tests.support.brokers import (
    Client,
    Sender,
    bodies,
    connected,
    membership,
    offsets_of,
    stored,
)
from tests.support.processes import TINY, ServiceProcess, running_broker

STORE = StoreConfig(
    commit_log_file_bytes=16 << 20,
    consume_queue_file_units=10_000,
    index_slots=1000,
    index_entries=4000,
)
SOON_S = 120.0


def config_of(data: Path, **settings: Any) -> BrokerConfig:
    settings.setdefault("port", 0)
    return BrokerConfig(data=data, nameservers=(), **settings)


@asynccontextmanager
async def serving(
    data: Path, **settings: Any
) -> AsyncGenerator[tuple[Environment, Broker, Client]]:
    async with (
        asyncio.timeout(SOON_S),
        system_environment() as env,
        Broker(config_of(data, **settings), STORE, env) as broker,
    ):
        client = await client_of(env, broker)
        try:
            yield env, broker, client
        finally:
            await client.connection.close()


async def client_of(env: Environment, broker: Broker) -> Client:
    address, identity = broker.address, broker.identity
    return Client(await env.network.connect([address], expect=identity, timeout_s=SOON_S))


@pytest.mark.parametrize("mode", FlushMode)
def test_sent_messages_are_pulled_streamed_viewed_and_kept_over_restart(
    tmp_path: Path, mode: FlushMode
) -> None:
    async def main() -> None:
        async with serving(tmp_path, flush_mode=mode) as (_, broker, client):
            sender = await client.open_sender()
            records = [sender.record("A", b"%d" % number) for number in range(200)]
            reply = await sender.send(*records)
            assert offsets_of(reply.queue_offsets) == list(range(200))
            one = await client.send("A", b"last", queue_id=0, properties={"TAGS": "t"})
            assert one.queue_offset == 200

            puller = await client.open_puller("G")
            await puller.subscribe(1, "A")
            got: list[bytes] = []
            while len(got) < 201:
                for pulled in await puller.read():
                    got += bodies(pulled)
            assert got == [*(b"%d" % number for number in range(200)), b"last"]
            request = messages.ViewMessageRequest(offset_message_id=one.offset_message_id)
            assert (await client.call(service_methods.VIEW_MESSAGE, request)).record
            port = broker.address.port
        async with serving(tmp_path, flush_mode=mode, port=port) as (_, _broker, client):
            (message,) = stored(await client.pull("A", 200))
            assert (message.body, message.tags) == (b"last", "t")
            assert (await client.send("A", queue_id=0)).queue_offset == 201

    asyncio.run(main())


def test_largest_message_passes_end_to_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (_, _broker, client):
            body = os.urandom(4 << 20)
            properties = {"x": "y" * 32_000}
            await client.send("A", b"small", queue_id=0)
            await client.send("A", body, queue_id=0, properties=properties)
            sender = await client.open_sender()
            reply = await sender.send(sender.record("A", body, properties=properties))
            assert reply.status.code == Code.SUCCESS
            assert bodies(await client.pull("A", 1)) == [body]
            puller = await client.open_puller()
            await puller.subscribe(1, "A", credit_bytes=64 << 20)
            got: list[bytes] = []
            while len(got) < 3:
                for pulled in await puller.read():
                    got += bodies(pulled)
            assert got == [b"small", body, body]

    asyncio.run(main())


def test_long_pull_and_session_are_answered_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (_, _broker, client), OwnedTasks() as tasks:
            await client.put_topic("A", 1)
            waiting = tasks.spawn(client.pull("A", wait_ms=15_000), "pull")
            session, _welcome = await client.open_session("a@1", membership("G", "A"))
            other, _welcome = await client.open_session("b@1", membership("G", "A"))
            assert not waiting.done()
            await client.send("A", b"now")
            assert bodies(await waiting) == [b"now"]
            await other.write(groups.SessionRequest(goodbye=groups.Goodbye()))
            for _ in range(3):
                assert (await session.read()) is not None
            members = await client.call(
                service_methods.LIST_MEMBERS, groups.ListMembersRequest(group="G")
            )
            assert list(members.client_ids) == ["a@1"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"topic": "no good"}, InvalidParameter),
        ({"body": bytes((4 << 20) + 1)}, MessageRefused),
        ({"properties": {"a": "\x01"}}, MessageRefused),
        ({"queue_id": 99}, InvalidParameter),
        ({"topic": "Unknown", "auto_create": {}}, TopicNotFound),
    ],
)
def test_bad_input_is_a_typed_error_and_broker_goes_on(
    tmp_path: Path, fields: dict[str, Any], error: type[Exception]
) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (_, _broker, client):
            await client.put_topic("A", 1)
            asked: dict[str, Any] = {"topic": "A"} | fields
            with pytest.raises(error):
                await client.send(**asked)
            assert (await client.send("A")).queue_offset == 0

    asyncio.run(main())


def test_oversized_request_is_a_typed_error_and_stores_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (_, _broker, client):
            await client.put_topic("A", 1)
            with pytest.raises((MessageRefused, ConnectionLost)):
                await client.send("A", bytes(5 << 20))
            assert (await client.pull("A")).max_offset == 0

    asyncio.run(main())


def test_occupied_directory_and_address_are_named(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path / "one") as (env, broker, _):
            with pytest.raises(StoreLocked, match=str(os.getpid())):
                await Broker(config_of(tmp_path / "one"), STORE, env).__aenter__()
            port = broker.address.port
            with pytest.raises(CannotListen, match=str(port)):
                await Broker(config_of(tmp_path / "two", port=port), STORE, env).__aenter__()
            async with Broker(config_of(tmp_path / "two"), STORE, env):
                pass

    asyncio.run(main())


async def send_until_killed(process: ServiceProcess, round_: int) -> dict[int, bytes]:
    """Send until the broker dies; return what it acknowledged, by queue offset."""
    acknowledged: dict[int, bytes] = {}
    async with asyncio.timeout(SOON_S), connected(process.broker) as client:
        sender = await client.open_sender()
        try:
            for batch in range(1_000_000):
                texts = [b"%d-%d-%d" % (round_, batch, number) for number in range(1 + batch % 50)]
                await send_batch(sender, texts, acknowledged)
                if batch == 150:
                    process.process.kill()
        except (TransportError, RefusedError):  # gRPC tells a write's failure as its own
            process.kill()
    return acknowledged


async def send_batch(sender: Sender, texts: list[bytes], acknowledged: dict[int, bytes]) -> None:
    reply = await sender.send(*(sender.record("A", text) for text in texts))
    assert reply.status.code == Code.SUCCESS
    acknowledged.update(zip(offsets_of(reply.queue_offsets), texts, strict=True))


async def everything(process: ServiceProcess) -> list[bytes]:
    """Return the bodies of the queue in their order."""
    async with asyncio.timeout(SOON_S), connected(process.broker) as client:
        found: list[bytes] = []
        while (reply := await client.pull("A", len(found))).records:
            found += bodies(reply)
        return found


def test_every_acknowledged_message_survives_kill_9(tmp_path: Path) -> None:
    settings = (*TINY, "broker.flush_mode=sync")
    acknowledged: dict[int, bytes] = {}
    for round_ in range(2):
        with running_broker(tmp_path / "broker-a", "", settings=settings) as process:
            acknowledged |= asyncio.run(send_until_killed(process, round_))
        assert (process.data / "abort").exists()
        with running_broker(tmp_path / "broker-a", "", settings=settings) as process:
            found = asyncio.run(everything(process))
        assert not (process.data / "abort").exists()
        assert len(acknowledged) > 1000
        assert {offset: found[offset] for offset in acknowledged} == acknowledged
