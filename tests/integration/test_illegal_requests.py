"""Bytes that are no request, over real gRPC, to the services of `ternmq dev`."""

import asyncio
from pathlib import Path
from typing import Any, Final, cast

import grpc.aio
import pytest

from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import service_methods
from ternmq_remoting.health import SERVICE
from ternmq_remoting.rpc import StreamRpc
from tests.support.brokers import membership
from tests.support.processes import SOON_S, running_dev

GARBAGE: Final = b"\xff" * 9


def hello(client_id: str, number: int = groups.CLUSTERING) -> bytes:
    member = membership("G", "T")
    member.consume_from = cast("Any", number)
    told = groups.Hello(client_id=client_id, incarnation="1", consumer_groups=[member])
    return groups.SessionRequest(hello=told).SerializeToString()


async def ending(call: Any) -> None:
    """Wait for the end of a call, or of a stream whatever it says before."""
    async with asyncio.timeout(SOON_S):
        if isinstance(call, grpc.aio.UnaryUnaryCall):
            await call
        else:
            while await call.read() is not grpc.aio.EOF:
                pass


async def refused(call: Any) -> None:
    """Expect that a call or stream ends as illegal requests do."""
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await ending(call)
    told = dict(ended.value.trailing_metadata() or ())
    assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT, ended.value
    assert told["ternmq-code"] == str(int(ResponseCode.INVALID_PARAMETER)), ended.value


def test_illegal_requests_end_their_own_call_alone_without_a_traceback(tmp_path: Path) -> None:
    async def test(broker: str, nameserver: str) -> None:
        async with (
            grpc.aio.insecure_channel(broker) as to_broker,
            grpc.aio.insecure_channel(nameserver) as to_nameserver,
        ):
            open_session = cast("Any", to_broker.stream_stream(service_methods.SESSION.path))
            neighbour = open_session()
            await neighbour.write(hello("neighbour@1"))
            assert await neighbour.read() is not grpc.aio.EOF
            for opening, illegal in (
                (b"", GARBAGE),
                (hello("a@1"), GARBAGE),
                (b"", hello("b@1", 77)),
                (hello("c@1"), hello("c@1", 77)),
            ):
                stream = open_session()
                if opening:
                    await stream.write(opening)
                    assert await stream.read() is not grpc.aio.EOF
                await stream.write(illegal)
                await refused(stream)
            for rpc in service_methods.ALL:
                channel = to_nameserver if rpc.service.endswith(".NameServer") else to_broker
                if isinstance(rpc, StreamRpc):
                    calls = cast("Any", channel.stream_stream(rpc.path))()
                    await calls.write(GARBAGE)
                    await refused(calls)
                else:
                    await refused(cast("Any", channel.unary_unary(rpc.path))(GARBAGE))
            await refused(cast("Any", to_broker.unary_unary(f"/{SERVICE}/Check"))(GARBAGE))
            await refused(cast("Any", to_broker.unary_stream(f"/{SERVICE}/Watch"))(GARBAGE))
            await neighbour.write(groups.SessionRequest().SerializeToString())
            await refused(neighbour)

    with running_dev(tmp_path) as dev:
        asyncio.run(test(dev.broker, dev.nameserver))
        assert "Traceback" not in dev.log.read_text()
