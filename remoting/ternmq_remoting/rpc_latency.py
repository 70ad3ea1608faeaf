"""Times of the RPCs that a service serves, by their outcome.

Source: RocketMQ `RemotingMetricsConstant`.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from ternmq_model.errors import TernError
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.rpc import Call, Handler, StreamRpc
from ternmq_remoting.service_methods import END_TRANSACTIONS, FIND_TRANSACTIONS, SEND_STREAM
from ternmq_remoting.status import refusal_of
from ternmq_runtime.metrics.families import HistogramCounts, MetricFamily, MetricKind
from ternmq_runtime.metrics.port import Scrape
from ternmq_runtime.metrics.scrape import LabelValues

RPC_LATENCY: Final = MetricFamily(
    name="rocketmq_rpc_latency_milliseconds",
    kind=MetricKind.HISTOGRAM,
    help="Time in which a handler answered a request, of an RPC or of a stream with one answer"
    " to each request.",
    labels=("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
    bounds=(1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1_000.0, 2_000.0, 3_000.0),
)

SUCCESS: Final = "success"
"""Result of a request that was answered, also by a refusal, which the response code names."""

FAILED: Final = "failed"
"""Result of a request whose handler crashed, or found a peer of its own away."""

CANCELLED: Final = "cancelled"
"""Result of a request whose caller has gone, or whose server has closed."""

_IN_ORDER: Final[dict[StreamRpc[Any, Any], Callable[[Any], int]]] = {
    SEND_STREAM: lambda reply: reply.stored.status.code,
    END_TRANSACTIONS: lambda reply: 0,
    FIND_TRANSACTIONS: lambda reply: reply.status.code,
}
"""Streams with one reply to each request, in order, and the response code of a reply."""

_WORDS: Final = re.compile("(?<=[a-z])(?=[A-Z])")

Outcome = tuple[int, bool, str]
"""Response code, whether the request was ready to wait, and result."""


class MethodLatency:
    """Times of one RPC by outcome. Owned by `RpcLatencies`."""

    __slots__ = ("by_outcome",)

    def __init__(self) -> None:
        self.by_outcome: Final[dict[Outcome, HistogramCounts]] = {}

    def observe(self, outcome: Outcome, took_s: float) -> None:
        """Count a request."""
        counts = self.by_outcome.get(outcome)
        if counts is None:
            counts = self.by_outcome[outcome] = HistogramCounts(RPC_LATENCY.bounds)
        counts.observe(took_s * 1_000)

    def observe_error(
        self, error: BaseException, took_s: float, *, is_long_polling: bool = False
    ) -> None:
        """Count a request that ended with an error of its handler."""
        code, result = int(ResponseCode.SYSTEM_ERROR), FAILED
        if isinstance(error, asyncio.CancelledError):
            result = CANCELLED
        elif isinstance(error, TernError) and (refused := refusal_of(error)) is not None:
            code, result = refused.code, SUCCESS
        self.observe((code, is_long_polling, result), took_s)


class RpcLatencies:
    """Times of the RPCs of one service since it was made. Owned by its loop.

    A call counts from its parsed request to the end of its handler, with the check of permissions.
    Long polling is a request that was ready to wait. Of the streams those count that answer each
    request once and in order, request by request; others do not count.

    Args:
        now_s: Clock, s.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._methods: dict[str, MethodLatency] = {}

    def measured(self, handlers: Sequence[Handler]) -> Sequence[Handler]:
        """Return handlers whose times count, besides those of earlier terms of the service."""
        return [self._measured(handler) for handler in handlers]

    def collect(self, scrape: Scrape, node: LabelValues) -> None:
        """Add the times of all RPCs that were called."""
        for request_code, method in self._methods.items():
            for (code, is_long_polling, result), counts in method.by_outcome.items():
                names = (_response_code(code), str(is_long_polling).lower(), result)
                labels = (*node, "grpc", request_code, *names)
                scrape.add_histogram(RPC_LATENCY, labels, counts.values())

    def _measured(self, handler: Handler) -> Handler:
        rpc = handler.rpc
        if isinstance(rpc, StreamRpc) and rpc not in _IN_ORDER:
            return handler
        method = self._methods.setdefault(_WORDS.sub("_", rpc.name).lower(), MethodLatency())
        if isinstance(rpc, StreamRpc):
            return self._of_stream(handler, method, _IN_ORDER[rpc])
        return self._of_unary(handler, method)

    def _of_unary(self, handler: Handler, method: MethodLatency) -> Handler:
        function, now_s, observe = handler.function, self._now_s, method.observe
        may_wait = "wait_ms" in handler.rpc.request.DESCRIPTOR.fields_by_name

        async def serve(request: Any, call: Call) -> Any:
            began_s = now_s()
            try:
                reply = await function(request, call)
            except BaseException as error:
                waits = may_wait and request.wait_ms > 0
                method.observe_error(error, now_s() - began_s, is_long_polling=waits)
                raise
            waits = may_wait and request.wait_ms > 0
            observe((reply.status.code, waits, SUCCESS), now_s() - began_s)
            return reply

        return Handler(handler.rpc, serve)

    def _of_stream(
        self, handler: Handler, method: MethodLatency, code_of: Callable[[Any], int]
    ) -> Handler:
        function, now_s = handler.function, self._now_s

        async def serve(stream: Any, call: Call) -> None:
            measured = MeasuredStream(stream, method, code_of, now_s)
            try:
                await function(measured, call)
            except BaseException as error:
                measured.end(error)
                raise
            measured.end(asyncio.CancelledError())

        return Handler(handler.rpc, serve)


class MeasuredStream:
    """Stream whose requests are answered in order, each once.

    Args:
        stream: Stream of the transport.
        method: Times of its RPC.
        code_of: Returns the response code of a reply.
        now_s: Clock, s.
    """

    __slots__ = ("_began_s", "_code_of", "_method", "_now_s", "_read", "_write")

    def __init__(
        self,
        stream: Any,
        method: MethodLatency,
        code_of: Callable[[Any], int],
        now_s: Callable[[], float],
    ) -> None:
        self._read, self._write = stream.read, stream.write
        self._method = method
        self._code_of = code_of
        self._now_s = now_s
        self._began_s: deque[float] = deque()

    async def read(self) -> Any:
        """Read the next request, which counts from now on."""
        request = await self._read()
        if request is not None:
            self._began_s.append(self._now_s())
        return request

    async def write(self, message: Any, /) -> None:
        """Send the reply to the oldest request that has none."""
        await self._write(message)
        if self._began_s:
            took_s = self._now_s() - self._began_s.popleft()
            self._method.observe((self._code_of(message), False, SUCCESS), took_s)

    def end(self, error: BaseException) -> None:
        """Count the requests without a reply by the error that ended the stream."""
        now_s = self._now_s()
        for began_s in self._began_s:
            self._method.observe_error(error, now_s - began_s)


def _response_code(code: int) -> str:
    try:
        return ResponseCode(code).name.lower()
    except ValueError:
        return str(code)
