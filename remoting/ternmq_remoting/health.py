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
from ternmq_remoting.rpc import Identity, UnaryRpc

SERVICE = "grpc.health.v1.Health"


class _HealthRpc(UnaryRpc[Any, Any]):
    """The one RPC that is not a TernMQ contract's: gRPC's own path, no `status` to judge."""

    __slots__ = ()

    @property
    def path(self) -> str:
        return f"/{SERVICE}/{self.name}"


CHECK = _HealthRpc("Health", "Check", HealthRequest, HealthReply)


class Health:
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
        parse, write = HealthRequest.FromString, HealthReply.SerializeToString
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Check": grpc.unary_unary_rpc_method_handler(self._check, parse, write),
                "Watch": grpc.unary_stream_rpc_method_handler(self._watch, parse, write),
            },
        )

    def _status(self, service: str) -> int:
        if service not in self._services:
            return SERVICE_UNKNOWN
        return NOT_SERVING if self._stopping.is_set() else SERVING

    async def _check(self, request: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> Any:
        await context.send_initial_metadata(self._metadata)
        status = self._status(request.service)
        if status == SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r} here")
        return HealthReply(status=status)

    async def _watch(self, request: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        await context.send_initial_metadata(self._metadata)
        await context.write(HealthReply(status=self._status(request.service)))
        await self._stopping.wait()
        await context.write(HealthReply(status=self._status(request.service)))


assert HEALTH.services_by_name["Health"].full_name == SERVICE
