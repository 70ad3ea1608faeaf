import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from typing import Any, cast

import grpc.aio
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from ternmq_model.address import Address
from ternmq_model.errors import (
    CannotListen,
    ConnectionLost,
    MessageRefused,
    RefusedError,
    TernError,
    TransportError,
    Unreachable,
)
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.grpc_network import GrpcNetwork
from ternmq_remoting.grpc_options import MESSAGE_BYTES_MAX
from ternmq_remoting.network_config import NetworkConfig
from ternmq_remoting.reflection import V1, V1ALPHA, Request, Response
from ternmq_remoting.rpc import Call, Server, stream, unary
from ternmq_remoting.service_methods import SEND, SEND_STREAM, VIEW_MESSAGE
from tests.support.echo_service import (
    ANY_PORT,
    ME,
    EchoService,
    batch,
    echoing,
    error_of,
    open_stream,
    run,
    send,
)

REFLECTING = NetworkConfig(reflection=True)


def test_handler_crash_is_logged_and_leaves_the_caller_in_doubt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with echoing() as (_, _, link):
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


def test_undecodable_request_is_refused_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with (
            echoing() as (_, server, _),
            grpc.aio.insecure_channel(str(server.address)) as raw,
        ):
            garbage = cast("Any", raw.unary_unary(SEND.path))
            calls = cast("Any", raw.stream_stream(SEND_STREAM.path))()
            await calls.write(b"\xff" * 9)
            for waiting in (garbage(b"\xff" * 9), calls.read()):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await waiting
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run(test)
    assert not caplog.records


def test_oversized_reply_leaves_the_caller_in_doubt_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def view(request: messages.ViewMessageRequest, call: Call) -> messages.ViewMessageReply:
        return messages.ViewMessageReply(record=bytes(MESSAGE_BYTES_MAX))

    async def test() -> None:
        async with GrpcNetwork().serve([unary(VIEW_MESSAGE, view)], ANY_PORT) as server:
            link = await GrpcNetwork().connect([server.address])
            asked = messages.ViewMessageRequest(offset_message_id="A")
            error = await error_of(link.call(VIEW_MESSAGE, asked, timeout_s=30))
            assert type(error) is MessageRefused
            assert error.may_have_happened
            assert "the reply to /ternmq.v1.Messages/ViewMessage has 4456" in str(error)
            await link.close()

    run(test)
    assert not caplog.records


def test_closing_server_ends_streams_at_once_and_lets_calls_finish() -> None:
    async def test() -> None:
        network, service = GrpcNetwork(grace_s=10), EchoService()
        async with network.serve(service.handlers(), ANY_PORT) as server:
            link = await network.connect([server.address], timeout_s=30)
            opened = await open_stream(link)

            async def reader() -> TernError:
                error = await error_of(opened.read())
                assert not held.done()
                service.release.set()
                return error

            held = asyncio.ensure_future(send(link, "hold"))
            reading = asyncio.ensure_future(reader())
            await service.arrived.wait()
        error = await reading
        assert type(error) is ConnectionLost
        assert "closing" in str(error)
        assert not (await held).status.code
        assert service.endings == ["CancelledError"]
        assert isinstance(await error_of(send(link, "T")), TransportError)
        await link.close()

    run(test)


def test_port_between_two_servers_is_taken_and_says_so() -> None:
    async def test() -> None:
        network = GrpcNetwork()
        listener = network.listener(ANY_PORT)
        async with listener.serve(EchoService().handlers()) as server:
            link = await network.connect([server.address], timeout_s=30)
        with pytest.raises(CannotListen, match="in use"):
            async with network.serve([], server.address):
                pass
        error = await error_of(send(link, "T"))
        assert type(error) is Unreachable
        assert str(error) == f"{server.address}: the server does not serve at present"
        assert not error.may_have_happened
        error = await error_of(network.connect([server.address]))
        assert str(error) == f"{server.address}: the server does not serve at present"
        await listener.close()
        assert "refused" in str(await error_of(network.connect([server.address])))
        await link.close()

    run(test)


