"""Network of real processes: gRPC, with or without TLS."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import ClassVar, Final

from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from ternmq_model.address import is_loopback
from ternmq_model.errors import ConfigError, TernError, Unreachable
from ternmq_remoting.connection import GrpcConnection
from ternmq_remoting.grpc_tls import ChannelCertificates
from ternmq_remoting.health import CHECK
from ternmq_remoting.listener import GrpcListener
from ternmq_remoting.network_config import NetworkConfig
from ternmq_remoting.peer import is_expected, texts_of
from ternmq_remoting.rpc import Address, Connection, Gate, Handler, Identity, Server
from ternmq_remoting.tls import HIDDEN, Credentials, TlsConfig
from ternmq_runtime.fork_safety import check_process

_KEPT_BUFFER_BYTES: Final = 8 << 20
"""Size of buffers that the allocator reuses: more than a request, which is in several at a time."""


class GrpcNetwork:
    """Factory of gRPC connections and servers, in the process that creates the first one.

    gRPC has one state for the whole process. A child that is forked later lacks its threads: every
    call of the child would wait for ever.
    """

    _process_id: ClassVar[int] = 0
    """Process in which gRPC began; 0 = none."""

    def __init__(
        self,
        *,
        grace_s: float = 5.0,
        config: NetworkConfig | None = None,
        tls: TlsConfig | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Create a network.

        Args:
            grace_s: Time for running unary calls of a closing server, s. Streams end at once.
            config: Settings of servers' ports; None = the defaults.
            tls: TLS of servers; None = none.
            credentials: Credentials of connections; None = no TLS.
        """
        self._grace_s = grace_s
        self._config = config
        self._tls = tls
        self._credentials = credentials or Credentials()
        self._certificates = ChannelCertificates(self._credentials)

    @classmethod
    def check_process(cls) -> None:
        """Check that this process can use gRPC.

        Raises:
            ClosedError: This process was forked from one in which gRPC had begun.
        """
        check_process(cls._process_id)

    @classmethod
    def begin(cls) -> None:
        """Record this process as the one in which gRPC begins, at the first call."""
        cls.check_process()
        if not GrpcNetwork._process_id:
            # glibc maps each buffer above a threshold of 128 KiB anew, page by page, and raises the
            # threshold to the largest such buffer that was freed. This one is never touched.
            bytes(_KEPT_BUFFER_BYTES)
        GrpcNetwork._process_id = os.getpid()

    async def connect(
        self,
        addresses: Sequence[Address],
        *,
        expect: Identity | None = None,
        timeout_s: float = 1.0,
    ) -> Connection:
        """Try `addresses` concurrently and return a connection to the first expected peer.

        With TLS the certificate of an expected peer has its broker name, and that of any other peer
        the host of its address. Cancelling closes all attempts.

        Raises:
            Unreachable: No address answers, or no peer is the expected one. The error names each.
            ClosedError: This process was forked from one in which gRPC had begun.
            ConfigError: The token would leave this machine without TLS.
        """
        self.begin()
        token = self._credentials.token
        if token and self._credentials.ca is None:
            _check_local(addresses)
        credentials = self._certificates.credentials()
        tls_name = expect.name if expect is not None else ""
        connections = [
            GrpcConnection(address, credentials, tls_name=tls_name, token=token)
            for address in addresses
        ]
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
        self,
        handlers: Sequence[Handler],
        listen: Address,
        *,
        identity: Identity | None = None,
        gate: Gate | None = None,
    ) -> AbstractAsyncContextManager[Server]:
        """Serve `handlers` on `listen`, with health.

        Raises:
            ClosedError: See `connect`.
        """
        listener = self.listener(listen)
        listener.stays_open = False
        return listener.serve(handlers, identity=identity, gate=gate)

    def listener(self, listen: Address, *, plain_port: int | None = None) -> GrpcListener:
        """Return a port that stays open from one server to the next.

        Raises:
            ClosedError: See `connect`.
        """
        self.begin()
        return GrpcListener(
            listen,
            grace_s=self._grace_s,
            config=self._config,
            tls=self._tls,
            plain_port=plain_port,
        )


def _check_local(addresses: Sequence[Address]) -> None:
    """Refuse to send a token to other machines without TLS."""
    for address in addresses:
        if not is_loopback(address.host):
            rule = f"is sent to {address} over TLS only: set credentials.ca"
            raise ConfigError("credentials.token", HIDDEN, rule)


async def _probe(
    connection: GrpcConnection, expect: Identity | None, timeout_s: float
) -> TernError | None:
    """Return the reason against a peer; None = the peer serves and is the expected one."""
    try:
        reply, metadata = await connection.ask(CHECK, HealthCheckRequest(), timeout_s=timeout_s)
    except TernError as error:
        return error
    if reply.status != HealthCheckResponse.SERVING:
        return Unreachable(f"{connection.address}: the server does not serve at present")
    found = Identity.from_metadata(texts_of(metadata))
    if not is_expected(found, expect):
        return Unreachable(f"{connection.address}: is {found or 'no broker'}, expected is {expect}")
    connection.identity = found
    return None
