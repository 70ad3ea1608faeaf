"""The network of real processes: gRPC without encryption, on loopback unless told otherwise."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar

from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from ternmq_model.errors import TernError, Unreachable
from ternmq_remoting.connection import GrpcConnection
from ternmq_remoting.health import CHECK
from ternmq_remoting.peer import identity_of, is_expected, texts_of
from ternmq_remoting.rpc import Address, Connection, Handler, Identity, Server
from ternmq_remoting.server import GrpcListener
from ternmq_runtime.fork_safety import check_process


class GrpcNetwork:
    """Makes gRPC connections and servers, all in one process: that which makes the first one.

    gRPC's state is one for the whole process. A child that is forked after it began lacks the
    threads behind it: every call of the child would wait without end.
    """

    _process_id: ClassVar[int] = 0
    """The process in which gRPC began; 0 = it has not."""

    def __init__(self, *, grace_s: float = 5.0) -> None:
        """Make a network.

        Args:
            grace_s: How long a closing server lets running unary calls end. Streams end at once.
        """
        self._grace_s = grace_s

    @classmethod
    def check_process(cls) -> None:
        """Do nothing where gRPC can be used.

        Raises:
            ClosedError: This process was forked from one in which gRPC had begun.
        """
        check_process(cls._process_id)

    @classmethod
    def begin(cls) -> None:
        """Note that gRPC begins in this process, if it has not."""
        cls.check_process()
        GrpcNetwork._process_id = os.getpid()

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
            ClosedError: This process was forked from one in which gRPC had begun.
        """
        self.begin()
        connections = [GrpcConnection(address) for address in addresses]
        kept: GrpcConnection | None = None
        try:
            async with asyncio.TaskGroup() as group:
                probes = [
                    group.create_task(_probe(connection, expect, timeout_s))
                    for connection in connections
                ]
                waiting = set(probes)
                while waiting and kept is None:
                    _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    kept = next(
                        (
                            connection
                            for probe, connection in zip(probes, connections, strict=True)
                            if probe.done() and probe.result() is None
                        ),
                        None,
                    )
                for probe in waiting:
                    probe.cancel()
        finally:
            for connection in connections:
                if connection is not kept:
                    await connection.close()
        if kept is None:
            said = "; ".join(str(probe.result()) for probe in probes)
            raise Unreachable(said or "there is no address to connect to")
        return kept

    def serve(
        self, handlers: Sequence[Handler], listen: Address, *, identity: Identity | None = None
    ) -> AbstractAsyncContextManager[Server]:
        """Serve `handlers` on `listen`, with health and reflection beside them.

        Raises:
            ClosedError: As for `connect`.
        """
        self.begin()
        listener = GrpcListener(listen, grace_s=self._grace_s, stays_open=False)
        return listener.serve(handlers, identity=identity)

    def listener(self, listen: Address) -> GrpcListener:
        """Return a port that stays open from one server to the next.

        Raises:
            ClosedError: As for `connect`.
        """
        self.begin()
        return GrpcListener(listen, grace_s=self._grace_s)


async def _probe(
    connection: GrpcConnection, expect: Identity | None, timeout_s: float
) -> TernError | None:
    """Return None when the peer serves and is who is expected, else what is wrong with it."""
    try:
        reply, metadata = await connection.ask(CHECK, HealthCheckRequest(), timeout_s=timeout_s)
    except TernError as error:
        return error
    if reply.status != HealthCheckResponse.SERVING:
        return Unreachable(f"{connection.address}: the server does not serve at present")
    found = identity_of(texts_of(metadata))
    if not is_expected(found, expect):
        return Unreachable(f"{connection.address}: is {found or 'no broker'}, expected is {expect}")
    connection.identity = found
    return None