def test_call_outlasting_the_grace_period_is_cut_off() -> None:
    async def test() -> None:
        network, service = GrpcNetwork(grace_s=0.1), EchoService()
        async with network.serve(service.handlers(), ANY_PORT) as server:
            link = await network.connect([server.address], timeout_s=30)
            held = asyncio.ensure_future(error_of(send(link, "hold")))
            await service.arrived.wait()
        assert (await held).may_have_happened
        await link.close()

    run(test)


def test_taken_or_foreign_address_is_named_and_grpc_stays_silent(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def test() -> None:
        network = GrpcNetwork()
        async with network.serve([], ANY_PORT) as server:
            for address, why in (
                (server.address, "in use"),
                (Address("192.0.2.1", 0), "assign"),
            ):
                with pytest.raises(CannotListen, match=f"{address}: .*{why}"):
                    async with network.serve([], address):
                        pass

    run(test)
    assert capfd.readouterr().err == ""


def test_port_with_lingering_connections_can_be_reused() -> None:
    async def test() -> None:
        async with echoing() as (_, server, link):
            await send(link, "T")
            address = server.address
            with contextlib.closing(socket.create_connection((address.host, address.port))):
                pass
        async with GrpcNetwork().serve([], address) as server:
            assert server.address == address

    run(test)


def test_two_handlers_for_one_rpc_are_a_programming_error() -> None:
    async def test() -> None:
        handlers = [*EchoService().handlers(), *EchoService().handlers()]
        with pytest.raises(ValueError, match="two handlers for /ternmq"):
            async with GrpcNetwork().serve(handlers, ANY_PORT):
                pass

    run(test)


async def watch(channel: grpc.aio.Channel, service: str) -> AsyncGenerator[int]:
    start: Any = channel.unary_stream(
        "/grpc.health.v1.Health/Watch",
        request_serializer=HealthCheckRequest.SerializeToString,
        response_deserializer=HealthCheckResponse.FromString,
    )
    async for reply in start(HealthCheckRequest(service=service)):
        yield reply.status


def test_health_service_follows_the_servers_state() -> None:
    async def test() -> None:
        stop = asyncio.Event()
        ready: asyncio.Future[Server] = asyncio.get_running_loop().create_future()

        async def serve() -> None:
            async with GrpcNetwork().serve(
                EchoService().handlers(), ANY_PORT, identity=ME
            ) as server:
                ready.set_result(server)
                await stop.wait()

        async with asyncio.TaskGroup() as group:
            group.create_task(serve())
            async with grpc.aio.insecure_channel(str((await ready).address)) as channel:
                check: Any = channel.unary_unary(
                    "/grpc.health.v1.Health/Check",
                    HealthCheckRequest.SerializeToString,
                    HealthCheckResponse.FromString,
                )
                for service in ("", "ternmq.v1.Messages", "grpc.health.v1.Health"):
                    assert (
                        await check(HealthCheckRequest(service=service))
                    ).status == HealthCheckResponse.SERVING
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await check(HealthCheckRequest(service="ternmq.v1.Nothing"))
                assert caught.value.code() is grpc.StatusCode.NOT_FOUND
                assert ("ternmq-epoch", "3") in tuple(caught.value.initial_metadata())
                statuses = watch(channel, "ternmq.v1.Messages")
                assert await anext(statuses) == HealthCheckResponse.SERVING
                stop.set()
                assert await anext(statuses) == HealthCheckResponse.NOT_SERVING
                await statuses.aclose()

    run(test)


def test_metadata_is_accepted_up_to_a_limit() -> None:
    async def test() -> None:
        async with (
            echoing() as (_, server, _),
            grpc.aio.insecure_channel(
                str(server.address), options=[("grpc.max_metadata_size", 1 << 20)]
            ) as channel,
        ):
            check: Any = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                HealthCheckRequest.SerializeToString,
                HealthCheckResponse.FromString,
            )

            async def ask() -> None:
                await check(HealthCheckRequest(), metadata=[("big", "x" * (15 << 10))])
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await check(HealthCheckRequest(), metadata=[("big", "x" * (20 << 10))])
                assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

            # Above 16 KiB gRPC draws lots. It takes its time to refuse, so all ask at once.
            await asyncio.gather(*(ask() for _ in range(20)))

    run(test)


