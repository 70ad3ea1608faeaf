"""Server side of gRPC: handlers of RPCs, and their orderly end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final, Generic, Never, TypeVar, cast

import grpc.aio
from google.protobuf.message import Message as ProtoMessage

from ternmq_model.errors import ConnectionLost, TernError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.converters import status_of
from ternmq_remoting.encoded_message import EncodedMessage
from ternmq_remoting.grpc_options import MESSAGE_BYTES_MAX
from ternmq_remoting.grpc_tls import certificate_of
from ternmq_remoting.peer import address_of_peer, texts_of
from ternmq_remoting.port_calls import PortCalls
from ternmq_remoting.request_parser import UnparsableRequest, request_parser
from ternmq_remoting.rpc import Call, Gate, Handler, Identity, UnaryRpc
from ternmq_remoting.status import NOT_BEGUN_KEY, GrpcStatus, refusal_of, status_of_error

logger = logging.getLogger(__name__)

ReadT = TypeVar("ReadT", bound=ProtoMessage)
WriteT = TypeVar("WriteT", bound=ProtoMessage)
Context = grpc.aio.ServicerContext[bytes, bytes]
UnaryFunction = Callable[[bytes, Context], Awaitable[bytes]]
StreamFunction = Callable[[Any, Context], Awaitable[None]]

CRASH_LOG_INTERVAL_S: Final = 10.0
END_SETTLES_S: Final = 0.01
ENDING_S: Final = 5.0


class GrpcServerStream(Generic[ReadT, WriteT]):
    """Handler's side of one gRPC stream.

    Cancelling a task that waits in `read` may lose a message.
    """

    __slots__ = ("_parse", "_receive", "_send")

    def __init__(self, context: Context, parse: Callable[[bytes], ReadT]) -> None:
        self._parse = parse
        # Bound once: these two are called for every batch.
        self._receive: Callable[[], Awaitable[Any]] = context.read
        self._send: Callable[[bytes], Awaitable[None]] = context.write

    async def read(self) -> ReadT | None:
        """Return the caller's next message; None = the caller has finished.

        Raises:
            InvalidParameter: The message cannot be parsed, or has an unknown enum number.
        """
        try:
            raw = await self._receive()
            if raw is not grpc.aio.EOF:
                return self._parse(raw)
        except grpc.aio.BaseError as error:
            raise ConnectionLost(f"the caller is gone: {error}") from error
        # After the loss of the caller gRPC first ends the stream and some microseconds later
        # cancels the handler. An end without a cancellation is the caller's own.
        await asyncio.sleep(END_SETTLES_S)
        return None

    async def write(self, message: WriteT | EncodedMessage, /) -> None:
        """Send one message to the caller."""
        try:
            await self._send(message.SerializeToString())
        except grpc.aio.BaseError as error:
            raise ConnectionLost(f"the caller is gone: {error}") from error


class CrashLog:
    """Log of crashed handlers: one traceback for each RPC and `CRASH_LOG_INTERVAL_S`.

    A caller can repeat a request that crashes its handler at any rate, so the log is limited.
    """

    def __init__(self) -> None:
        self._next_at_s: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def report(self, path: str, error: BaseException, *, now_s: float) -> None:
        """Log `error`, or count it within the interval after a logged one."""
        if now_s < self._next_at_s.get(path, now_s):
            self._suppressed[path] = self._suppressed.get(path, 0) + 1
            return
        self._next_at_s[path] = now_s + CRASH_LOG_INTERVAL_S
        suppressed = self._suppressed.pop(path, 0)
        logger.error("handler crashed rpc=%s suppressed=%s", path, suppressed, exc_info=error)


class ServerCalls:
    """Running calls and handlers of one server, which owns them.

    Args:
        handlers: Handlers with different paths.
        identity: Identity of the server; None = none.
        port: Calls of the port, which outlive the server.
        gate: Check of callers; None = everybody may call.
        asks_clients: True where callers show certificates.

    Attributes:
        streams: Tasks of running streams. The drain cancels them.
        calls: Tasks of running unary calls, and of callers that are being admitted.
        is_draining: True = no call may begin, and cancelled calls end with UNAVAILABLE.
    """

    def __init__(
        self,
        handlers: Sequence[Handler],
        identity: Identity | None,
        *,
        port: PortCalls,
        gate: Gate | None = None,
        asks_clients: bool = False,
    ) -> None:
        self._port, self._gate, self._asks_clients = port, gate, asks_clients
        self.metadata = identity.to_metadata() if identity else ()
        self.streams: set[asyncio.Task[Any]] = set()
        self.calls: set[asyncio.Task[Any]] = set()
        self.is_draining = False
        self.crashes = CrashLog()
        self._methods: dict[str, Any] = {}
        """Handlers in gRPC's form, by path."""
        self._gated: dict[str, Any] = {}
        """Handlers for callers that are not known yet, by path."""
        for handler in handlers:
            path, is_unary = handler.rpc.path, isinstance(handler.rpc, UnaryRpc)
            if path in self._methods:
                raise ValueError(f"two handlers for {path}")
            # Bytes are parsed here: gRPC would log a traceback for each bad request.
            if is_unary:
                unary = self._unary(handler)
                self._methods[path] = cast("Any", grpc.unary_unary_rpc_method_handler(unary))
                self._gated[path] = of_any_kind(self._admitting(path, reading(unary)))
            else:
                streaming = self._streaming(handler)
                self._methods[path] = of_any_kind(streaming)
                self._gated[path] = of_any_kind(self._admitting(path, streaming))

    @property
    def is_gated(self) -> bool:
        """True = only known callers may call."""
        return self._gate is not None and not self._gate.is_open

    def method(self, path: str, metadata: Iterable[tuple[str, str | bytes]] | None) -> Any:
        """Return gRPC's handler of a call; None = the path is not served."""
        gate = self._gate
        if gate is None or gate.is_open or gate.knows(texts_of(metadata)):
            return self._methods.get(path)
        return self._gated.get(path)

    async def drain(self, grace_s: float) -> None:
        """End every call: streams at once, unary calls within `grace_s` seconds.

        The drain waits for all handlers, but not longer than `ENDING_S` for a cancelled one.
        """
        for task in self.streams:
            task.cancel()
        if running := self.streams | self.calls:
            await asyncio.wait(running, timeout=grace_s)
        if running := self.streams | self.calls:
            for task in running:
                task.cancel()
            _, running = await asyncio.wait(running, timeout=ENDING_S)
        if running:
            logger.warning("cancelled calls do not end count=%s", len(running))

    def _unary(self, handler: Handler) -> UnaryFunction:
        path, function, reply_type = handler.rpc.path, handler.function, handler.rpc.reply
        parse = request_parser(handler.rpc.request)
        metadata, has_status = self.metadata, "status" in reply_type.DESCRIPTOR.fields_by_name

        async def serve(raw: bytes, context: Context) -> bytes:
            task = asyncio.current_task()
            assert task is not None
            peer = await self._begin(context)
            self.calls.add(task)
            try:
                call = call_of(context, peer, asks_clients=self._asks_clients)
                await context.send_initial_metadata(metadata)
                reply: ProtoMessage = await function(parse(raw), call)
            except asyncio.CancelledError:
                if not self.is_draining:
                    raise
                task.uncancel()
                await abort(context, CLOSING)
            except UnparsableRequest as error:
                await abort(context, status_of_error(error))
            except TernError as error:
                refused = refusal_of(error)
                if refused is None or not has_status:
                    await abort(context, status_of_error(error))
                reply = reply_type(status=status_of(refused))
            except Exception as error:
                self._report(path, error)
                await abort(context, CRASHED)
            finally:
                self.calls.discard(task)
                self._port.end(peer)
            written = reply.SerializeToString()
            if len(written) > MESSAGE_BYTES_MAX:
                # gRPC would log a traceback and report the crash to the caller as a refusal.
                await abort(context, too_large(path, len(written)))
            return written

        return serve

    def _streaming(self, handler: Handler) -> StreamFunction:
        path, function, parse = (
            handler.rpc.path,
            handler.function,
            request_parser(handler.rpc.request),
        )

        async def serve(_requests: Any, context: Context) -> None:
            task = asyncio.current_task()
            assert task is not None
            peer = await self._begin(context)
            self.streams.add(task)
            try:
                await context.send_initial_metadata(self.metadata)
                call = call_of(context, peer, asks_clients=self._asks_clients)
                status = await self._outcome(path, function(GrpcServerStream(context, parse), call))
            finally:
                self.streams.discard(task)
                self._port.end(peer)
            if status is not None:
                await abort(context, status)

        return serve

    def _admitting(self, path: str, serve: StreamFunction) -> StreamFunction:
        """Return the function that admits the caller before `serve` reads the request."""

        async def admit_and_serve(requests: Any, context: Context) -> None:
            task, gate = asyncio.current_task(), self._gate
            assert task is not None
            assert gate is not None
            peer = await self._begin(context, is_admitted=False)
            self.calls.add(task)
            try:
                call = call_of(context, peer, asks_clients=self._asks_clients)
                status = await self._outcome(path, gate.admit(call, path))
            finally:
                self.calls.discard(task)
                self._port.end(peer)
            if status is not None:
                if not self.is_draining:
                    self._port.refuse(peer)
                await abort(context, status)
            self._port.admit(peer)
            await serve(requests, context)

        return admit_and_serve

    async def _outcome(self, path: str, working: Awaitable[None]) -> GrpcStatus | None:
        """Return the status that must end a call after `working`; None = it has succeeded."""
        try:
            await working
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self.is_draining or task is None:
                raise
            task.uncancel()
            return CLOSING
        except TernError as error:
            return status_of_error(error)
        except Exception as error:
            self._report(path, error)
            return CRASHED
        return None

    async def _begin(self, context: Context, *, is_admitted: bool = True) -> str:
        """Count a call and return the name of its connection, or refuse it.

        A call that arrived before the drain may begin during it.
        """
        if self.is_draining:
            await abort(context, NOT_SERVING)
        peer = context.peer()
        if not self._port.begin(peer, is_admitted=is_admitted):
            await abort(context, TOO_MANY)
        return peer

    def _report(self, path: str, error: BaseException) -> None:
        self.crashes.report(path, error, now_s=asyncio.get_running_loop().time())


