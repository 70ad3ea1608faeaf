"""What both networks promise: each test runs over gRPC and over the in-memory network."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from random import Random

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import (
    CannotListen,
    ClosedError,
    ConnectionLost,
    IllegalName,
    MessageRefused,
    PermissionRefused,
    RefusedError,
    RequestTimedOut,
    TernError,
    TopicNotFound,
    Unreachable,
    refusal,
)
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_remoting.grpc_network import GrpcNetwork
from ternmq_remoting.grpc_options import MESSAGE_BYTES_MAX
from ternmq_remoting.rpc import (
    Call,
    Connection,
    Gate,
    Handler,
    Identity,
    Network,
    Server,
    ServerStream,
    stream,
    unary,
)
from ternmq_remoting.service_methods import DELETE_KV, GET_KV, PUT_KV, SESSION
from ternmq_testing.memory.memory_network import MemoryNetwork
from tests.support.fake_gate import FakeGate

LOOPBACK = Address("127.0.0.1", 0)
BROKER = Identity("c", "broker-a", 0, 3)

MakeNetwork = Callable[[], AbstractAsyncContextManager[Network]]


@contextlib.asynccontextmanager
async def over_grpc() -> AsyncGenerator[Network]:
    yield GrpcNetwork(grace_s=0.5)


@contextlib.asynccontextmanager
async def over_memory() -> AsyncGenerator[Network]:
    async with MemoryNetwork(Random(1), grace_s=0.5) as network:
        yield network
        network.crashes.clear()  # a test provokes one


@pytest.fixture(params=[over_grpc, over_memory])
def make_network(request: pytest.FixtureRequest) -> MakeNetwork:
    made: MakeNetwork = request.param
    return made


class Service:
    """Does what the key or the client id tells it to."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.cancelled = asyncio.Event()
        self.reached = asyncio.Event()
        self.hangs = asyncio.Event()

    def handlers(self) -> Sequence[Handler]:
        return [unary(GET_KV, self.get), unary(PUT_KV, self.put), stream(SESSION, self.session)]

    async def get(self, request: pb.GetKvRequest, call: Call) -> pb.GetKvReply:
        self.calls.append(call)
        self.reached.set()
        await self._obey(request.key)
        return pb.GetKvReply(values={request.key: "v"})

    async def put(self, request: pb.PutKvRequest, _call: Call) -> pb.PutKvReply:
        return pb.PutKvReply()

    async def session(
        self, session: ServerStream[groups.SessionRequest, groups.SessionReply], call: Call
    ) -> None:
        self.calls.append(call)
        self.reached.set()
        while (request := await session.read()) is not None:
            await session.write(changed(request.hello.client_id))
            if request.hello.client_id == "end":
                return
            await self._obey(request.hello.client_id)

    async def _obey(self, order: str) -> None:
        match order:
            case "hang":
                self.hangs.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.cancelled.set()
            case "refuse":
                raise refusal(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
            case "illegal":
                raise IllegalName("topic", "x y", "must not")
            case "timeout":
                raise RequestTimedOut("a peer of mine")
            case "away":
                raise Unreachable("a peer of mine")
            case "crash":
                raise ZeroDivisionError
            case _:
                return


def hello(client_id: str) -> groups.SessionRequest:
    return groups.SessionRequest(hello=groups.Hello(client_id=client_id))


def changed(group: str) -> groups.SessionReply:
    return groups.SessionReply(members_changed=groups.MembersChanged(group=group))


async def get(connection: Connection, key: str, *, timeout_s: float = 5.0) -> pb.GetKvReply:
    return await connection.call(GET_KV, pb.GetKvRequest(key=key), timeout_s=timeout_s)


@contextlib.asynccontextmanager
async def connected(
    make_network: MakeNetwork, identity: Identity | None = None, *, gate: Gate | None = None
) -> AsyncGenerator[tuple[Network, Server, Service, Connection]]:
    service = Service()
    async with (
        make_network() as network,
        network.serve(service.handlers(), LOOPBACK, identity=identity, gate=gate) as server,
    ):
        connection = await network.connect([server.address], timeout_s=30)
        try:
            yield network, server, service, connection
        finally:
            await connection.close()


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await main()

    asyncio.run(bounded())


def test_call_is_answered_and_the_handler_knows_its_caller(make_network: MakeNetwork) -> None:
    async def main() -> None:
        async with connected(make_network) as (_, server, service, connection):
            assert connection.address == server.address
            assert server.address.port > 0
            assert dict((await get(connection, "k")).values) == {"k": "v"}
            (call,) = service.calls
            assert call.peer.port > 0
            assert isinstance(call.peer, Address)
            assert call.metadata["ternmq-language"] == "python"
            assert call.metadata["ternmq-version"]

    run(main)


def test_gate_admits_a_caller_once_and_keeps_others_away(make_network: MakeNetwork) -> None:
    async def main() -> None:
        gate = FakeGate("ternmq-language", "java")
        async with connected(make_network, gate=gate) as (_, _, service, connection):
            for asking in (get(connection, "k"), connection.open(SESSION).read()):
                with pytest.raises(PermissionRefused, match="say the word"):
                    await asking
            gate.word = ("ternmq-language", "python")
            await get(connection, "k")
            opened = connection.open(SESSION)
            await opened.write(hello("end"))
            assert await opened.read() == changed("end")
            assert (gate.asked, len(service.calls)) == (["python"] * 3, 2)

    run(main)


@pytest.mark.parametrize(
    ("order", "error", "in_doubt"),
    [
        ("refuse", TopicNotFound, False),
        ("illegal", RefusedError, False),
        ("timeout", RequestTimedOut, True),
        ("away", ConnectionLost, True),
        ("crash", RefusedError, True),
    ],
)
def test_handlers_error_reaches_the_caller(
    make_network: MakeNetwork, order: str, error: type[TernError], in_doubt: bool
) -> None:
    async def main() -> None:
        async with connected(make_network) as (_, server, _service, connection):
            with pytest.raises(error) as from_call:
                await get(connection, order)
            session = connection.open(SESSION)
            await session.write(hello("one"))
            await session.write(hello(order))
            assert await session.read() == changed("one")
            assert await session.read() == changed(order)
            with pytest.raises(error) as from_stream:
                await session.read()
            for caught in (from_call.value, from_stream.value):
                assert type(caught) is type(from_call.value)
                assert caught.may_have_happened is in_doubt
                assert str(server.address) in str(caught)
                if isinstance(caught, RefusedError):
                    assert isinstance(from_call.value, RefusedError)
                    assert caught.code == from_call.value.code
            assert (await get(connection, "k")).values

    run(main)


def test_unserved_rpc_is_refused(make_network: MakeNetwork) -> None:
    async def main() -> None:
        async with connected(make_network) as (_, _server, _service, connection):
            with pytest.raises(RefusedError) as caught:
                await connection.call(DELETE_KV, pb.DeleteKvRequest(), timeout_s=30)
            assert caught.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    run(main)


def test_late_answer_is_a_timeout_and_cancels_the_handler(make_network: MakeNetwork) -> None:
    async def main() -> None:
        async with connected(make_network) as (_, _server, service, connection):
            while not service.hangs.is_set():  # a busy machine may hear of a call too late
                with pytest.raises(RequestTimedOut):
                    await get(connection, "hang", timeout_s=0.2)
            await service.cancelled.wait()

    run(main)


def test_cancelling_a_call_cancels_the_handler(make_network: MakeNetwork) -> None:
    async def main() -> None:
        async with (
            connected(make_network) as (_, _server, service, connection),
            asyncio.TaskGroup() as tasks,
        ):
            task = tasks.create_task(get(connection, "hang"))
            await service.reached.wait()
            task.cancel()
            await service.cancelled.wait()

    run(main)


def test_oversized_request_is_refused_undone(make_network: MakeNetwork) -> None:
    async def main() -> None:
        async with connected(make_network) as (_, _server, _service, connection):
            request = pb.PutKvRequest(value="v" * (MESSAGE_BYTES_MAX + 1))
            with pytest.raises(MessageRefused) as caught:
                await connection.call(PUT_KV, request, timeout_s=30)
            assert not caught.value.may_have_happened

    run(main)


def test_stream_ends_for_the_handler_when_the_caller_finishes(make_network: MakeNetwork) -> None:
    async def main() -> None:
        async with connected(make_network) as (_, _server, _service, connection):
            session = connection.open(SESSION)
            for name in ("one", "two"):
                await session.write(hello(name))
            await session.finish()
            assert [await session.read() for _ in range(3)] == [
                changed("one"),
                changed("two"),
                None,
            ]

    run(main)


def test_stream_ends_for_the_caller_when_the_handler_returns(make_network: MakeNetwork) -> None:
    async def main() -> None:
        async with connected(make_network) as (_, _server, _service, connection):
            session = connection.open(SESSION)
            await session.write(hello("end"))
            assert await session.read() == changed("end")
            assert await session.read() is None
            with pytest.raises(ConnectionLost):
                await session.write(hello("more"))

    run(main)


def test_cancelling_a_stream_cancels_the_handler(make_network: MakeNetwork) -> None:
    async def main() -> None:
        async with connected(make_network) as (_, _server, service, connection):
            session = connection.open(SESSION)
            await session.write(hello("hang"))
            await session.read()
            await service.hangs.wait()
            session.cancel()
            session.cancel()
            await service.cancelled.wait()
            with pytest.raises(ClosedError):
                await session.read()
            with pytest.raises(ClosedError):
                await session.write(hello("more"))

    run(main)


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("end", ["cancel", "close"])
@pytest.mark.parametrize("first", ["write", "finish"])
def test_stream_that_ends_while_it_begins_leaves_nobody_waiting(
    make_network: MakeNetwork, first: str, end: str, turns: int
) -> None:
    async def main() -> None:
        async with (
            connected(make_network) as (_, _server, _service, connection),
            asyncio.TaskGroup() as tasks,
        ):
            session = connection.open(SESSION)
            begun = session.write(hello("hang")) if first == "write" else session.finish()
            beginning = tasks.create_task(outcome_of(begun))
            reading = tasks.create_task(outcome_of(session.read()))
            for _ in range(turns):
                await asyncio.sleep(0)
            if end == "cancel":
                session.cancel()
            else:
                await connection.close()
            assert isinstance(await beginning, ClosedError | None)
            assert isinstance(await reading, groups.SessionReply | ClosedError | None)

    run(main)


def test_closing_a_connection_ends_its_calls_and_streams(make_network: MakeNetwork) -> None:
    async def main() -> None:
        async with (
            connected(make_network) as (_, _server, service, connection),
            asyncio.TaskGroup() as tasks,
        ):
            session = connection.open(SESSION)
            await session.write(hello("one"))
            await session.read()
            reading = tasks.create_task(outcome_of(session.read()))
            service.reached.clear()
            calling = tasks.create_task(outcome_of(get(connection, "hang")))
            await service.reached.wait()
            await connection.close()
            await connection.close()
            assert isinstance(await reading, ClosedError)
            assert isinstance(await calling, ClosedError)
            with pytest.raises(ClosedError):
                await get(connection, "k")
            with pytest.raises(ClosedError):
                connection.open(SESSION)

    run(main)


async def outcome_of(awaited: Awaitable[object]) -> object:
    """Return what came of it; it leaves no mark on the task that waited."""
    task = asyncio.current_task()
    assert task is not None
    try:
        return await awaited
    except TernError as error:
        return error
    finally:
        assert task.cancelling() == 0


async def reconnects(connection: Connection) -> bool:
    """Try until a call is answered: a connection dials again by itself, at its own pace."""
    for _ in range(200):
        if not isinstance(await outcome_of(get(connection, "k")), TernError):
            return True
        await asyncio.sleep(0.05)
    return False


def test_departing_server_lets_calls_end_and_breaks_streams(make_network: MakeNetwork) -> None:
    async def main() -> None:
        service = Service()
        async with make_network() as network, asyncio.TaskGroup() as tasks:
            async with network.serve(service.handlers(), LOOPBACK) as server:
                connection = await network.connect([server.address], timeout_s=30)
                session = connection.open(SESSION)
                await session.write(hello("one"))
                assert await session.read() == changed("one")
                service.reached.clear()
                calling = tasks.create_task(outcome_of(get(connection, "hang")))
                await service.reached.wait()
            assert isinstance(await calling, ConnectionLost)
            with pytest.raises(ConnectionLost):
                await session.read()
            with pytest.raises(Unreachable):
                await get(connection, "k")
            with pytest.raises(Unreachable):
                await connection.open(SESSION).read()

            async with network.serve(service.handlers(), server.address):
                assert await reconnects(connection)
                await connection.close()

    run(main)


def test_port_outlives_its_servers_and_refuses_calls_between_them(
    make_network: MakeNetwork,
) -> None:
    async def main() -> None:
        first, second = Service(), Service()
        async with make_network() as network, asyncio.TaskGroup() as tasks:
            listener = network.listener(LOOPBACK)
            async with listener.serve(first.handlers(), identity=BROKER) as server:
                connection = await network.connect([server.address], timeout_s=30)
                session = connection.open(SESSION)
                await session.write(hello("one"))
                assert await session.read() == changed("one")
                first.reached.clear()
                calling = tasks.create_task(outcome_of(get(connection, "hang")))
                await first.reached.wait()
            assert isinstance(await calling, ConnectionLost)
            with pytest.raises(ConnectionLost):
                await session.read()
            with pytest.raises(Unreachable):
                await get(connection, "k")
            with pytest.raises(Unreachable):
                await connection.open(SESSION).read()
            with pytest.raises(Unreachable):
                await network.connect([server.address], timeout_s=30)

            identity = Identity("c", "broker-a", 1, 4)
            async with listener.serve(second.handlers(), identity=identity) as again:
                assert again.address == server.address
                assert dict((await get(connection, "k")).values) == {"k": "v"}
                other = await network.connect([again.address], expect=identity, timeout_s=30)
                assert other.identity == identity
                await other.close()
                listener.stays_open = False
            with pytest.raises(Unreachable):
                await get(connection, "k")
            await listener.close()
            await connection.close()
            assert first.calls
            assert len(second.calls) == 1

    run(main)


def test_connect_takes_the_first_address_of_the_expected_peer(make_network: MakeNetwork) -> None:
    async def main() -> None:
        async with (
            connected(make_network, BROKER) as (network, server, _service, _connection),
            network.serve([], LOOPBACK, identity=Identity("c", "broker-b", 0, 3)) as other,
        ):
            nobody = Address("127.0.0.1", 1)
            for epoch in (3, 2):
                expect = Identity("c", "broker-a", 0, epoch)
                connection = await network.connect(
                    [nobody, other.address, server.address], expect=expect, timeout_s=30
                )
                assert connection.address == server.address
                assert connection.identity == BROKER
                await connection.close()
            with pytest.raises(Unreachable) as caught:
                await network.connect(
                    [nobody, server.address], expect=Identity("c", "broker-a", 0, 4), timeout_s=30
                )
            assert str(nobody) in str(caught.value)
            assert str(server.address) in str(caught.value)
            with pytest.raises(Unreachable):
                await network.connect([])

    run(main)


def test_taken_address_cannot_be_served(make_network: MakeNetwork) -> None:
    async def main() -> None:
        async with connected(make_network) as (network, server, _service, _connection):
            with pytest.raises(CannotListen, match=str(server.address.port)):
                async with network.serve([], server.address):
                    pass

    run(main)
