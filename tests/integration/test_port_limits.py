"""Limits of a port against clients that exceed them."""

import asyncio
import contextlib
import json
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import grpc.aio
import pytest

from ternmq_model.address import Address, parse_address
from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.connection_limits import ANONYMOUS_CALLS_MAX, PortLimit
from ternmq_remoting.grpc_network import GrpcNetwork
from ternmq_remoting.listener import GrpcListener
from ternmq_remoting.network_config import NetworkConfig
from ternmq_remoting.service_methods import SEND, SEND_STREAM
from ternmq_remoting.tls import Credentials, TlsConfig
from tests.support.certificates import authority
from tests.support.echo_service import (
    EchoService,
    batch,
    error_of,
    open_stream,
    run,
    send,
)
from tests.support.fake_gate import FakeGate
from tests.support.processes import (
    SMALL,
    eventually,
    run_ternmq,
    running_broker,
    running_nameserver,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""First bytes of a client: empty settings, and no call."""

LOOPBACK = {"0.0.0.0": "127.0.0.1"}

HALF_HELLO = bytes.fromhex("16030100c8010000c40303")

PATIENT = NetworkConfig(handshake_timeout_s=120, first_message_timeout_s=120)


def opening_of_health(stream_id: int) -> bytes:
    """Return the frames that open a health check and send half of its request of 16 KiB."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/grpc.health.v1.Health/Check",
        ":authority": "a",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    headers = b"".join(
        b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in field)
        for field in fields.items()
    )
    half = b"\0" + (16 << 10).to_bytes(4) + bytes(8 << 10)
    return b"".join(
        len(payload).to_bytes(3) + kind + stream_id.to_bytes(4) + payload
        for kind, payload in ((b"\1\4", headers), (b"\0\0", half))
    )


def tls_of(folder: Path) -> tuple[TlsConfig, Credentials]:
    """Return the TLS of a service, and what its clients need."""
    trusted = authority(folder)
    own = trusted.issue("broker-a")
    return TlsConfig(cert=own.cert, key=own.key), Credentials(ca=trusted.ca)


@asynccontextmanager
async def port(
    config: NetworkConfig,
    *,
    gate: FakeGate | None = None,
    tls: TlsConfig | None = None,
    host: str = "127.0.0.1",
) -> AsyncGenerator[tuple[EchoService, GrpcListener, Address]]:
    service = EchoService()
    listener = GrpcNetwork(config=config, tls=tls).listener(Address(host, 0))
    listener.stays_open = False
    async with listener.serve(service.handlers(), gate=gate) as server:
        try:
            yield service, listener, replace(server.address, host=LOOPBACK.get(host, host))
        finally:
            service.release.set()


@contextmanager
def connected(address: Address, first: bytes = b"") -> Generator[socket.socket]:
    """Open a connection, send its first bytes, and keep it open."""
    with socket.create_connection((address.host, address.port)) as opened:
        opened.sendall(first)
        opened.setblocking(False)
        yield opened


