"""The caller's half of the in-memory network: connections and both sides of a stream."""

import asyncio
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message as ProtoMessage

from ternmq_model.address import Address
from ternmq_model.errors import (
    ClosedError,
    ConnectionLost,
    RequestTimedOut,
    TernError,
    Unreachable,
    refusal,
)
from ternmq_model.response_code import ResponseCode
from ternmq_model.version import __version__
from ternmq_remoting.converters import error_of, status_of
from ternmq_remoting.encoded_message import EncodedMessage
from ternmq_remoting.request_parser import UnparsableRequest, request_parser
from ternmq_remoting.rpc import (
    AUTHORIZATION_KEY,
    Call,
    ClientStream,
    Handler,
    Identity,
    Rep,
    Req,
    StreamRpc,
    UnaryRpc,
)
from ternmq_remoting.status import refusal_of
from ternmq_testing.memory.memory_exchange import (
    Exchange,
    HostNetwork,
    Loss,
    MemoryServer,
    StreamExchange,
    UnaryExchange,
    check_size,
)
from ternmq_testing.memory.memory_pipe import ErrorMaker, Pipe, soon

ReadT = TypeVar("ReadT", bound=ProtoMessage)
WriteT = TypeVar("WriteT", bound=ProtoMessage)


class MemoryConnection:
    """A caller's way to one address. Owns its calls and streams until `close`."""

    def __init__(
        self,
        network: HostNetwork,
        host: str,
        address: Address,
        identity: Identity | None = None,
        *,
        authorization: str = "",
    ) -> None:
        self.host = host
        self.identity = identity
        self.exchanges: dict[Exchange, None] = {}
        self._network = network
        self._address = address
        self._call = Call(
            peer=Address(host, network.free_port()),
            metadata={
                "ternmq-language": "python",
                "ternmq-version": __version__,
                **({AUTHORIZATION_KEY: authorization} if authorization else {}),
            },
        )
        self._is_closed = False

    @property
    def address(self) -> Address:
        """Address of the peer."""
        return self._address

    def _server(self) -> MemoryServer:
        is_member = self.identity is not None
        return self._network.server_at(self.host, self._address, is_member=is_member)

    async def call(self, rpc: UnaryRpc[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        """Send `request` and return the reply. Cancelling also cancels the handler."""
        self._check_open()
        payload = request.SerializeToString()
        check_size(payload, self._address)
        try:
            async with self._network.timers.timeout(timeout_s):
                raw = await self._exchange(rpc, payload)
        except TimeoutError:
            raise RequestTimedOut(f"{self._address}: no answer in time") from None
        reply = rpc.reply.FromString(raw)
        status: Any = getattr(reply, "status", None)
        if status is not None and status.code not in rpc.answers:
            raise error_of(status, str(self._address))
        return reply

    def open(self, rpc: StreamRpc[Req, Rep]) -> ClientStream[Rep, Req]:
        """Begin a stream."""
        self._check_open()
        capacity = self._network.stream_messages_max
        timers = self._network.timers
        up, down = Pipe(timers, capacity=capacity), Pipe(timers, capacity=capacity)
        stream = MemoryClientStream[Rep, Req](self._network, down, up, rpc.reply, self._address)
        try:
            server = self._server()
            if self._network.is_partitioned(self.host, server.host):
                raise Unreachable(f"{self._address}: does not answer")
        except Unreachable as error:
            reason = str(error)
            for pipe in (up, down):
                pipe.break_off(lambda: Unreachable(reason))
            return stream
        exchange = StreamExchange(self._network, self, server, (up, down))
        stream.exchange = exchange
        exchange.start(self._serve_stream(rpc, server, exchange, (up, down)), rpc.path)
        return stream

    def is_open(self) -> bool:
        """Tell whether it may be used."""
        return not self._is_closed

    async def close(self) -> None:
        """End every call and stream; who waits for one gets a `ClosedError`."""
        self.shut()

    def shut(self) -> None:
        """Do what `close` does, at once."""
        self._is_closed = True
        for exchange in list(self.exchanges):
            exchange.break_off(lambda: ClosedError(f"{self._address}: the connection is closed"))

    async def _exchange(self, rpc: UnaryRpc[Any, Any], payload: bytes) -> bytes:
        try:
            server = self._server()
        except Unreachable:
            await asyncio.sleep(0)  # a caller that tries again must let others run
            raise
        loss = self._network.loss_of(rpc.path, self.host, server.host)
        exchange = UnaryExchange(self._network, self, server)

        def arrive() -> None:
            if loss is not Loss.REQUEST and not exchange.is_settled:
                work = self._serve_unary(rpc, payload, server, exchange, loss)
                exchange.start(work, rpc.path)

        timer = soon(self._network.timers, self._network.draw_latency_s(), arrive)
        try:
            return await exchange.reply()
        finally:
            timer.cancel()
            exchange.over()
            if exchange.task is not None:
                exchange.task.cancel()

    async def _serve_unary(
        self,
        rpc: UnaryRpc[Any, Any],
        payload: bytes,
        server: MemoryServer,
        exchange: UnaryExchange,
        loss: Loss,
    ) -> None:
        outcome: bytes | ErrorMaker
        try:
            handler = _handler(server, rpc)
            reply = await handler.function(request_parser(rpc.request)(payload), self._call)
            assert isinstance(reply, rpc.reply), f"{rpc.path} answered {type(reply).__name__}"
            answer = reply.SerializeToString()
            check_size(answer, self._address)
            outcome = answer
        except UnparsableRequest as error:
            outcome = server.told(error)
        except TernError as error:
            outcome = _unary_refusal(rpc, error) or server.told(error)
        except Exception as error:
            outcome = server.note_crash(error, rpc.path)
        if loss is not Loss.REPLY:
            exchange.settle(outcome, latency_s=self._network.draw_latency_s())

    async def _serve_stream(
        self,
        rpc: StreamRpc[Any, Any],
        server: MemoryServer,
        exchange: StreamExchange,
        pipes: tuple[Pipe, Pipe],
    ) -> None:
        up, down = pipes
        ending: ErrorMaker | None = None
        try:
            stream = MemoryServerStream[Any, Any](self._network, up, down, rpc.request)
            await _handler(server, rpc).function(stream, self._call)
        except asyncio.CancelledError:
            exchange.over()
            # What was written before stays readable.
            down.end(lambda: ConnectionLost(f"{server.address}: the server has left"))
            up.break_off(lambda: ConnectionLost(f"{server.address}: the server has left"))
            raise
        except TernError as error:
            ending = server.told(error)
        except Exception as error:
            ending = server.note_crash(error, rpc.path)
        exchange.over()
        down.end(ending)
        up.break_off(
            ending or (lambda: ConnectionLost(f"{self._address}: the peer has ended the stream"))
        )

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError(f"{self._address}: the connection is closed")


class MemoryServerStream(Generic[ReadT, WriteT]):
    """A handler's side of one stream."""

    def __init__(
        self, network: HostNetwork, incoming: Pipe, outgoing: Pipe, request: type[ReadT]
    ) -> None:
        self._network = network
        self._incoming = incoming
        self._outgoing = outgoing
        self._parse = request_parser(request)

    async def read(self) -> ReadT | None:
        """Return the next message, or None when the peer has finished."""
        payload = await self._incoming.read()
        return None if payload is None else self._parse(payload)

    async def write(self, message: WriteT | EncodedMessage, /) -> None:
        """Send one message, waiting while the peer does not read."""
        payload = message.SerializeToString()
        await self._outgoing.write(payload, delay_s=self._network.draw_latency_s())


class MemoryClientStream(Generic[ReadT, WriteT]):
    """A caller's side of one stream. Cancelling a task that waits in it ends the stream."""

    exchange: Exchange | None = None

    def __init__(
        self,
        network: HostNetwork,
        incoming: Pipe,
        outgoing: Pipe,
        parser: type[ReadT],
        address: Address,
    ) -> None:
        self._network = network
        self._incoming = incoming
        self._outgoing = outgoing
        self._parser = parser
        self._address = address

    async def read(self) -> ReadT | None:
        """Return the next message, or None when the peer ended the stream well."""
        try:
            payload = await self._incoming.read()
        except asyncio.CancelledError:
            self.cancel()  # as gRPC does
            raise
        return None if payload is None else self._parser.FromString(payload)

    async def write(self, message: WriteT | EncodedMessage, /) -> None:
        """Send one message, waiting while the peer does not read."""
        payload = message.SerializeToString()
        try:
            check_size(payload, self._address)
            await self._outgoing.write(payload, delay_s=self._network.draw_latency_s())
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def finish(self) -> None:
        """Tell the peer that no more will be written."""
        self._outgoing.end()

    def cancel(self) -> None:
        """End the stream at once."""

        def error() -> TernError:
            return ClosedError(f"{self._address}: the stream was cancelled on this side")

        if self.exchange is not None:
            self.exchange.break_off(error)
        for pipe in (self._incoming, self._outgoing):
            pipe.break_off(error)


def _unary_refusal(rpc: UnaryRpc[Any, Any], error: TernError) -> bytes | None:
    """Return the reply whose status tells `error`, or None for a transport error."""
    refused = refusal_of(error)
    if refused is None:
        return None
    payload: bytes = rpc.reply(status=status_of(refused)).SerializeToString()
    return payload


def _handler(server: MemoryServer, rpc: UnaryRpc[Any, Any] | StreamRpc[Any, Any]) -> Handler:
    if (handler := server.handlers.get(rpc.path)) is None:
        remark = f"UNIMPLEMENTED {rpc.path} is not served here"
        raise refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
    return handler
