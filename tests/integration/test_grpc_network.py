import asyncio
import gc
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import grpc.aio
import pytest

from ternmq_model.address import Address
from ternmq_model.errors import (
    BrokerBusy,
    ClosedError,
    ConnectionLost,
    MessageRefused,
    RefusedError,
    RequestTimedOut,
    TernError,
    TopicNotFound,
    Unreachable,
)
from ternmq_model.response_code import ResponseCode
from ternmq_model.version import __version__
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.contracts import PULL, SEND, SEND_STREAM, VIEW_MESSAGE
from ternmq_remoting.grpc_network import GrpcNetwork
from ternmq_remoting.public_services import (
    NOT_SERVING,
    REFLECTION_V1,
    REFLECTION_V1ALPHA,
    SERVING,
    HealthReply,
    HealthRequest,
    message_class,
)
from ternmq_remoting.rpc import Call, ClientStream, Connection, Identity, Server, stream, unary
from ternmq_remoting.system import system_environment
from tests.support.cut_wire import CutWire
from tests.support.toy_broker import Reply, Request, ToyBroker

ANY_PORT = Address("127.0.0.1", 0)
ME = Identity("cluster", "broker-a", 0, 3)
NOBODY = Address("127.0.0.1", 1)


@asynccontextmanager
async def toy() -> AsyncGenerator[tuple[ToyBroker, Server, Connection]]:
    network, broker = GrpcNetwork(), ToyBroker()
    async with network.serve(broker.handlers(), ANY_PORT, identity=ME) as server:
        link = await network.connect([server.address])
        try:
            yield broker, server, link
        finally:
            await link.close()
            broker.release.set()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(main())
    gc.collect()  # a leaked call would warn here, in the test that leaked it


async def send(link: Connection, topic: str, *, timeout_s: float = 5) -> messages.SendReply:
    return await link.call(SEND, messages.SendRequest(topic=topic), timeout_s=timeout_s)


def batch(records: bytes = b"", *, is_retry: bool = False) -> Request:
    return Request(batch=messages.SendBatch(records=records, is_retry=is_retry))


async def open_stream(link: Connection) -> ClientStream[Reply, Request]:
    opened = link.open(SEND_STREAM)
    await opened.write(batch(b"abc"))
    reply = await opened.read()
    assert reply is not None
    assert reply.stored.stored_at_ms == 3
    return opened


async def error_of(waiting: Awaitable[object]) -> TernError:
    with pytest.raises(TernError) as caught:
        await waiting
    return caught.value


def test_a_call_is_answered_and_its_handler_knows_the_caller() -> None:
    async def test() -> None:
        async with toy() as (broker, _, link):
            assert (await send(link, "T")).queue_offset == 0
            assert (await send(link, "T")).queue_offset == 1
            (call, _) = broker.calls
            assert call.peer.host == "127.0.0.1"
            assert call.peer.port > 0
            assert call.metadata["ternmq-language"] == "python"
            assert call.metadata["ternmq-version"] == __version__

    run(test)


def test_a_refusal_comes_out_of_the_call_and_an_answer_does_not() -> None:
    async def test() -> None:
        async with toy() as (_, server, link):
            error = await error_of(send(link, "none"))
            assert type(error) is TopicNotFound
            assert (error.remark, error.peer) == ("no topic 'none'", str(server.address))
            pulled = await link.call(PULL, messages.PullRequest(topic="T"), timeout_s=5)
            assert pulled.status.code == ResponseCode.PULL_NOT_FOUND

    run(test)


def test_a_crash_of_a_handler_is_logged_there_and_leaves_the_caller_in_doubt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with toy() as (_, _, link):
            opened = await open_stream(link)
            await opened.write(batch(b"!"))
            for error in (await error_of(send(link, "crash")), await error_of(opened.read())):
                assert type(error) is RefusedError
                assert error.code == ResponseCode.SYSTEM_ERROR
                assert error.may_have_happened
            assert (await send(link, "T")).queue_offset == 0

    run(test)
    assert [record.name for record in caplog.records] == ["ternmq_remoting.server"] * 2
    assert all(record.exc_info for record in caplog.records)


def test_what_a_handler_could_not_reach_is_not_refused() -> None:
    async def test() -> None:
        async with toy() as (_, _, link):
            assert type(await error_of(send(link, "lost"))) is ConnectionLost

    run(test)


def test_an_rpc_that_is_not_served_is_refused() -> None:
    async def test() -> None:
        async with toy() as (_, _, link):
            view = link.call(VIEW_MESSAGE, messages.ViewMessageRequest(), timeout_s=5)
            error = await error_of(view)
            assert isinstance(error, RefusedError)
            assert error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    run(test)