CRASHED: Final = status_of_error(
    refusal(ResponseCode.SYSTEM_ERROR, "the handler failed; see the server's log")
)
CLOSING: Final = GrpcStatus("UNAVAILABLE", "the server is closing", {})
NO_REQUEST: Final = GrpcStatus("CANCELLED", "the caller has sent no request", {})
TOO_MANY: Final = status_of_error(
    refusal(ResponseCode.SYSTEM_BUSY, "too many calls at a time on this connection")
)
NOT_SERVING: Final = GrpcStatus(
    "UNAVAILABLE", "the server does not serve at present", {NOT_BEGUN_KEY: "1"}
)


def too_large(path: str, reply_bytes: int) -> GrpcStatus:
    """Return the status of a call whose reply exceeds the limit."""
    remark = f"the reply to {path} has {reply_bytes} bytes; at most {MESSAGE_BYTES_MAX} can be sent"
    refused = refusal(ResponseCode.MESSAGE_ILLEGAL, remark, may_have_happened=True)
    return replace(status_of_error(refused), code="RESOURCE_EXHAUSTED")


def of_any_kind(serve: StreamFunction) -> Any:
    """Return gRPC's handler that reads and writes itself: for gRPC's core every call is a stream.

    It begins before the request has arrived, of which gRPC buffers no more than a window.
    """
    return cast("Any", grpc.stream_stream_rpc_method_handler(serve))


