"""Bytes that are no request, over real gRPC, to the services of `ternmq dev`."""

import asyncio
from pathlib import Path
from typing import Any, Final, cast

import grpc.aio
import pytest

from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_remoting import contracts
from ternmq_remoting.rpc import StreamRpc
from tests.support.brokers import membership
from tests.support.processes import running_dev

GARBAGE: Final = b"\xff" * 9


def hello(client_id: str, number: int = groups.CLUSTERING) -> bytes:
    member = membership("G", "T")
    member.consume_from = cast("Any", number)
    told = groups.Hello(client_id=client_id, incarnation="1", consumer_groups=[member])
    return groups.SessionRequest(hello=told).SerializeToString()


async def ending(waiting: Any) -> tuple[grpc.StatusCode, dict[str, Any]]:
    """Return the status and trailing metadata with which a call or stream ends."""
    try:
        while await waiting() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code(), dict(error.trailing_metadata() or ())
    pytest.fail("the call ends well")


def test_illegal_requests_end_their_own_call_alone_without_a_traceback(tmp_path: Path) -> None:
    async def test(broker: str, nameserver: str) -> None:
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        async with (
            grpc.aio.insecure_channel(broker) as to_broker,
            grpc.aio.insecure_channel(nameserver) as to_nameserver,
        ):
            open_session = cast("Any", to_broker.stream_stream(contracts.SESSION.path))
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
                code, trailing = await ending(stream.read)
                assert (code, trailing["ternmq-code"]) == (invalid, "29")
            for rpc in contracts.ALL:
                channel = to_nameserver if rpc.service == "NameServer" else to_broker
                if isinstance(rpc, StreamRpc):
                    calls = cast("Any", channel.stream_stream(rpc.path))()
                    await calls.write(GARBAGE)
                    assert (await ending(calls.read))[0] is invalid, rpc.path
                else:
                    call = cast("Any", channel.unary_unary(rpc.path))
                    assert (await ending(lambda call=call: call(GARBAGE)))[0] is invalid, rpc.path
            for name, kind in (("Check", "unary_unary"), ("Watch", "unary_stream")):
                call = getattr(to_broker, kind)(f"/grpc.health.v1.Health/{name}")(GARBAGE)
                assert (await ending(getattr(call, "read", lambda call=call: call)))[
                    0
                ] is invalid, name
            await neighbour.write(groups.SessionRequest().SerializeToString())
            code, _ = await ending(neighbour.read)
            assert code is invalid

    with running_dev(tmp_path) as dev:
        asyncio.run(test(dev.broker, dev.nameserver))
        assert "Traceback" not in dev.log.read_text()