def test_a_message_above_the_cap_is_refused_and_one_below_arrives() -> None:
    async def test() -> None:
        async with toy() as (broker, _, link):
            large = messages.SendRequest(topic="T", body=bytes((4 << 20) + (300 << 10)))
            error = await error_of(link.call(SEND, large, timeout_s=5))
            assert type(error) is MessageRefused
            assert not error.may_have_happened
            assert not broker.records
            fits = messages.SendRequest(
                topic="T", body=bytes(4 << 20), properties={"K": "v" * 32_000}
            )
            assert not (await link.call(SEND, fits, timeout_s=5)).status.code

    run(test)


def test_bytes_that_are_no_message_are_refused_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with toy() as (_, server, _), grpc.aio.insecure_channel(str(server.address)) as raw:
            garbage = cast("Any", raw.unary_unary(SEND.path))
            calls = cast("Any", raw.stream_stream(SEND_STREAM.path))()
            await calls.write(b"\xff" * 9)
            for waiting in (garbage(b"\xff" * 9), calls.read()):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await waiting
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run(test)
    assert not caplog.records


def test_an_answer_that_comes_too_late_may_have_happened() -> None:
    async def test() -> None:
        async with toy() as (broker, _, link):
            error = await error_of(send(link, "hold", timeout_s=0.05))
            assert type(error) is RequestTimedOut
            assert error.may_have_happened
            assert broker.arrived.is_set()

    run(test)


def test_a_call_to_nobody_was_never_made_and_one_cut_off_may_have_been() -> None:
    async def test() -> None:
        async with toy() as (broker, server, _), CutWire(server.address) as wire:
            link = await GrpcNetwork().connect([wire.address])
            async with asyncio.TaskGroup() as group:
                held = group.create_task(error_of(send(link, "hold")))
                opened = await open_stream(link)
                await broker.arrived.wait()
                await wire.cut()
            lost = held.result()
            assert type(lost) is ConnectionLost, lost
            assert lost.may_have_happened
            assert type(await error_of(opened.read())) is ConnectionLost
            assert type(await error_of(opened.write(batch()))) is ConnectionLost
            gone = await error_of(send(link, "T"))
            assert type(gone) is Unreachable
            assert not gone.may_have_happened
            assert str(wire.address) in str(gone)
            unopened = link.open(SEND_STREAM)
            assert type(await error_of(unopened.write(batch()))) is Unreachable
            assert not broker.records
            await link.close()

    run(test)


def test_a_connection_finds_its_server_again() -> None:
    async def test() -> None:
        network = GrpcNetwork(grace_s=0)
        async with network.serve(ToyBroker().handlers(), ANY_PORT) as first:
            link = await network.connect([first.address])
        assert type(await error_of(send(link, "T"))) is Unreachable
        async with network.serve(ToyBroker().handlers(), first.address):
            async with asyncio.timeout(5):
                while True:
                    try:
                        await send(link, "T")
                        break
                    except Unreachable:
                        await asyncio.sleep(0.05)
        await link.close()

    run(test)


def test_a_stream_carries_both_ways_and_ends_well() -> None:
    async def test() -> None:
        async with toy() as (broker, _, link):
            opened = await open_stream(link)
            sizes = [1, 1 << 20, 0, 70_000]

            async def write() -> None:
                for size in sizes:
                    await opened.write(batch(bytes(size)))
                await opened.finish()
                await opened.finish()

            async with asyncio.TaskGroup() as group:
                group.create_task(write())
                replies = [await opened.read() for _ in sizes]
                assert await opened.read() is None
            assert [reply and reply.stored.stored_at_ms for reply in replies] == sizes
            assert await opened.read() is None
            assert type(await error_of(opened.write(batch()))) is ConnectionLost
            assert broker.endings == ["returned"]

    run(test)


def test_a_refusal_ends_a_stream_and_is_what_both_read_and_write_say() -> None:
    async def test() -> None:
        async with toy() as (_, _, link):
            opened = await open_stream(link)
            await opened.write(batch(is_retry=True))
            for waiting in (opened.read(), opened.read(), opened.write(batch())):
                error = await error_of(waiting)
                assert type(error) is BrokerBusy
                assert (error.code, error.remark) == (ResponseCode.SYSTEM_BUSY, "busy")

    run(test)


def test_a_caller_that_goes_away_cancels_the_handler_and_never_looks_like_an_end() -> None:
    async def test() -> None:
        async with toy() as (broker, _, link):
            for _ in range(50):
                opened = await open_stream(link)
                opened.cancel()
                opened.cancel()
            other = await open_stream(link)
            while len(broker.endings) < 50:
                await other.write(batch(b"abc"))
                await other.read()
            assert set(broker.endings) == {"CancelledError"}

    run(test)


