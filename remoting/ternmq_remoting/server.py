"""Server side of gRPC: handlers of RPCs, and a server with an orderly end."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Never, TypeVar, cast

import grpc.aio
from google.protobuf.message import Message as ProtoMessage

from ternmq_model.errors import CannotListen, ConnectionLost, TernError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.converters import status_of
from ternmq_remoting.encoded_message import EncodedMessage
from ternmq_remoting.grpc_options import MESSAGE_BYTES_MAX, SERVER_OPTIONS
from ternmq_remoting.grpc_tls import ServerCertificates, certificate_of
from ternmq_remoting.health import SERVICE as HEALTH_SERVICE
from ternmq_remoting.health import HealthService
from ternmq_remoting.local_health import answering
from ternmq_remoting.network_config import NetworkConfig
from ternmq_remoting.peer import address_of_peer, texts_of
from ternmq_remoting.reflection import ReflectionService
from ternmq_remoting.request_parser import UnparsableRequest, request_parser
from ternmq_remoting.rpc import Address, Call, Handler, Identity, Server, UnaryRpc
from ternmq_remoting.status import NOT_BEGUN_KEY, GrpcStatus, refusal_of, status_of_error
from ternmq_remoting.tls import ClientAuth, TlsConfig

logger = logging.getLogger(__name__)

ReadT = TypeVar("ReadT", bound=ProtoMessage)
WriteT = TypeVar("WriteT", bound=ProtoMessage)
Context = grpc.aio.ServicerContext[bytes, bytes]


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

    Attributes:
        methods: Handlers in gRPC's form, by path.
        streams: Tasks of running streams. The drain cancels them.
        calls: Tasks of running unary calls.
        is_draining: True = no call may begin, and cancelled calls end with UNAVAILABLE.
    """

    def __init__(
        self,
        handlers: Sequence[Handler],
        identity: Identity | None,
        *,
        asks_clients: bool = False,
    ) -> None:
        self._asks_clients = asks_clients
        self.metadata = identity.to_metadata() if identity else ()
        self.streams: set[asyncio.Task[Any]] = set()
        self.calls: set[asyncio.Task[Any]] = set()
        self.is_draining = False
        self.crashes = CrashLog()
        self.methods: dict[str, Any] = {}
        for handler in handlers:
            if handler.rpc.path in self.methods:
                raise ValueError(f"two handlers for {handler.rpc.path}")
            self.methods[handler.rpc.path] = self._method(handler)

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

    def _method(self, handler: Handler) -> Any:
        # Bytes are parsed here: gRPC would log a traceback for each bad request.
        if isinstance(handler.rpc, UnaryRpc):
            return cast("Any", grpc.unary_unary_rpc_method_handler(self._unary(handler)))
        return cast("Any", grpc.stream_stream_rpc_method_handler(self._streaming(handler)))

    def _unary(self, handler: Handler) -> Callable[[bytes, Context], Awaitable[bytes]]:
        path, function, reply_type = handler.rpc.path, handler.function, handler.rpc.reply
        parse = request_parser(handler.rpc.request)
        metadata, has_status = self.metadata, "status" in reply_type.DESCRIPTOR.fields_by_name

        async def serve(raw: bytes, context: Context) -> bytes:
            task = asyncio.current_task()
            assert task is not None
            await self._let_in(context)
            self.calls.add(task)
            try:
                call = call_of(context, asks_clients=self._asks_clients)
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
            written = reply.SerializeToString()
            if len(written) > MESSAGE_BYTES_MAX:
                # gRPC would log a traceback and report the crash to the caller as a refusal.
                await abort(context, too_large(path, len(written)))
            return written

        return serve

    def _streaming(self, handler: Handler) -> Callable[[Any, Context], Awaitable[None]]:
        path, function, parse = (
            handler.rpc.path,
            handler.function,
            request_parser(handler.rpc.request),
        )

        async def serve(_requests: Any, context: Context) -> None:
            task = asyncio.current_task()
            assert task is not None
            await self._let_in(context)
            self.streams.add(task)
            try:
                await context.send_initial_metadata(self.metadata)
                call = call_of(context, asks_clients=self._asks_clients)
                await function(GrpcServerStream(context, parse), call)
                return
            except asyncio.CancelledError:
                if not self.is_draining:
                    raise
                task.uncancel()
                status = CLOSING
            except TernError as error:
                status = status_of_error(error)
            except Exception as error:
                self._report(path, error)
                status = CRASHED
            finally:
                self.streams.discard(task)
            await abort(context, status)

        return serve

    async def _let_in(self, context: Context) -> None:
        """Refuse a call that arrived before the drain and begins during it."""
        if self.is_draining:
            await abort(context, NOT_SERVING)

    def _report(self, path: str, error: BaseException) -> None:
        self.crashes.report(path, error, now_s=asyncio.get_running_loop().time())


