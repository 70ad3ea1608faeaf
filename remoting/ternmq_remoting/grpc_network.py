"""The network of real processes: gRPC without encryption, on loopback unless told otherwise."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from ternmq_model.errors import Unreachable
from ternmq_remoting.connection import GrpcConnection
from ternmq_remoting.health import CHECK
from ternmq_remoting.peer import identity_of, is_expected, texts_of
from ternmq_remoting.public_services import SERVING, HealthRequest
from ternmq_remoting.rpc import Address, Connection, Handler, Identity, Server
from ternmq_remoting.server import serving


class GrpcNetwork:
    """Makes gRPC connections and servers. Keeps no state of its own."""

    def __init__(self, *, grace_s: float = 5.0) -> None:
        """Make a network.

        Args:
            grace_s: How long a closing server lets running unary calls end. Streams end at once.
        """
        self._grace_s = grace_s

    async def connect(
        self,
        addresses: Sequence[Address],
        *,
        expect: Identity | None = None,
        timeout_s: float = 1.0,
    ) -> Connection:
        """Try `addresses` side by side and return a connection to the first that fits.

        Cancelling closes what was begun.

        Raises:
            Unreachable: None answered, or none is who was expected; names each.
        """
        connections = [GrpcConnection(address) for address in addresses]
        probes = [
            asyncio.ensure_future(_probe(connection, expect, timeout_s))
            for connection in connections
        ]
        kept: Connection | None = None
        try:
            kept = await _first_success(probes, connections)
            if kept is not None:
                return kept
        finally:
            for probe in probes:
                probe.cancel()
            await asyncio.gather(*probes, return_exceptions=True)
            for connection in connections:
                if connection is not kept:
                    await connection.close()
        said = "; ".join(str(probe.exception()) for probe in probes)
        raise Unreachable(said or "no address to connect to")

    def serve(
        self, handlers: Sequence[Handler], listen: Address, *, identity: Identity | None = None
    ) -> AbstractAsyncContextManager[Server]:
        """Serve `handlers` on `listen`, with health and reflection beside them."""
        return serving(handlers, listen, identity=identity, grace_s=self._grace_s)


async def _first_success(
    probes: Sequence[asyncio.Future[None]], connections: Sequence[GrpcConnection]
) -> Connection | None:
    waiting: set[asyncio.Future[None]] = set(probes)
    while waiting:
        _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for probe, connection in zip(probes, connections, strict=True):
            if probe.done() and not probe.exception():
                return connection
    return None


async def _probe(connection: GrpcConnection, expect: Identity | None, timeout_s: float) -> None:
    """Return when the peer serves and is who is expected.

    Raises:
        TernError: It does not answer, does not serve, or is somebody else.
    """
    reply, metadata = await connection.ask(CHECK, HealthRequest(), timeout_s=timeout_s)
    if reply.status != SERVING:
        raise Unreachable(f"{connection.address}: is closing")
    found = identity_of(texts_of(metadata))
    if not is_expected(found, expect):
        raise Unreachable(f"{connection.address}: is {found}, not {expect}")
