"""`grpc.health.v1`: whether a server takes calls."""

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc.aio

from ternmq_remoting.public_services import (
    HEALTH,
    NOT_SERVING,
    SERVICE_UNKNOWN,
    SERVING,
    HealthReply,
    HealthRequest,
)
from ternmq_remoting.request_parser import UnparsableRequest, request_parser
from ternmq_remoting.rpc import Identity, UnaryRpc
from ternmq_remoting.status import status_of_error

SERVICE = "grpc.health.v1.Health"


class _HealthRpc(UnaryRpc[Any, Any]):
    """The one RPC that is not a TernMQ contract's: gRPC's own path, no `status` to judge."""

    __slots__ = ()

    @property
    def path(self) -> str:
        return f"/{SERVICE}/{self.name}"


_parse = request_parser(HealthRequest)
CHECK = _HealthRpc("Health", "Check", HealthRequest, HealthReply)


class HealthService:
    """Answers Check and Watch for "" (the whole server) and each served service.

    Owned by one server; `stop_serving` is the only change in its life.
    """

    def __init__(self, services: Iterable[str], identity: Identity | None) -> None:
        self._services = frozenset({"", SERVICE, *services})
        self._metadata = identity.to_metadata() if identity else ()
        self._stopping = asyncio.Event()

    def stop_serving(self) -> None:
        """Tell who asks or watches that no more calls are taken."""
        self._stopping.set()

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the service for gRPC."""
        # Bytes in: gRPC would log a traceback per bad request.
        write = HealthReply.SerializeToString
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Check": grpc.unary_unary_rpc_method_handler(self._check, None, write),
                "Watch": grpc.unary_stream_rpc_method_handler(self._watch, None, write),
            },
        )

    def _status(self, service: str) -> int:
        if service not in self._services:
            return SERVICE_UNKNOWN
        return NOT_SERVING if self._stopping.is_set() else SERVING

    async def _check(self, raw: bytes, context: "grpc.aio.ServicerContext[Any, Any]") -> Any:
        service = await self._begin(raw, context)
        status = self._status(service)
        if status == SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {service!r} here")
        return HealthReply(status=status)

    async def _watch(self, raw: bytes, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        service = await self._begin(raw, context)
        await context.write(HealthReply(status=self._status(service)))
        await self._stopping.wait()
        await context.write(HealthReply(status=self._status(service)))

    async def _begin(self, raw: bytes, context: "grpc.aio.ServicerContext[Any, Any]") -> str:
        """Tell the caller who answers; return the service that it asks about."""
        await context.send_initial_metadata(self._metadata)
        try:
            service: str = _parse(raw).service
        except UnparsableRequest as error:
            status = status_of_error(error)
            code, trailing = grpc.StatusCode[status.code], tuple(status.trailing.items())
            await context.abort(code, status.details, trailing)
        return service


assert HEALTH.services_by_name["Health"].full_name == SERVICE