CRASHED: Final = status_of_error(
    refusal(ResponseCode.SYSTEM_ERROR, "the handler failed; see the server's log")
)
CLOSING: Final = GrpcStatus("UNAVAILABLE", "the server is closing", {})
NOT_SERVING: Final = GrpcStatus(
    "UNAVAILABLE", "the server does not serve at present", {NOT_BEGUN_KEY: "1"}
)


def too_large(path: str, reply_bytes: int) -> GrpcStatus:
    """Return the status of a call whose reply exceeds the limit."""
    remark = f"the reply to {path} has {reply_bytes} bytes; at most {MESSAGE_BYTES_MAX} can be sent"
    refused = refusal(ResponseCode.MESSAGE_ILLEGAL, remark, may_have_happened=True)
    return replace(status_of_error(refused), code="RESOURCE_EXHAUSTED")


def call_of(context: Context, *, asks_clients: bool) -> Call:
    """Return the caller for a handler.

    Args:
        context: Context of the call.
        asks_clients: True where callers show certificates; elsewhere none is looked for.
    """
    certificate = None
    if asks_clients:
        found: dict[str, Iterable[bytes]] = dict(context.auth_context())
        keys = ("x509_pem_cert", "x509_subject", "x509_common_name")
        pem, subject, name = (b"".join(found.get(key, ())) for key in keys)
        certificate = certificate_of(pem, subject, name) if pem else None
    metadata = texts_of(context.invocation_metadata())
    return Call(address_of_peer(context.peer()), metadata, certificate)


async def abort(context: Context, status: GrpcStatus) -> Never:
    """End the call with `status` by an exception of gRPC that the handler must not catch."""
    await context.abort(
        grpc.StatusCode[status.code], status.details, tuple(status.trailing.items())
    )


def _why_not_bound(listen: Address) -> str | None:
    """Return the reason why `listen` cannot be bound; None = one of its addresses can be bound.

    gRPC does not return the system's reason, and writes lines of its own to stderr.
    """
    reason = None
    try:
        found = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        return error.strerror or str(error)
    for family, kind, _, _, where in found:
        try:
            with socket.socket(family, kind) as probe:
                # Like gRPC: lingering connections of an earlier server must not prevent the bind.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            return None
    return reason


def _bind(
    server: grpc.aio.Server, listen: Address, credentials: grpc.ServerCredentials | None
) -> Address:
    """Bind `server` and return its address, with the port."""
    if (reason := _why_not_bound(listen)) is not None:
        raise CannotListen(f"cannot listen on {listen}: {reason}")
    try:
        if credentials is None:
            return Address(listen.host, server.add_insecure_port(str(listen)))
        return Address(listen.host, server.add_secure_port(str(listen), credentials))
    except (RuntimeError, OSError) as error:
        raise CannotListen(f"cannot listen on {listen}: gRPC could not bind it") from error