def test_who_waits_on_a_stream_that_this_side_ends_gets_an_error_not_a_cancellation() -> None:
    async def test() -> None:
        async with toy() as (broker, _, link):
            opened = await open_stream(link)
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(error_of(opened.read()))
                calling = group.create_task(error_of(send(link, "hold")))
                await broker.arrived.wait()
                opened.cancel()
                assert type(await reading) is ClosedError
                await link.close()
                assert type(await calling) is ClosedError
            assert type(await error_of(opened.write(batch()))) is ClosedError
            assert type(await error_of(send(link, "T"))) is ClosedError
            with pytest.raises(ClosedError):
                link.open(SEND_STREAM)
            await link.close()

    run(test)


def test_a_cancelled_caller_stays_cancelled() -> None:
    async def test() -> None:
        async with toy() as (broker, _, link):
            opened = await open_stream(link)
            reading = asyncio.ensure_future(opened.read())
            calling = asyncio.ensure_future(send(link, "hold"))
            await broker.arrived.wait()
            for task in (reading, calling):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await send(link, "hold")

    run(test)


def test_a_closing_server_ends_streams_at_once_and_lets_calls_end() -> None:
    async def test() -> None:
        network, broker = GrpcNetwork(grace_s=10), ToyBroker()
        async with network.serve(broker.handlers(), ANY_PORT) as server:
            link = await network.connect([server.address])
            opened = await open_stream(link)

            async def reader() -> TernError:
                error = await error_of(opened.read())
                assert not held.done()
                broker.release.set()
                return error

            held = asyncio.ensure_future(send(link, "hold"))
            reading = asyncio.ensure_future(reader())
            await broker.arrived.wait()
        error = await reading
        assert type(error) is ConnectionLost
        assert "closing" in str(error)
        assert not (await held).status.code
        assert broker.endings == ["CancelledError"]
        assert type(await error_of(send(link, "T"))) is Unreachable
        await link.close()

    run(test)


def test_a_call_that_outlasts_the_grace_is_cut_off() -> None:
    async def test() -> None:
        network, broker = GrpcNetwork(grace_s=0.1), ToyBroker()
        async with network.serve(broker.handlers(), ANY_PORT) as server:
            link = await network.connect([server.address])
            held = asyncio.ensure_future(error_of(send(link, "hold")))
            await broker.arrived.wait()
        assert (await held).may_have_happened
        await link.close()

    run(test)


def test_connect_keeps_the_one_who_is_expected() -> None:
    async def test() -> None:
        network = GrpcNetwork()
        other = replace(ME, name="broker-b")
        async with (
            network.serve([], ANY_PORT, identity=other) as stranger,
            network.serve([], ANY_PORT) as nameless,
            network.serve([], ANY_PORT, identity=ME) as friend,
        ):
            addresses = [NOBODY, stranger.address, nameless.address, friend.address]
            link = await network.connect(addresses, expect=replace(ME, epoch=2))
            assert link.address == friend.address
            await link.close()
            error = await error_of(network.connect(addresses, expect=replace(ME, epoch=4)))
            assert type(error) is Unreachable
            for address in addresses:
                assert str(address) in str(error)
            assert "broker-b" in str(error)
            link = await network.connect([NOBODY, nameless.address])
            assert link.address == nameless.address
            await link.close()
            assert type(await error_of(network.connect([]))) is Unreachable

    run(test)


def test_connect_does_not_wait_for_one_that_is_silent() -> None:
    async def test() -> None:
        network = GrpcNetwork()
        async with network.serve([], ANY_PORT) as server, CutWire(server.address) as wire:
            wire.silence()
            link = await network.connect([wire.address, server.address], timeout_s=10)
            assert link.address == server.address
            await link.close()
            error = await error_of(network.connect([wire.address], timeout_s=0.1))
            assert type(error) is Unreachable
            assert str(wire.address) in str(error)

    run(test)


def test_an_address_that_is_taken_or_elsewhere_is_named() -> None:
    async def test() -> None:
        network = GrpcNetwork()
        async with network.serve([], ANY_PORT) as server:
            for address, why in (
                (server.address, "in use"),
                (Address("192.0.2.1", 0), "assign"),
            ):
                with pytest.raises(Unreachable, match=f"{address}: .*{why}"):
                    async with network.serve([], address):
                        pass

    run(test)