@pytest.mark.parametrize("service", [V1, V1ALPHA])
def test_server_lists_its_services_by_reflection(service: str) -> None:
    async def test() -> None:
        network = GrpcNetwork(config=REFLECTING)
        async with (
            network.serve(EchoService().handlers(), ANY_PORT) as server,
            grpc.aio.insecure_channel(str(server.address)) as channel,
        ):
            start: Any = channel.stream_stream(
                f"/{service}/ServerReflectionInfo", Request.SerializeToString, Response.FromString
            )
            ask = start()
            await ask.write(Request(list_services=""))
            listed = (await ask.read()).list_services_response.service
            assert {"ternmq.v1.Messages", service} < {each.name for each in listed}
            await ask.write(Request(file_containing_symbol="ternmq.v1.Messages.Send"))
            found = (await ask.read()).file_descriptor_response.file_descriptor_proto
            assert len(found) == 2
            await ask.done_writing()
            assert await ask.read() is grpc.aio.EOF

    run(test)


def test_server_describes_itself_only_where_it_is_asked_to() -> None:
    async def test() -> None:
        async with (
            echoing() as (_, server, _),
            grpc.aio.insecure_channel(str(server.address)) as channel,
        ):
            for service in (V1, V1ALPHA):
                ask = cast("Any", channel.stream_stream(f"/{service}/ServerReflectionInfo"))()
                assert await ask.code() is grpc.StatusCode.UNIMPLEMENTED

    run(test)


@pytest.mark.parametrize("service", [V1, V1ALPHA])
def test_open_reflection_stream_does_not_delay_closing(service: str) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with GrpcNetwork(grace_s=100, config=REFLECTING).serve([], ANY_PORT) as server:
            channel = grpc.aio.insecure_channel(str(server.address))
            ask = cast("Any", channel.stream_stream(f"/{service}/ServerReflectionInfo"))()
            await ask.write(Request(list_services="").SerializeToString())
            await ask.read()
            began_s = loop.time()
        assert loop.time() - began_s < 50
        assert await ask.code() is grpc.StatusCode.UNAVAILABLE
        assert await ask.details() == "the server is closing"
        await channel.close()

    run(test)


IDENTITY = {
    ("ternmq-cluster", "cluster"),
    ("ternmq-broker-name", "broker-a"),
    ("ternmq-broker-id", "0"),
    ("ternmq-epoch", "3"),
}


def test_every_reply_carries_the_servers_identity() -> None:
    async def test() -> None:
        async with (
            echoing() as (_, server, _),
            grpc.aio.insecure_channel(str(server.address)) as raw,
        ):
            start = cast("Any", raw.unary_unary(SEND.path))
            for topic in ("T", "none", "lost"):
                call = start(messages.SendRequest(topic=topic).SerializeToString())
                assert set(await call.initial_metadata()) >= IDENTITY, topic
                await call.code()
            for good in (True, False):
                calls = cast("Any", raw.stream_stream(SEND_STREAM.path))()
                await calls.write(batch(is_retry=not good).SerializeToString())
                assert set(await calls.initial_metadata()) >= IDENTITY
                calls.cancel()

    run(test)


def test_handlers_of_every_kind_mix_and_identity_is_optional() -> None:
    async def view(request: messages.ViewMessageRequest, call: Call) -> messages.ViewMessageReply:
        return messages.ViewMessageReply(record=request.offset_message_id.encode())

    async def test() -> None:
        service = EchoService()
        handlers = [unary(VIEW_MESSAGE, view), stream(SEND_STREAM, service.send_stream)]
        async with GrpcNetwork().serve(handlers, ANY_PORT) as server:
            link = await GrpcNetwork().connect([server.address])
            asked = messages.ViewMessageRequest(offset_message_id="A")
            assert (await link.call(VIEW_MESSAGE, asked, timeout_s=30)).record == b"A"
            (await open_stream(link)).cancel()
            await link.close()

    run(test)
