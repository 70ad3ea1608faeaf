"""Port of a service: where gRPC listens, and what serves behind it."""

import logging
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import grpc.aio

from ternmq_model.address import Address
from ternmq_model.errors import CannotListen
from ternmq_remoting.connection_limits import PortLimit
from ternmq_remoting.connection_watcher import ConnectionWatcher
from ternmq_remoting.grpc_options import server_options
from ternmq_remoting.grpc_tls import ServerCertificates
from ternmq_remoting.health import HealthService
from ternmq_remoting.local_health import answering
from ternmq_remoting.network_config import NetworkConfig
from ternmq_remoting.port_calls import PortCalls
from ternmq_remoting.reflection import ReflectionService
from ternmq_remoting.rpc import Gate, Handler, Identity, Server
from ternmq_remoting.server import (
    NOT_SERVING,
    TOO_MANY,
    Context,
    ServerCalls,
    UnaryFunction,
    abort,
    of_any_kind,
    reading,
)
from ternmq_remoting.status import GrpcStatus
from ternmq_remoting.tls import ClientAuth, TlsConfig
from ternmq_runtime.service import JobRunner

logger = logging.getLogger(__name__)

UNKNOWN: Final = GrpcStatus("UNIMPLEMENTED", "Method not found!", {})
"""gRPC's own status of a path that nobody serves."""


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
        self._calls = PortCalls(self._config.streams_max)
        self._ports: list[Address] = []
        self._watcher = ConnectionWatcher(self._ports, self._calls, self._config)
        self._refusing = _refusing(NOT_SERVING, self._calls.note)
        self._unknown = _refusing(UNKNOWN, self._calls.refuse)
        self._behind: tuple[ServerCalls, Mapping[str, Any]] | None = None
        """Present or last server, with the handlers of its health."""

    @property
    def counts(self) -> Mapping[PortLimit, int]:
        """Closed connections and refused calls of the port since it was made, by their limit."""
        return self._calls.counts

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return gRPC's handler of a call; None = the path is not served."""
        path = handler_call_details.method
        assert self._behind is not None, "the port is bound by the first server"
        serving, health = self._behind
        if (answering_health := health.get(path)) is not None:
            return answering_health
        if serving.is_draining:
            return self._refusing
        return serving.method(path, handler_call_details.invocation_metadata) or self._unknown

    @asynccontextmanager
    async def serve(
        self,
        handlers: Sequence[Handler],
        *,
        identity: Identity | None = None,
        gate: Gate | None = None,
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
        serving = ServerCalls(
            [*handlers, *reflection],
            identity,
            port=self._calls,
            # Handshakes have admitted the callers of a port that requires certificates.
            gate=None if asks_clients and self._plain_port is None else gate,
            asks_clients=asks_clients,
        )
        self._behind = (
            serving,
            {path: self._of_health(serving, each) for path, each in health.functions().items()},
        )
        if self._port is None:
            await self._open()
        async with (
            JobRunner(*self._watcher.jobs()),
            answering(self._address, lambda: not serving.is_draining),
        ):
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
        port = grpc.aio.server(options=server_options(self._config))
        port.add_generic_rpc_handlers([self])
        certificates = ServerCertificates(self._tls) if self._tls.cert is not None else None
        credentials = None if certificates is None else certificates.credentials()
        self._address = _bind(port, self._address, credentials)
        self._ports[:] = [self._address]
        if self._plain_port is not None:
            plain = _bind(port, Address(self._address.host, self._plain_port), None)
            self._ports.append(plain)
            logger.warning("listening without TLS, too address=%s", plain)
        await port.start()
        self._port = port

    async def _close(self, grace_s: float) -> None:
        port, self._port = self._port, None
        if port is not None:
            await port.stop(grace_s)

    def _of_health(self, serving: ServerCalls, answer: UnaryFunction) -> Any:
        """Return gRPC's handler of a health request, from which no caller is kept away."""
        read_and_answer = reading(answer, self._calls.awaiting)

        async def serve(requests: Any, context: Context) -> None:
            peer = context.peer()
            if not self._calls.begin(peer, is_admitted=not serving.is_gated):
                await abort(context, TOO_MANY)
            try:
                await read_and_answer(requests, context)
            finally:
                self._calls.end(peer)

        return of_any_kind(serve)


def _refusing(status: GrpcStatus, note: Callable[[str], None]) -> Any:
    """Return gRPC's handler that refuses calls of each kind, and notes their connections."""

    async def refuse(_requests: Any, context: Context) -> None:
        note(context.peer())
        await abort(context, status)

    return of_any_kind(refuse)