def reading(
    answer: UnaryFunction,
    awaiting: Callable[[str], AbstractContextManager[Any]] = nullcontext,
) -> StreamFunction:
    """Return the function that reads the request of a unary call itself, and answers it.

    Args:
        answer: Function of the call.
        awaiting: Block in which a request is awaited, of the name of its connection.
    """

    async def serve(_requests: Any, context: Context) -> None:
        try:
            with awaiting(context.peer()):
                raw: Any = await context.read()
            if raw is grpc.aio.EOF:
                await abort(context, NO_REQUEST)
            await context.write(await answer(raw, context))
        except (grpc.aio.InternalError, grpc.aio.UsageError):
            logger.debug("the caller of a unary call is gone")

    return serve


def call_of(context: Context, peer: str, *, asks_clients: bool) -> Call:
    """Return the caller for a handler.

    Args:
        context: Context of the call.
        peer: gRPC's name of the connection.
        asks_clients: True where callers show certificates; elsewhere none is looked for.
    """
    certificate = None
    if asks_clients:
        found: dict[str, Iterable[bytes]] = dict(context.auth_context())
        keys = ("x509_pem_cert", "x509_subject", "x509_common_name")
        pem, subject, name = (b"".join(found.get(key, ())) for key in keys)
        certificate = certificate_of(pem, subject, name) if pem else None
    metadata = texts_of(context.invocation_metadata())
    return Call(address_of_peer(peer), metadata, certificate)


async def abort(context: Context, status: GrpcStatus) -> Never:
    """End the call with `status` by an exception of gRPC that the handler must not catch."""
    await context.abort(
        grpc.StatusCode[status.code], status.details, tuple(status.trailing.items())
    )
