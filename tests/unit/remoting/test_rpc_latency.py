"""Times of RPCs: what counts, under which outcome."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from ternmq_model.address import Address
from ternmq_model.errors import ConnectionLost, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import transactions_pb2 as transactions
from ternmq_remoting.rpc import Call, Handler
from ternmq_remoting.rpc_latency import RpcLatencies
from ternmq_remoting.service_methods import (
    END_TRANSACTIONS,
    FIND_TRANSACTIONS,
    PULL,
    PULL_STREAM,
    SEND,
    SEND_STREAM,
)
from tests.support.metrics_text import Sample, samples_of

CALL = Call(Address("192.0.2.1", 1))
NODE = ("c", "broker", "b")


class Count(NamedTuple):
    """Requests of one outcome."""

    request_code: str
    response_code: str
    is_long_polling: str
    result: str
    requests: int
    ms: float


def outcome_of(sample: Sample) -> tuple[str, str, str, str]:
    first, second, third, fourth = (sample.labels[name] for name in Count._fields[:4])
    return first, second, third, fourth


class Service:
    """Measured handlers, on a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.latencies = RpcLatencies(lambda: self.now_s)

    def function(self, rpc: Any, serve: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        (handler,) = self.latencies.measured([Handler(rpc, serve)])
        assert handler.rpc is rpc
        return handler.function

    def counts(self) -> list[Count]:
        found = samples_of(lambda scrape: self.latencies.collect(scrape, NODE))
        assert {each.labels["protocol_type"] for each in found} <= {"grpc"}
        numbers = {
            (each.name.rpartition("_")[2], *outcome_of(each)): each.value
            for each in found
            if "le" not in each.labels
        }
        return [
            Count(
                code,
                reply,
                waits,
                result,
                int(requests),
                numbers["sum", code, reply, waits, result],
            )
            for (kind, code, reply, waits, result), requests in numbers.items()
            if kind == "count"
        ]


async def ended(call: Awaitable[Any]) -> None:
    await asyncio.gather(asyncio.ensure_future(call), return_exceptions=True)


@pytest.mark.parametrize(
    ("error", "response_code", "result"),
    [
        (None, "success", "success"),
        (refusal(ResponseCode.TOPIC_NOT_EXIST, "x"), "topic_not_exist", "success"),
        (refusal(4_000, "of a later version"), "4000", "success"),
        (ConnectionLost("a peer is away"), "system_error", "failed"),
        (KeyError("x"), "system_error", "failed"),
        (asyncio.CancelledError(), "system_error", "cancelled"),
    ],
)
def test_call_counts_by_what_became_of_it(
    error: BaseException | None, response_code: str, result: str
) -> None:
    service = Service()

    async def send(request: messages.SendRequest, call: Call) -> messages.SendReply:
        service.now_s += 0.25
        if error is not None:
            raise error
        return messages.SendReply()

    function = service.function(SEND, send)
    asyncio.run(ended(function(messages.SendRequest(), CALL)))
    assert service.counts() == [Count("send", response_code, "false", result, 1, 250.0)]


def test_call_that_is_ready_to_wait_counts_as_long_polling() -> None:
    service = Service()

    async def pull(request: messages.PullRequest, call: Call) -> messages.PullReply:
        return messages.PullReply(status={"code": ResponseCode.PULL_NOT_FOUND})

    function = service.function(PULL, pull)
    for wait_ms in (0, 1, 1):
        asyncio.run(ended(function(messages.PullRequest(wait_ms=wait_ms), CALL)))
    assert [each[:5] for each in service.counts()] == [
        ("pull", "pull_not_found", "false", "success", 1),
        ("pull", "pull_not_found", "true", "success", 2),
    ]


class Stream:
    """A stream with some requests; each reply takes 1 s to send."""

    def __init__(self, service: Service, *requests: Any) -> None:
        self._service = service
        self._requests = [*requests]
        self.replies: list[Any] = []

    async def read(self) -> Any:
        return self._requests.pop(0) if self._requests else None

    async def write(self, message: Any, /) -> None:
        self._service.now_s += 1
        self.replies.append(message)


STORED = messages.SendStreamReply(stored={})
BUSY = messages.SendStreamReply(stored={"status": {"code": ResponseCode.SYSTEM_BUSY}})


def test_batches_of_a_stream_count_one_by_one() -> None:
    service = Service()

    async def send(stream: Any, call: Call) -> None:
        for _ in range(2):
            await stream.read()
        for reply in (STORED, BUSY):
            await stream.write(reply)
        assert await stream.read() is None

    stream = Stream(service, messages.SendStreamRequest(), messages.SendStreamRequest())
    asyncio.run(ended(service.function(SEND_STREAM, send)(stream, CALL)))
    assert stream.replies == [STORED, BUSY]
    assert service.counts() == [
        Count("send_stream", "success", "false", "success", 1, 1_000.0),
        Count("send_stream", "system_busy", "false", "success", 1, 2_000.0),
    ]


@pytest.mark.parametrize(
    ("error", "response_code", "result"),
    [
        (None, "system_error", "cancelled"),
        (asyncio.CancelledError(), "system_error", "cancelled"),
        (refusal(ResponseCode.NO_PERMISSION, "x"), "no_permission", "success"),
        (KeyError("x"), "system_error", "failed"),
    ],
)
def test_requests_without_a_reply_count_by_the_end_of_their_stream(
    error: BaseException | None, response_code: str, result: str
) -> None:
    service = Service()

    async def send(stream: Any, call: Call) -> None:
        await stream.read()
        service.now_s += 2
        if error is not None:
            raise error

    stream = Stream(service, messages.SendStreamRequest())
    asyncio.run(ended(service.function(SEND_STREAM, send)(stream, CALL)))
    assert service.counts() == [Count("send_stream", response_code, "false", result, 1, 2_000.0)]


@pytest.mark.parametrize(
    ("rpc", "reply", "response_code"),
    [
        (END_TRANSACTIONS, transactions.EndTransactionsReply(), "success"),
        (
            FIND_TRANSACTIONS,
            transactions.FindTransactionsReply(status={"code": ResponseCode.SYSTEM_BUSY}),
            "system_busy",
        ),
    ],
)
def test_streams_of_transactions_count_by_request(rpc: Any, reply: Any, response_code: str) -> None:
    service = Service()

    async def serve(stream: Any, call: Call) -> None:
        while await stream.read() is not None:
            await stream.write(reply)

    asyncio.run(ended(service.function(rpc, serve)(Stream(service, 1, 2), CALL)))
    assert [(each.response_code, each.requests) for each in service.counts()] == [
        (response_code, 2)
    ]


def test_stream_without_an_answer_to_each_request_does_not_count() -> None:
    async def pull(stream: Any, call: Call) -> None:
        await stream.read()

    service = Service()
    assert service.function(PULL_STREAM, pull) is pull
    assert service.counts() == []


def test_reply_to_no_request_is_sent_and_does_not_count() -> None:
    async def send(stream: Any, call: Call) -> None:
        await stream.write(STORED)

    service = Service()
    stream = Stream(service)
    asyncio.run(ended(service.function(SEND_STREAM, send)(stream, CALL)))
    assert (stream.replies, service.counts()) == ([STORED], [])


def test_next_term_goes_on_with_the_counts_of_the_one_before() -> None:
    async def send(request: messages.SendRequest, call: Call) -> messages.SendReply:
        return messages.SendReply()

    service = Service()
    for _ in range(2):
        asyncio.run(ended(service.function(SEND, send)(messages.SendRequest(), CALL)))
    assert [each.requests for each in service.counts()] == [2]