async def ends(opened: socket.socket) -> None:
    """Wait until the service has closed the connection."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionResetError):
        while await loop.sock_recv(opened, 1 << 16):
            pass


async def counted(listener: GrpcListener, limit: PortLimit, count: int) -> None:
    assert await eventually(lambda: listener.counts.get(limit, 0) >= count)
    assert listener.counts == {limit: count}


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("first", [b"", HALF_HELLO], ids=["silent", "half"])
def test_connection_that_does_not_finish_its_handshakes_is_closed(
    tmp_path: Path, first: bytes, *, has_tls: bool
) -> None:
    async def test() -> None:
        tls, _ = tls_of(tmp_path) if has_tls else (None, None)
        limits = replace(PATIENT, handshake_timeout_s=2)
        async with port(limits, tls=tls) as (_, listener, address):
            with connected(address, first if has_tls else PREFACE[: len(first)]) as opened:
                await ends(opened)
                await counted(listener, PortLimit.HANDSHAKE, 1)

    run(test)


@pytest.mark.parametrize(("host", "has_tls"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_connection_without_a_call_is_closed_and_one_with_a_call_is_not(
    tmp_path: Path, host: str, *, has_tls: bool
) -> None:
    async def test() -> None:
        limits = replace(PATIENT, first_message_timeout_s=1)
        first = HALF_HELLO if has_tls else PREFACE
        tls, credentials = tls_of(tmp_path) if has_tls else (None, None)
        async with port(limits, tls=tls, host=host) as (_, listener, address):
            network = GrpcNetwork(credentials=credentials)
            link = await network.connect([address], timeout_s=30)
            with connected(address, first) as opened:
                await ends(opened)
            await counted(listener, PortLimit.FIRST_MESSAGE, 1)
            await send(link, "T")
            with connected(address, first) as later:
                await ends(later)
            await send(link, "T")
            await counted(listener, PortLimit.FIRST_MESSAGE, 2)
            await link.close()

    run(test)


def test_newest_connections_of_an_address_with_too_many_are_closed() -> None:
    async def test() -> None:
        limits = replace(PATIENT, connections_by_address_max=3)
        async with port(limits) as (_, listener, address):
            link = await GrpcNetwork().connect([address], timeout_s=30)
            await send(link, "T")
            with contextlib.ExitStack() as stack:
                idle = [stack.enter_context(connected(address, PREFACE)) for _ in range(4)]
                waiting = [asyncio.create_task(ends(each)) for each in idle]
                await counted(listener, PortLimit.ADDRESS, 2)
                assert await eventually(lambda: sum(each.done() for each in waiting) == 2)
                for each in waiting:
                    each.cancel()
            await send(link, "T")
            await link.close()

    run(test)


@pytest.mark.parametrize("is_watched", [True, False])
def test_call_above_the_limit_of_a_connection_is_refused_and_not_begun(
    monkeypatch: pytest.MonkeyPatch, *, is_watched: bool
) -> None:
    if not is_watched:
        monkeypatch.delattr(socket, "TCP_INFO")

    async def test() -> None:
        async with port(replace(PATIENT, streams_max=16)) as (service, listener, address):
            link = await GrpcNetwork().connect([address], timeout_s=30)
            other = await GrpcNetwork().connect([address], timeout_s=30)
            opened = [await open_stream(link) for _ in range(8)]
            held = [asyncio.create_task(send(link, "hold", timeout_s=60)) for _ in range(8)]
            assert await eventually(lambda: len(service.calls) == 16)
            for error in (
                await error_of(send(link, "T")),
                await error_of(link.open(SEND_STREAM).read()),
            ):
                assert isinstance(error, RefusedError)
                assert error.code == ResponseCode.SYSTEM_BUSY
                assert not error.may_have_happened
            await counted(listener, PortLimit.STREAMS, 2)
            await send(other, "T")  # the limit is that of a connection
            service.release.set()
            await asyncio.gather(*held)
            await send(link, "T")
            for each in opened:
                each.cancel()
            await link.close()
            await other.close()

    run(test)


def test_unknown_caller_is_refused_before_its_requests_are_read() -> None:
    async def test() -> None:
        gate = FakeGate()
        async with port(PATIENT, gate=gate) as (service, listener, address):
            large = messages.SendRequest(topic="T", body=bytes(4 << 20)).SerializeToString()
            codes = Counter[grpc.StatusCode]()
            async with grpc.aio.insecure_channel(str(address)) as raw:
                while not listener.counts:
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await cast("Any", raw.unary_unary(SEND.path))(large)
                    codes[caught.value.code()] += 1
            # On a connection of its own: the first may end while a call is on it.
            own = (("grpc.use_local_subchannel_pool", 1),)
            async with grpc.aio.insecure_channel(str(address), options=own) as raw:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await cast("Any", raw.stream_stream(SEND_STREAM.path))().read()
                assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
                assert "say the word" in str(caught.value.details())
            assert codes[grpc.StatusCode.PERMISSION_DENIED]
            assert codes.keys() <= {
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.UNAVAILABLE,
            }
            assert listener.counts.keys() == {PortLimit.ANONYMOUS_BYTES}
            assert not service.calls

    run(test)


def test_known_caller_sends_what_it_likes() -> None:
    async def test() -> None:
        gate, limits = FakeGate(), replace(PATIENT, first_message_timeout_s=1)
        async with port(limits, gate=gate) as (service, listener, address):
            large = messages.SendRequest(topic="T", body=bytes(4 << 20)).SerializeToString()
            async with grpc.aio.insecure_channel(str(address)) as raw:
                begin = cast("Any", raw.unary_unary(SEND.path))
                refused = begin(b"")
                assert await refused.code() is grpc.StatusCode.PERMISSION_DENIED
                for at in range(20):  # admitted, then known
                    reply = await begin(large, metadata=(("word", "friend"),))
                    assert messages.SendReply.FromString(reply).queue_offset == at
                streamed = cast("Any", raw.stream_stream(SEND_STREAM.path))(
                    metadata=(("word", "friend"),)
                )
                await streamed.write(batch(b"abc").SerializeToString())
                assert await streamed.read() is not grpc.aio.EOF
                streamed.cancel()
                with connected(address, PREFACE) as idle:
                    await ends(idle)  # so a look has found the other connection, too
                assert await begin(large, metadata=(("word", "friend"),))
            assert gate.asked == ["", "friend"]
            assert len(service.calls) == 22
            assert listener.counts == {PortLimit.FIRST_MESSAGE: 1}

    run(test)


def test_stream_of_an_unknown_caller_is_served_after_its_admission() -> None:
    async def test() -> None:
        gate = FakeGate()
        async with (
            port(PATIENT, gate=gate) as (_, _, address),
            grpc.aio.insecure_channel(str(address)) as raw,
        ):
            streamed = cast("Any", raw.stream_stream(SEND_STREAM.path))(
                metadata=(("word", "friend"),)
            )
            await streamed.write(batch(b"abc").SerializeToString())
            assert await streamed.read() is not grpc.aio.EOF
            streamed.cancel()
            assert gate.asked == ["friend"]

    run(test)


@pytest.mark.parametrize("path", [SEND.path, "/grpc.health.v1.Health/Check"])
def test_unknown_caller_has_few_calls_at_a_time(path: str) -> None:
    async def test() -> None:
        gate = FakeGate()
        gate.goes_on.clear()
        async with (
            port(PATIENT, gate=gate) as (_, listener, address),
            grpc.aio.insecure_channel(str(address)) as raw,
        ):
            # Calls whose requests never come.
            calls = [cast("Any", raw.stream_stream(path))() for _ in range(ANONYMOUS_CALLS_MAX + 1)]
            ended = [asyncio.create_task(each.code()) for each in calls]
            (first, *_), _ = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
            assert first.result() is grpc.StatusCode.RESOURCE_EXHAUSTED
            await counted(listener, PortLimit.STREAMS, 1)
            gate.goes_on.set()
            for each in calls:
                each.cancel()
            await asyncio.wait(ended)

    run(test)


def test_unknown_caller_cannot_fill_buffers_by_requests_of_health() -> None:
    async def test() -> None:
        frames = b"".join(opening_of_health(stream_id) for stream_id in range(1, 19, 2))
        async with port(PATIENT, gate=FakeGate()) as (_, listener, address):
            with connected(address, PREFACE + frames) as opened:
                await ends(opened)
            await counted(listener, PortLimit.ANONYMOUS_BYTES, 1)

    run(test)


def test_health_needs_no_word_and_an_open_gate_none_either() -> None:
    async def test() -> None:
        gate = FakeGate()
        async with port(PATIENT, gate=gate) as (_, _, address):
            link = await GrpcNetwork().connect([address], timeout_s=30)
            error = await error_of(send(link, "T"))
            assert isinstance(error, RefusedError)
            assert error.code == ResponseCode.NO_PERMISSION
            gate.is_open = True
            await send(link, "T")
            await link.close()

    run(test)


def test_status_of_a_broker_has_the_counts_of_its_port(tmp_path: Path) -> None:
    limits = ("network.handshake_timeout_s=120", "network.first_message_timeout_s=1")
    with (
        running_nameserver(tmp_path / "names") as names,
        running_broker(
            tmp_path / "broker-a", names.nameserver, settings=[*SMALL, *limits]
        ) as broker,
    ):
        with connected(parse_address(broker.broker, setting="broker"), PREFACE) as opened:
            run(lambda: ends(opened))
        words = ("broker", "status", "broker-a", "--output", "json")
        told = json.loads(run_ternmq(*words, "--nameserver", names.nameserver))
        assert told["port"] == {
            "handshakes": 0,
            "first_messages": 1,
            "addresses": 0,
            "anonymous_bytes": 0,
            "streams": 0,
        }