@dataclass(frozen=True, slots=True)
class GrpcServer:
    """Listening server. Made by a `GrpcListener`."""

    address: Address
    """Address on which the server listens, with its port."""


class GrpcListener(grpc.GenericRpcHandler):
    """Port for successive servers, bound by the first `serve`.

    Args:
        listen: Address of the port.
        grace_s: Time for running unary calls of a closing server, s.
        stays_open: True = between two servers every call is refused as unreachable, and health is
            NOT_SERVING. False = the port is closed at the end of the present server.
        config: Settings of the port; None = the defaults.
        tls: TLS of the port; None = none.
        plain_port: Second port, without TLS, beside one with TLS; None = none.
    """

    def __init__(
        self,
        listen: Address,
        *,
        grace_s: float,
        stays_open: bool = True,
        config: NetworkConfig | None = None,
        tls: TlsConfig | None = None,
        plain_port: int | None = None,
    ) -> None:
        self.stays_open = stays_open
        self._config = config or NetworkConfig()
        self._tls = tls or TlsConfig()
        self._plain_port = plain_port
        self._address = listen
        self._grace_s = grace_s
        self._port: grpc.aio.Server | None = None
        self._behind: tuple[ServerCalls, Any] | None = None
        """Present or last server, with the handler of its health."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return gRPC's handler of a call; None = the path is not served."""
        path = handler_call_details.method
        assert self._behind is not None, "the port is bound by the first server"
        serving, health = self._behind
        if path.startswith(f"/{HEALTH_SERVICE}/"):
            return health.service(handler_call_details)
        return _REFUSING if serving.is_draining else serving.methods.get(path)

    @asynccontextmanager
    async def serve(
        self, handlers: Sequence[Handler], *, identity: Identity | None = None
    ) -> AsyncGenerator[Server]:
        """Serve while the block runs.

        At the end of the block health becomes NOT_SERVING, streams are cancelled, calls are refused
        and running calls get their grace period; then the socket is closed, unless it stays open.

        Raises:
            CannotListen: The address is taken or does not belong to this machine.
        """
        files = {handler.rpc.request.DESCRIPTOR.file for handler in handlers}
        reflection = ReflectionService(files).handlers() if self._config.reflection else ()
        health = HealthService({handler.rpc.service for handler in handlers}, identity)
        asks_clients = self._tls.client_auth is ClientAuth.REQUIRED
        serving = ServerCalls([*handlers, *reflection], identity, asks_clients=asks_clients)
        self._behind = (serving, health.handlers())
        if self._port is None:
            await self._open()
        async with answering(self._address, lambda: not serving.is_draining):
            try:
                yield GrpcServer(self._address)
            finally:
                serving.is_draining = True
                health.stop_serving()
                if self.stays_open:
                    await serving.drain(self._grace_s)
                else:
                    for task in serving.streams:
                        task.cancel()
                    await self._close(self._grace_s)
                    await serving.drain(0)

    async def close(self) -> None:
        """Close the port. Safe to repeat."""
        await self._close(0)

    async def _open(self) -> None:
        port = grpc.aio.server(options=SERVER_OPTIONS)
        port.add_generic_rpc_handlers([self])
        certificates = ServerCertificates(self._tls) if self._tls.cert is not None else None
        credentials = None if certificates is None else certificates.credentials()
        self._address = _bind(port, self._address, credentials)
        if self._plain_port is not None:
            plain = _bind(port, Address(self._address.host, self._plain_port), None)
            logger.warning("listening without TLS, too address=%s", plain)
        await port.start()
        self._port = port

    async def _close(self, grace_s: float) -> None:
        port, self._port = self._port, None
        if port is not None:
            await port.stop(grace_s)


async def _refuse(_requests: Any, context: Context) -> None:
    await abort(context, NOT_SERVING)


_REFUSING: Final = cast("Any", grpc.stream_stream_rpc_method_handler(_refuse))
"""Handler that refuses calls of each kind: for gRPC's core a unary call is a stream."""