def test_listening_beyond_this_machine_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with GrpcNetwork().serve([], Address("0.0.0.0", 0)) as server:
            link = await GrpcNetwork().connect([Address("127.0.0.1", server.address.port)])
            await link.close()

    run(test)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "without authentication" in record.getMessage()


def test_two_handlers_for_one_rpc_are_a_mistake_of_the_caller() -> None:
    async def test() -> None:
        handlers = [*ToyBroker().handlers(), *ToyBroker().handlers()]
        with pytest.raises(ValueError, match="two handlers for /ternmq"):
            async with GrpcNetwork().serve(handlers, ANY_PORT):
                pass

    run(test)


async def watch(channel: grpc.aio.Channel, service: str) -> AsyncGenerator[int]:
    start: Any = channel.unary_stream(
        "/grpc.health.v1.Health/Watch",
        request_serializer=HealthRequest.SerializeToString,
        response_deserializer=HealthReply.FromString,
    )
    async for reply in start(HealthRequest(service=service)):
        yield reply.status


def test_health_follows_the_life_of_a_server() -> None:
    async def test() -> None:
        stop = asyncio.Event()
        ready: asyncio.Future[Server] = asyncio.get_running_loop().create_future()

        async def serve() -> None:
            async with GrpcNetwork().serve(ToyBroker().handlers(), ANY_PORT, identity=ME) as server:
                ready.set_result(server)
                await stop.wait()

        async with asyncio.TaskGroup() as group:
            group.create_task(serve())
            async with grpc.aio.insecure_channel(str((await ready).address)) as channel:
                check: Any = channel.unary_unary(
                    "/grpc.health.v1.Health/Check",
                    HealthRequest.SerializeToString,
                    HealthReply.FromString,
                )
                for service in ("", "ternmq.v1.Messages", "grpc.health.v1.Health"):
                    assert (await check(HealthRequest(service=service))).status == SERVING
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await check(HealthRequest(service="ternmq.v1.Nothing"))
                assert caught.value.code() is grpc.StatusCode.NOT_FOUND
                assert ("ternmq-epoch", "3") in tuple(caught.value.initial_metadata())
                statuses = watch(channel, "ternmq.v1.Messages")
                assert await anext(statuses) == SERVING
                stop.set()
                assert await anext(statuses) == NOT_SERVING
                await statuses.aclose()

    run(test)


@pytest.mark.parametrize("file", [REFLECTION_V1, REFLECTION_V1ALPHA], ids=["v1", "v1alpha"])
def test_a_server_tells_what_it_serves(file: Any) -> None:
    request, reply = (
        message_class(file, f"ServerReflection{name}") for name in ("Request", "Response")
    )

    async def test() -> None:
        async with (
            toy() as (_, server, _),
            grpc.aio.insecure_channel(str(server.address)) as channel,
        ):
            path = f"/{file.package}.ServerReflection/ServerReflectionInfo"
            start: Any = channel.stream_stream(path, request.SerializeToString, reply.FromString)
            ask = start()
            await ask.write(request(list_services=""))
            listed = (await ask.read()).list_services_response.service
            assert "ternmq.v1.Messages" in [service.name for service in listed]
            await ask.write(request(file_containing_symbol="ternmq.v1.Messages.Send"))
            found = (await ask.read()).file_descriptor_response.file_descriptor_proto
            assert len(found) == 2
            await ask.done_writing()
            assert await ask.read() is grpc.aio.EOF

    run(test)


def test_the_environment_of_real_processes_is_whole() -> None:
    async def test() -> None:
        async with system_environment() as env:
            assert env.clock.wall_ms() > 0
            assert await env.blocking.run(len, b"abc") == 3
            assert 0 <= env.random.random() < 1
            async with env.network.serve([], ANY_PORT) as server:
                await (await env.network.connect([server.address])).close()

    run(test)


def test_a_server_without_an_identity_and_handlers_of_every_kind_may_be_mixed() -> None:
    async def view(request: messages.ViewMessageRequest, call: Call) -> messages.ViewMessageReply:
        return messages.ViewMessageReply(record=request.offset_message_id.encode())

    async def test() -> None:
        broker = ToyBroker()
        handlers = [unary(VIEW_MESSAGE, view), stream(SEND_STREAM, broker.send_stream)]
        async with GrpcNetwork().serve(handlers, ANY_PORT) as server:
            link = await GrpcNetwork().connect([server.address])
            asked = messages.ViewMessageRequest(offset_message_id="A")
            assert (await link.call(VIEW_MESSAGE, asked, timeout_s=5)).record == b"A"
            (await open_stream(link)).cancel()
            await link.close()

    run(test)
