"""Client side of gRPC: a channel to one address, with its calls and streams."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar, cast

import grpc.aio
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from ternmq_model.errors import ClosedError, ConnectionLost, TernError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_model.version import __version__
from ternmq_remoting.converters import error_of
from ternmq_remoting.encoded_message import EncodedMessage
from ternmq_remoting.grpc_options import CLIENT_OPTIONS
from ternmq_remoting.peer import target_of, texts_of
from ternmq_remoting.rpc import (
    AUTHORIZATION_KEY,
    Address,
    ClientStream,
    Identity,
    Rep,
    Req,
    StreamRpc,
    UnaryRpc,
)
from ternmq_remoting.status import GrpcStatus, error_of_status
from ternmq_runtime.fork_safety import check_loop

ReadT = TypeVar("ReadT", bound=ProtoMessage)
WriteT = TypeVar("WriteT", bound=ProtoMessage)

UnaryCall = grpc.aio.UnaryUnaryCall[bytes, bytes]
StreamCall = grpc.aio.StreamStreamCall[bytes, bytes]

CLIENT_METADATA: Final = (("ternmq-language", "python"), ("ternmq-version", __version__))


def error_of_rpc(error: grpc.aio.AioRpcError, peer: str) -> TernError:
    """Return the error of TernMQ for an error of gRPC."""
    trailing = texts_of(error.trailing_metadata())
    return error_of_status(GrpcStatus(error.code().name, error.details() or "", trailing), peer)


def is_being_cancelled() -> bool:
    """Return whether the running task itself is being cancelled.

    gRPC raises `CancelledError` also in a task that waits for a call which another task cancelled.
    The waiting task must get an error instead of its own end.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class GrpcClientStream(Generic[ReadT, WriteT]):
    """Caller's side of one gRPC stream.

    Cancelling a task that waits in `read` or `write` ends the stream.
    """

    __slots__ = ("_call", "_has_begun", "_parse", "_peer", "_receive", "_send")

    def __init__(
        self,
        call: StreamCall,
        parse: Callable[[bytes], ReadT],
        peer: str,
    ) -> None:
        self._call = call
        self._parse = parse
        self._peer = peer
        self._has_begun = False
        # Bound once: these two are called for every batch.
        self._receive: Callable[[], Coroutine[Any, Any, Any]] = call.read
        self._send: Callable[[bytes], Coroutine[Any, Any, None]] = call.write

    async def read(self) -> ReadT | None:
        """Return the next message; None = the peer ended the stream without an error."""
        try:
            raw = await self._receive()
            return None if raw is grpc.aio.EOF else self._parse(raw)
        except (grpc.RpcError, grpc.aio.BaseError, asyncio.CancelledError, DecodeError) as error:
            raise await self._end(error) from error

    async def write(self, message: WriteT | EncodedMessage, /) -> None:
        """Send one message."""
        try:
            if not self._has_begun:
                await self._begin()
            await self._send(message.SerializeToString())
        except (
            grpc.RpcError,
            grpc.aio.BaseError,
            asyncio.CancelledError,
            asyncio.InvalidStateError,
        ) as error:
            raise await self._end(error) from error

    async def _begin(self) -> None:
        """Wait until the call accepts messages or is over. gRPC's writers see no end of a call."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as waiting:

                def end(_: object) -> None:
                    with contextlib.suppress(RuntimeError):  # no caller waits any more
                        waiting.reschedule(0)

                self._call.add_done_callback(end)
                await self._call.wait_for_connection()
        self._has_begun = True

    async def finish(self) -> None:
        """End the writing side of the stream."""
        try:
            await self._call.done_writing()
        except (grpc.RpcError, grpc.aio.BaseError, asyncio.CancelledError) as error:
            raise await self._end(error) from error

    def cancel(self) -> None:
        """End the stream at once."""
        self._call.cancel()

    async def _end(self, error: BaseException) -> BaseException:
        """Return the error to raise for `error`, which ended the stream."""
        if isinstance(error, asyncio.CancelledError):
            if is_being_cancelled():
                return error
            return ClosedError(f"{self._peer}: the stream was cancelled on this side")
        if isinstance(error, DecodeError):
            self._call.cancel()
            return ConnectionLost(f"{self._peer}: sent a message that cannot be parsed")
        if isinstance(error, grpc.aio.AioRpcError) and error.code() is not grpc.StatusCode.INTERNAL:
            return error_of_rpc(error, self._peer)
        # A failed write ends the stream. Only the end of the stream has the reason.
        if self._call.cancelled():
            return ClosedError(f"{self._peer}: the stream was cancelled on this side")
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return ConnectionLost(f"{self._peer}: the peer has ended the stream")
        trailing = texts_of(await self._call.trailing_metadata())
        return error_of_status(
            GrpcStatus(code.name, await self._call.details(), trailing), self._peer
        )


def _channel_to(
    address: Address, credentials: grpc.ChannelCredentials | None, tls_name: str
) -> grpc.aio.Channel:
    target = target_of(address)
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=CLIENT_OPTIONS)
    name = [("grpc.ssl_target_name_override", tls_name)] if tls_name else []
    return grpc.aio.secure_channel(target, credentials, options=[*CLIENT_OPTIONS, *name])


class GrpcConnection:
    """Channel to one address. It owns its calls and streams until `close`."""

    def __init__(
        self,
        address: Address,
        credentials: grpc.ChannelCredentials | None = None,
        *,
        tls_name: str = "",
        token: str = "",
    ) -> None:
        """Create a channel, which connects at its first call.

        Args:
            address: Address of the peer.
            credentials: Credentials of the channel; None = no TLS.
            tls_name: Name in the peer's certificate; empty = the host of `address`.
            token: Token of the caller; empty = none.
        """
        own = ((AUTHORIZATION_KEY, f"Bearer {token}"),) if token else ()
        self._metadata = grpc.aio.Metadata(*CLIENT_METADATA, *own)
        self._address = address
        self._peer = str(address)
        self._channel = _channel_to(address, credentials, tls_name)
        self._unary: dict[UnaryRpc[Any, Any], Callable[..., Any]] = {}
        self._stream: dict[StreamRpc[Any, Any], Callable[..., Any]] = {}
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self.identity: Identity | None = None
        """Identity in the peer's metadata. The network sets it."""

    @property
    def address(self) -> Address:
        """Address of the peer."""
        return self._address

    async def call(self, rpc: UnaryRpc[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        """Send `request` and return the reply. After cancelling the outcome is unknown."""
        reply, _ = await self._exchange(rpc, request, timeout_s)
        status: Any = getattr(reply, "status", None)
        if status is not None and status.code not in rpc.answers:
            raise error_of(status, self._peer)
        return reply

    async def ask(
        self, rpc: UnaryRpc[Req, Rep], request: Req, *, timeout_s: float
    ) -> tuple[Rep, grpc.aio.Metadata]:
        """Return the reply with any status, and the peer's initial metadata."""
        reply, call = await self._exchange(rpc, request, timeout_s)
        return reply, await call.initial_metadata()

    def open(self, rpc: StreamRpc[Req, Rep]) -> ClientStream[Rep, Req]:
        """Open a stream."""
        self._check_open()
        begin = self._stream.get(rpc)
        if begin is None:
            begin = cast("Any", self._channel.stream_stream(rpc.path))
            self._stream[rpc] = begin
        call: StreamCall = begin(metadata=self._metadata)
        return GrpcClientStream[Rep, Req](call, rpc.reply.FromString, self._peer)

    async def close(self) -> None:
        """End every call and stream. Their waiters get a `ClosedError`."""
        self._is_closed = True
        await self._channel.close()

    async def _exchange(
        self, rpc: UnaryRpc[Req, Rep], request: Req, timeout_s: float
    ) -> tuple[Rep, UnaryCall]:
        self._check_open()
        begin = self._unary.get(rpc)
        if begin is None:
            begin = cast("Any", self._channel.unary_unary(rpc.path))
            self._unary[rpc] = begin
        call: UnaryCall = begin(
            request.SerializeToString(), timeout=timeout_s, metadata=self._metadata
        )
        try:
            return rpc.reply.FromString(await call), call
        except grpc.aio.AioRpcError as error:
            raise error_of_rpc(error, self._peer) from error
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            raise ClosedError(f"{self._peer}: closed during {rpc.name}") from None
        except DecodeError as error:
            remark = f"the reply to {rpc.name} cannot be parsed"
            refused = refusal(ResponseCode.SYSTEM_ERROR, remark, self._peer)
            refused.may_have_happened = True
            raise refused from error

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError(f"{self._peer}: the connection is closed")
        check_loop(self._loop)  # gRPC would never answer elsewhere
