import asyncio
import logging
from typing import Any

import grpc
import pytest

from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.port_calls import PortCalls
from ternmq_remoting.rpc import Call, ServerStream, stream, unary
from ternmq_remoting.server import CRASH_LOG_INTERVAL_S, NOT_SERVING, CrashLog, ServerCalls
from ternmq_remoting.service_methods import SEND, SEND_STREAM
from ternmq_remoting.status import NOT_BEGUN_KEY


def test_always_crashing_handler_is_logged_once_in_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = CrashLog()
    for now_s in (0.0, 0.1, 5.0, CRASH_LOG_INTERVAL_S, CRASH_LOG_INTERVAL_S + 1):
        log.report("/a/B", KeyError("x"), now_s=now_s)
    log.report("/a/C", KeyError("y"), now_s=1.0)
    assert [record.getMessage() for record in caplog.records] == [
        "handler crashed rpc=/a/B suppressed=0",
        "handler crashed rpc=/a/B suppressed=2",
        "handler crashed rpc=/a/C suppressed=0",
    ]
    assert all(record.exc_info and record.levelno == logging.ERROR for record in caplog.records)


class Aborted(Exception):
    """What gRPC raises in a handler that ends its call."""


class Context:
    """As much of gRPC's context as a stream that is refused sees."""

    async def abort(self, code: grpc.StatusCode, details: str, trailing: object) -> None:
        raise Aborted(code, details, trailing)


REFUSED = (grpc.StatusCode.UNAVAILABLE, NOT_SERVING.details, ((NOT_BEGUN_KEY, "1"),))


class UnaryContext(Context):
    """And what a unary call that is served sees."""

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def invocation_metadata(self) -> tuple[()]:
        return ()

    async def send_initial_metadata(self, _metadata: object) -> None:
        return None


def unary_method(serving: ServerCalls) -> Any:
    return serving.method(SEND.path, ()).unary_unary


def test_call_let_in_before_the_drain_is_refused_before_its_handler_runs() -> None:
    begun: list[Call] = []

    async def serve(_request: messages.SendRequest, call: Call) -> messages.SendReply:
        begun.append(call)
        return messages.SendReply()

    async def main() -> None:
        serving = ServerCalls([unary(SEND, serve)], None, port=PortCalls(16))
        call = asyncio.create_task(unary_method(serving)(b"", UnaryContext()))
        serving.is_draining = True
        await serving.drain(1)
        with pytest.raises(Aborted) as caught:
            await call
        assert caught.value.args == REFUSED
        assert not serving.calls

    asyncio.run(main())
    assert not begun


def test_drain_returns_when_calls_that_it_cancelled_have_ended() -> None:
    seen: list[str] = []
    has_begun = asyncio.Event()

    async def serve(_request: messages.SendRequest, _call: Call) -> messages.SendReply:
        has_begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            seen.append("ended")
        raise AssertionError

    async def main() -> None:
        serving = ServerCalls([unary(SEND, serve)], None, port=PortCalls(16))
        call = asyncio.create_task(unary_method(serving)(b"", UnaryContext()))
        await has_begun.wait()
        serving.is_draining = True
        await serving.drain(0)
        assert seen == ["ended"]
        with pytest.raises(Aborted, match="the server is closing"):
            await call

    asyncio.run(main())


class Details:
    method = SEND_STREAM.path
    invocation_metadata = ()


def test_stream_opened_during_the_drain_is_refused_before_its_handler_runs() -> None:
    begun: list[Call] = []

    async def serve(_stream: ServerStream[Any, Any], call: Call) -> None:
        begun.append(call)

    async def main() -> None:
        serving = ServerCalls([stream(SEND_STREAM, serve)], None, port=PortCalls(16))
        method = serving.method(SEND_STREAM.path, ())
        serving.is_draining = True
        with pytest.raises(Aborted) as caught:
            await method.stream_stream(None, Context())
        assert caught.value.args == REFUSED
        assert not serving.streams

    asyncio.run(main())
    assert not begun
