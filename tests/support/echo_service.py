"""A service with the Messages contract and next to nothing behind it: for tests of the transport.

The functions beside it are steps that such tests share.
"""

import asyncio
import gc
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import ConnectionLost, TernError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_remoting.grpc_network import GrpcNetwork
from ternmq_remoting.rpc import (
    Call,
    ClientStream,
    Connection,
    Handler,
    Identity,
    Server,
    ServerStream,
    stream,
    unary,
)
from ternmq_remoting.service_methods import PULL, SEND, SEND_STREAM
from tests.support.records import record

ANY_PORT = Address("127.0.0.1", 0)
ME = Identity("cluster", "broker-a", 0, 3)

Request = messages.SendStreamRequest
Reply = messages.SendStreamReply


class EchoService:
    """Keeps sent messages in one list, which is its one queue.

    Attributes:
        calls: What handlers knew of their callers, in order.
        endings: How each stream handler saw its stream end, in order.
        ended: Set when the first stream has ended.
        arrived: Set when a request is being held.
        release: Lets held requests go on.
    """

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.calls: list[Call] = []
        self.endings: list[str] = []
        self.ended = asyncio.Event()
        self.arrived = asyncio.Event()
        self.release = asyncio.Event()

    def handlers(self) -> Sequence[Handler]:
        """Return what this service serves."""
        return [
            unary(SEND, self.send),
            unary(PULL, self.pull),
            stream(SEND_STREAM, self.send_stream),
        ]

    async def send(self, request: messages.SendRequest, call: Call) -> messages.SendReply:
        """Keep a message; topics "none", "crash" and "hold" do what they say."""
        self.calls.append(call)
        match request.topic:
            case "none":
                raise refusal(ResponseCode.TOPIC_NOT_EXIST, "no topic 'none'")
            case "crash":
                raise KeyError(request.topic)
            case "lost":
                raise ConnectionLost("the broker's own peer is away")
            case "hold":
                self.arrived.set()
                await self.release.wait()
            case _:
                pass
        properties = dict(request.properties)
        self.records.append(record(request.topic, body=request.body, properties=properties))
        offset = len(self.records) - 1
        return messages.SendReply(message_id=f"{offset:032X}", queue_offset=offset)

    async def pull(self, request: messages.PullRequest, call: Call) -> messages.PullReply:
        """Give one message, or say that there is none."""
        found = self.records[request.offset : request.offset + 1]
        reply = messages.PullReply(
            next_offset=request.offset + len(found),
            max_offset=len(self.records),
            records=b"".join(found),
            record_sizes=b"".join(len(one).to_bytes(4, "little") for one in found),
        )
        if not found:
            reply.status.code = ResponseCode.PULL_NOT_FOUND
        return reply

    async def send_stream(self, batches: ServerStream[Request, Reply], call: Call) -> None:
        """Answer each batch with its length; one marked as a retry is refused, "!" crashes."""
        self.calls.append(call)
        ending = "returned"
        try:
            while (request := await batches.read()) is not None:
                if request.batch.is_retry:
                    raise refusal(ResponseCode.SYSTEM_BUSY, "busy")
                if request.batch.records == b"!":
                    raise KeyError("!")
                stored = messages.SendBatchReply(stored_at_ms=len(request.batch.records))
                await batches.write(Reply(stored=stored))
        except BaseException as error:
            ending = type(error).__name__
            raise
        finally:
            self.endings.append(ending)
            self.ended.set()


@asynccontextmanager
async def echoing() -> AsyncGenerator[tuple[EchoService, Server, Connection]]:
    """Serve an `EchoService` as `ME` over gRPC, and connect to it."""
    network, service = GrpcNetwork(), EchoService()
    async with network.serve(service.handlers(), ANY_PORT, identity=ME) as server:
        link = await network.connect([server.address], timeout_s=30)
        try:
            yield service, server, link
        finally:
            await link.close()
            service.release.set()


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run an async test, for at most 20 s."""

    async def main() -> None:
        async with asyncio.timeout(120):
            await test()

    asyncio.run(main())
    gc.collect()  # a leaked call would warn here, in the test that leaked it


async def send(link: Connection, topic: str, *, timeout_s: float = 5) -> messages.SendReply:
    """Send an empty message to `topic`."""
    return await link.call(SEND, messages.SendRequest(topic=topic), timeout_s=timeout_s)


def batch(records: bytes = b"", *, is_retry: bool = False) -> Request:
    """Return one request of a SendStream."""
    return Request(batch=messages.SendBatch(records=records, is_retry=is_retry))


async def open_stream(link: Connection) -> ClientStream[Reply, Request]:
    """Return a stream that has been used once."""
    opened = link.open(SEND_STREAM)
    await opened.write(batch(b"abc"))
    reply = await opened.read()
    assert reply is not None
    assert reply.stored.stored_at_ms == 3
    return opened


async def error_of(waiting: Awaitable[object]) -> TernError:
    """Return what `waiting` raises."""
    with pytest.raises(TernError) as caught:
        await waiting
    return caught.value
