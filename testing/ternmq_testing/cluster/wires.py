"""Networks that carry a cluster: one in memory, and gRPC on the loopback of this machine."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Final, Protocol

from ternmq_model.errors import UsageError
from ternmq_remoting.rpc import (
    Address,
    ClientStream,
    Connection,
    Gate,
    Handler,
    Identity,
    Listener,
    Network,
    Rep,
    Req,
    Server,
    StreamRpc,
    UnaryRpc,
)
from ternmq_testing.memory.memory_network import MemoryNetwork
from ternmq_testing.memory.other_loop import OtherLoopNetwork
from ternmq_testing.time.cluster_time import ClusterTime

CLIENTS: Final = "clients"
"""Host of all clients."""

NAMESERVER: Final = "nameserver"
"""Host of the NameServer."""

_LINGER_S: Final = 0.02
"""Real time without a message after which none travels through gRPC any more."""


class Wires(Protocol):
    """Networks of the hosts of one cluster.

    Attributes:
        has_ports: True = a service holds a port of the machine until it has ended.
    """

    has_ports: bool

    def listen_address(self, host: str, port: int) -> Address:
        """Return the address on which a service of `host` listens at first."""
        ...

    def of_service(self, host: str) -> Network:
        """Return the network of a service."""
        ...

    def of_client(self, nameserver: Address) -> Network:
        """Return the network of a client on the running loop. Any NameServer address leads there.

        Brokers are told by the identity that is expected of them.
        """
        ...

    def kill(self, host: str) -> None:
        """Break every connection of a host that is gone."""
        ...

    def partition(self, one: str, other: str) -> None:
        """Cut two hosts off from each other.

        Raises:
            UsageError: The network cannot be parted.
        """
        ...

    def heal(self) -> None:
        """End every partition."""
        ...


class MemoryWires:
    """A network in memory, owned by the running loop.

    Args:
        network: Network of all hosts.
    """

    has_ports = False

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self._loop = asyncio.get_running_loop()

    def listen_address(self, host: str, port: int) -> Address:
        """Return an address that only this network has."""
        return Address("0.0.0.0", port)

    def of_service(self, host: str) -> Network:
        """Return the network as `host` sees it."""
        return self._network.host(host)

    def of_client(self, nameserver: Address) -> Network:
        """Return the network of the host of all clients."""
        self._network.elsewhere[CLIENTS] = nameserver
        host = self._network.host(CLIENTS)
        is_here = asyncio.get_running_loop() is self._loop
        return host if is_here else OtherLoopNetwork(host, self._loop)

    def kill(self, host: str) -> None:
        """Break every connection of `host`."""
        self._network.kill(host)

    def partition(self, one: str, other: str) -> None:
        """Cut two hosts off from each other."""
        self._network.partition(one, other)

    def heal(self) -> None:
        """End every partition."""
        self._network.heal()


class GrpcWires:
    """gRPC on 127.0.0.1, on free ports."""

    has_ports = True

    def __init__(self) -> None:
        # Without this network nobody waits for the import of gRPC.
        from ternmq_remoting.grpc_network import GrpcNetwork

        self._network: Network = GrpcNetwork(grace_s=0.1)

    def listen_address(self, host: str, port: int) -> Address:
        """Return an address with any free port."""
        return Address("127.0.0.1", 0)

    def of_service(self, host: str) -> Network:
        """Return gRPC."""
        return self._network

    def of_client(self, nameserver: Address) -> Network:
        """Return gRPC, on which all NameServers are that of the cluster."""
        return RedirectedNetwork(self._network, nameserver)

    def kill(self, host: str) -> None:
        """Do nothing: the server of the host ends its connections."""

    def partition(self, one: str, other: str) -> None:
        """Refuse: gRPC's connections cannot be parted here."""
        raise UsageError("a cluster on gRPC cannot be parted: use network='memory'")

    def heal(self) -> None:
        """Do nothing: there are no partitions."""


@asynccontextmanager
async def wires_of(network: str, time: ClusterTime, random: Random) -> AsyncGenerator[Wires]:
    """Yield the wires of a cluster, `memory` or `grpc`, while the block runs."""
    if network == "grpc":
        time.linger_s = _LINGER_S
        yield GrpcWires()
    else:
        memory = MemoryNetwork(random, timers=time.agenda(), on_message=time.note_activity)
        async with memory:
            yield MemoryWires(memory)


class RedirectedNetwork:
    """A network whose addresses without an expected identity are those of one NameServer.

    A broker at the host of such an address, where it may register, is at the NameServer's.
    """

    def __init__(self, network: Network, nameserver: Address) -> None:
        self._network, self._nameserver = network, nameserver
        self._hosts: set[str] = set()

    async def connect(
        self,
        addresses: Sequence[Address],
        *,
        expect: Identity | None = None,
        timeout_s: float = 1.0,
    ) -> Connection:
        """Connect to the NameServer, or to the broker that is expected."""
        if expect is not None:
            reached = [
                Address(self._nameserver.host if each.host in self._hosts else each.host, each.port)
                for each in addresses
            ]
            return await self._network.connect(reached, expect=expect, timeout_s=timeout_s)
        self._hosts.update(each.host for each in addresses)
        connection = await self._network.connect([self._nameserver], timeout_s=timeout_s)
        return _Renamed(connection, addresses[0])

    def serve(
        self,
        handlers: Sequence[Handler],
        listen: Address,
        *,
        identity: Identity | None = None,
        gate: Gate | None = None,
    ) -> AbstractAsyncContextManager[Server]:
        """Serve `handlers` as the network does."""
        return self._network.serve(handlers, listen, identity=identity, gate=gate)

    def listener(self, listen: Address, *, plain_port: int | None = None) -> Listener:
        """Return a port of the network."""
        return self._network.listener(listen, plain_port=plain_port)


class _Renamed:
    """A connection under the address that the client has dialled."""

    def __init__(self, connection: Connection, address: Address) -> None:
        self._connection, self.address = connection, address

    @property
    def identity(self) -> Identity | None:
        return self._connection.identity

    async def call(self, rpc: UnaryRpc[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        return await self._connection.call(rpc, request, timeout_s=timeout_s)

    def open(self, rpc: StreamRpc[Req, Rep]) -> ClientStream[Rep, Req]:
        return self._connection.open(rpc)

    async def close(self) -> None:
        await self._connection.close()
