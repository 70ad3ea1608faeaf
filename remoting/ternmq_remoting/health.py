"""Service `grpc.health.v1`: whether a server accepts calls."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import grpc.aio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from ternmq_remoting.request_parser import UnparsableRequest, request_parser
from ternmq_remoting.rpc import Identity, UnaryRpc
from ternmq_remoting.status import status_of_error

SERVICE: Final = "grpc.health.v1.Health"
CHECK: Final = UnaryRpc(SERVICE, "Check", HealthCheckRequest, HealthCheckResponse)

Context = grpc.aio.ServicerContext[bytes, bytes]

_parse = request_parser(HealthCheckRequest)


class HealthService:
    """Health of one server: of the service "" (the whole server) and of each served service.

    Owned by that server, which stops serving once.
    """

    # The servicer of grpcio-health-checking is not used: its watches outlive the server, before
    # 1.81 the first of two that ends silences the other, and it sends no identity.

    def __init__(self, services: Iterable[str], identity: Identity | None) -> None:
        self._services = frozenset({"", SERVICE, *services})
        self._metadata = identity.to_metadata() if identity else ()
        self._stopping = asyncio.Event()

    def stop_serving(self) -> None:
        """Answer NOT_SERVING to all later checks and to all watches, which end."""
        self._stopping.set()

    def functions(self) -> Mapping[str, Callable[[bytes, Context], Awaitable[bytes]]]:
        """Return the functions of the service by path: each returns its last reply."""
        return {f"/{SERVICE}/Check": self._check, f"/{SERVICE}/Watch": self._watch}

    def _reply(self, service: str) -> bytes:
        reply = HealthCheckResponse(status=HealthCheckResponse.SERVING)
        if service not in self._services:
            reply.status = HealthCheckResponse.SERVICE_UNKNOWN
        elif self._stopping.is_set():
            reply.status = HealthCheckResponse.NOT_SERVING
        return reply.SerializeToString()

    async def _check(self, raw: bytes, context: Context) -> bytes:
        service = await self._begin(raw, context)
        if service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {service!r} here")
        return self._reply(service)

    async def _watch(self, raw: bytes, context: Context) -> bytes:
        service = await self._begin(raw, context)
        await context.write(self._reply(service))
        await self._stopping.wait()
        return self._reply(service)

    async def _begin(self, raw: bytes, context: Context) -> str:
        """Send the server's identity and return the name of the service in the request."""
        await context.send_initial_metadata(self._metadata)
        try:
            # Bytes are parsed here: gRPC would log a traceback for each bad request.
            return _parse(raw).service
        except UnparsableRequest as error:
            status = status_of_error(error)
            code, trailing = grpc.StatusCode[status.code], tuple(status.trailing.items())
            await context.abort(code, status.details, trailing)
