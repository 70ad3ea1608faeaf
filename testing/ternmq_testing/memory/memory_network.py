"""The network of a simulation: `ternmq_remoting.rpc.Network` inside one process, on any loop.

    async with MemoryNetwork(random) as network:
        async with network.host("a").serve(handlers, Address("a", 0)) as server:
            connection = await network.host("b").connect([server.address])

Every host has a name that others dial. Loopback names mean the host itself; what listens on
"0.0.0.0" is reached by the host's name. Messages are serialised and parsed, so nothing is shared by
reference. Errors are those of the gRPC network: a contract test runs against both.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from ternmq_model.address import Address
from ternmq_model.errors import CannotListen, ClosedError, ConnectionLost, Unreachable
from ternmq_remoting.connection_limits import PortLimit
from ternmq_remoting.peer import is_expected
from ternmq_remoting.rpc import Call, Connection, Gate, Handler, Identity, Server
from ternmq_runtime.service import OwnedTasks
from ternmq_runtime.timers import LOOP_TIMERS, Timers
from ternmq_testing.memory.memory_connection import MemoryConnection
from ternmq_testing.memory.memory_exchange import LOOPBACK_HOSTS, Exchange, MemoryServer
from ternmq_testing.memory.memory_exchange import Loss as Loss

_ANY: Final = frozenset({"0.0.0.0", "::"})
_FIRST_FREE_PORT: Final = 50_000

KEEPALIVE_S: Final = 15.0
"""After so long a stream ends whose other side is not heard any more."""


def no_loss(_path: str) -> Loss:
    """Lose nothing."""
    return Loss.NONE


def random_loss(random: Random, *, request: float, reply: float) -> Callable[[str], Loss]:
    """Return a loss that strikes requests and replies with these probabilities."""

    def lose(_path: str) -> Loss:
        drawn = random.random()
        if drawn < request:
            return Loss.REQUEST
        return Loss.REPLY if drawn < request + reply else Loss.NONE

    return lose


class MemoryNetwork:
    """Every host, server and connection of one simulated network. Used by one loop.

    On its own it is the `Network` of the host "localhost".

    Args:
        random: For latencies.
        latency_s: Draws the delay of one message, in seconds. None = no delay.
        stream_messages_max: Unread messages of one direction of a stream; a further write waits.
        grace_s: Time for which a server that leaves waits for its calls, s. Streams end at once.
        timers: Timers of latencies and timeouts.
        on_message: Called for each message that is sent.

    Attributes:
        elsewhere: Address that a host reaches under every address of no known host, by the host.
        loss: Asked for every unary call with the RPC's path. A test may replace it at any time.
        crashes: Errors of handlers other than a `TernError`, in order. The block raises those that
            are left at its end, in an `ExceptionGroup`.
    """

    def __init__(
        self,
        random: Random,
        *,
        latency_s: Callable[[Random], float] | None = None,
        stream_messages_max: int = 16,
        grace_s: float = 1.0,
        timers: Timers = LOOP_TIMERS,
        on_message: Callable[[], None] = lambda: None,
    ) -> None:
        self.elsewhere: dict[str, Address] = {}
        self.loss: Callable[[str], Loss] = no_loss
        self.crashes: list[Exception] = []
        self.stream_messages_max = stream_messages_max
        self.grace_s = grace_s
        self.timers = timers
        self._on_message = on_message
        self._random = random
        self._latency_s = latency_s
        self._hosts: dict[str, MemoryHost] = {}
        self._names: set[str] = set()
        self._servers: dict[tuple[str, int], MemoryServer] = {}
        self._exchanges: dict[Exchange, None] = {}  # a dict keeps order: runs must repeat
        self._partitions: set[frozenset[str]] = set()
        self._unheard: dict[tuple[str, str], None] = {}
        self._next_port = _FIRST_FREE_PORT

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for exchange in list(self._exchanges):
            exchange.break_off(lambda: ClosedError("the network is closed"))
        if exc is not None:
            return
        if self._servers:
            raise RuntimeError(f"still serving: {sorted(map(str, self._servers))}")
        if self.crashes:
            raise ExceptionGroup("handlers crashed", self.crashes)

    def host(self, name: str) -> "MemoryHost":
        """Return the network as the host `name` sees it. The same name is the same host."""
        self._names.add(name)
        return self._hosts.setdefault(name, MemoryHost(self, name))

    async def connect(
        self,
        addresses: Sequence[Address],
        *,
        expect: Identity | None = None,
        timeout_s: float = 1.0,
    ) -> Connection:
        """Connect from the host "localhost"."""
        return await self.host("localhost").connect(addresses, expect=expect, timeout_s=timeout_s)

    def serve(
        self,
        handlers: Sequence[Handler],
        listen: Address,
        *,
        identity: Identity | None = None,
        gate: Gate | None = None,
    ) -> AbstractAsyncContextManager[Server]:
        """Serve on the host "localhost"."""
        return self.host("localhost").serve(handlers, listen, identity=identity, gate=gate)

    def listener(self, listen: Address, *, plain_port: int | None = None) -> "MemoryListener":
        """Return a port on the host "localhost"."""
        return self.host("localhost").listener(listen, plain_port=plain_port)

    def cut(self, host: str, other: str | None = None) -> None:
        """Break all calls and streams of `host` (with `other`) now; new ones succeed."""
        for exchange in list(self._exchanges):
            if host in exchange.hosts and (other is None or other in exchange.hosts):
                exchange.break_off(lambda: ConnectionLost(f"the connection to {host} was cut"))

    def kill(self, host: str) -> None:
        """Let `host` go as if its power was switched off: it serves, hears and says nothing more.

        Who is given the name afterwards is another machine. What still runs on the old one finds
        every connection closed and reaches nobody.
        """
        dead = self._hosts.pop(host, None)
        if dead is not None:
            dead.die()
        for key in [key for key in self._servers if key[0] == host]:
            del self._servers[key]
        self.cut(host)

    def partition(self, host: str, other: str, *, one_way: bool = False) -> None:
        """Cut `host` from `other` until `heal`.

        Running calls and streams break, and new ones fail. When it is cut `one_way`, only what
        `host` says to `other` is lost: nobody connects any more, calls over connections that are
        there lose their request or their reply, and streams stand still until the network heals or
        their keepalive ends them.
        """
        if not one_way:
            self._partitions.add(frozenset({host, other}))
            self.cut(host, other)
            return
        self._unheard[host, other] = None
        for exchange in list(self._exchanges):
            if exchange.hosts == frozenset({host, other}):
                exchange.lose(host, is_lost=True)
                self.timers.call_later(KEEPALIVE_S, self._give_up, exchange, host, other)

    def _give_up(self, exchange: Exchange, host: str, other: str) -> None:
        if exchange in self._exchanges and (host, other) in self._unheard:
            exchange.break_off(lambda: ConnectionLost(f"{host} is not heard any more"))

    def heal(self) -> None:
        """End every partition."""
        self._partitions.clear()
        unheard, self._unheard = self._unheard, {}
        for exchange in list(self._exchanges):
            for host, other in unheard:
                if exchange.hosts == frozenset({host, other}):
                    exchange.lose(host, is_lost=False)

    def loss_of(self, path: str, caller: str, server: str) -> Loss:
        """Return what becomes of a unary call."""
        if (caller, server) in self._unheard:
            return Loss.REQUEST
        return Loss.REPLY if (server, caller) in self._unheard else self.loss(path)

    def draw_latency_s(self) -> float:
        """Return how long the next message takes."""
        self._on_message()
        return 0.0 if self._latency_s is None else self._latency_s(self._random)

    def is_partitioned(self, host: str, other: str) -> bool:
        """Tell whether the two cannot connect."""
        pairs = {(host, other), (other, host)}
        return frozenset({host, other}) in self._partitions or not pairs.isdisjoint(self._unheard)

    def server_at(
        self, client_host: str, address: Address, *, is_member: bool = False
    ) -> MemoryServer:
        """Return who serves `address` as `client_host` sees it.

        `is_member` = the address is one of a known member: it leads nowhere else.

        Raises:
            Unreachable: Nobody does, or a partition lies between.
        """
        host = client_host if address.host in LOOPBACK_HOSTS | _ANY else address.host
        is_unknown = host == client_host or host not in self._names
        if client_host in self.elsewhere and is_unknown and not is_member:
            host, address = self.elsewhere[client_host].host, self.elsewhere[client_host]
        server = self._servers.get((host, address.port))
        if frozenset({client_host, host}) in self._partitions:
            raise Unreachable(f"{address}: no route to host")
        if server is None or (server.is_loopback and host != client_host):
            raise Unreachable(f"{address}: connection refused")
        return server

    def bind(self, server: MemoryServer) -> None:
        """Let `server` be found, under a free port when its own is 0.

        Raises:
            CannotListen: The address is another host's, or taken.
        """
        listen = server.address
        if listen.host not in LOOPBACK_HOSTS | _ANY | {server.host}:
            raise CannotListen(f"{listen}: cannot be bound: not an address of host {server.host}")
        if listen.port == 0:
            server.address = Address(listen.host, self.free_port())
        elif (server.host, listen.port) in self._servers:
            raise CannotListen(f"{listen}: cannot be bound: already in use")
        self._servers[server.host, server.address.port] = server

    def release(self, server: MemoryServer) -> None:
        """Let `server` be found no more."""
        key = (server.host, server.address.port)
        if self._servers.get(key) is server:
            del self._servers[key]

    def free_port(self) -> int:
        """Return a port that this network never gave before."""
        self._next_port += 1
        return self._next_port

    def track(self, exchange: Exchange) -> None:
        """Let faults find `exchange` until it is over."""
        self._exchanges[exchange] = None

    def forget(self, exchange: Exchange) -> None:
        """Undo `track`. Safe to repeat."""
        self._exchanges.pop(exchange, None)


class MemoryHost:
    """The network as one host sees it: a `Network`.

    Attributes:
        authorization: Authorization of the calls of this host; empty = they have none.
    """

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self.name = name
        self.authorization = ""
        self._network = network
        self._connections: list[MemoryConnection] = []
        self._is_dead = False

    def is_dead(self) -> bool:
        """Tell whether it was killed."""
        return self._is_dead

    def die(self) -> None:
        """Close every connection for good, and reach nobody any more."""
        self._is_dead = True
        for connection in self._connections:
            connection.shut()

    async def connect(
        self,
        addresses: Sequence[Address],
        *,
        expect: Identity | None = None,
        timeout_s: float = 1.0,
    ) -> Connection:
        """Return a connection to the first of `addresses` that answers as expected."""
        if self.is_dead():
            await self._network.timers.sleep(timeout_s)
            raise Unreachable(f"host {self.name} is dead")
        refused: list[str] = []
        answers: list[tuple[float, int]] = []
        identities: dict[int, Identity | None] = {}
        unanswered = False
        for index, address in enumerate(addresses):
            round_trip_s = self._network.draw_latency_s() + self._network.draw_latency_s()
            is_parted = self._network.is_partitioned(self.name, address.host)
            try:
                is_member = expect is not None
                server = self._network.server_at(self.name, address, is_member=is_member)
                found = server.identity
            except Unreachable as error:
                unanswered = unanswered or is_parted
                refused.append(str(error))
                continue
            if is_parted or round_trip_s > timeout_s:
                unanswered = True
                refused.append(f"{address}: no answer within {timeout_s} s")
            elif not is_expected(found, expect):
                refused.append(f"{address}: is {found}, not {expect}")
            else:
                answers.append((round_trip_s, index))
                identities[index] = found
        if not answers:
            await self._network.timers.sleep(timeout_s if unanswered else 0)
            raise Unreachable("; ".join(refused) or "no address to connect to")
        round_trip_s, index = min(answers)
        await self._network.timers.sleep(round_trip_s)
        connection = MemoryConnection(
            self._network,
            self.name,
            addresses[index],
            identities[index],
            authorization=self.authorization,
        )
        if self.is_dead():
            connection.shut()
        self._connections = [*filter(MemoryConnection.is_open, self._connections), connection]
        return connection

    @asynccontextmanager
    async def serve(
        self,
        handlers: Sequence[Handler],
        listen: Address,
        *,
        identity: Identity | None = None,
        gate: Gate | None = None,
    ) -> AsyncGenerator[MemoryServer, None]:
        """Serve `handlers` on this host while the block runs."""
        if gate is not None:
            handlers = [_behind(gate, each) for each in handlers]
        server = MemoryServer(self._network, self.name, listen, handlers, identity)
        async with OwnedTasks() as tasks:
            server.tasks = tasks
            self._network.bind(server)
            try:
                yield server
            finally:
                self._network.release(server)
                await server.drain(self._network.grace_s)

    def listener(self, listen: Address, *, plain_port: int | None = None) -> "MemoryListener":
        """Return a port on this host. No port here has TLS, so there is no second one."""
        return MemoryListener(self, listen)


class MemoryListener:
    """A port that knows no difference between being closed and having no server behind it."""

    def __init__(self, host: MemoryHost, listen: Address) -> None:
        self.stays_open = True
        self._host = host
        self._address = listen

    @property
    def counts(self) -> Mapping[PortLimit, int]:
        """Closed connections and refused calls: none, for ports in memory have no limits."""
        return {}

    @asynccontextmanager
    async def serve(
        self,
        handlers: Sequence[Handler],
        *,
        identity: Identity | None = None,
        gate: Gate | None = None,
    ) -> AsyncGenerator[MemoryServer, None]:
        """Serve `handlers` while the block runs, on the port of the first time."""
        serving = self._host.serve(handlers, self._address, identity=identity, gate=gate)
        async with serving as server:
            self._address = server.address
            yield server

    async def close(self) -> None:
        """Do nothing: nobody serves any more."""


def _behind(gate: Gate, handler: Handler) -> Handler:
    """Return `handler` for callers whom `gate` admits."""

    async def serve(request: Any, call: Call) -> Any:
        if not gate.is_open and not gate.knows(call.metadata):
            await gate.admit(call, handler.rpc.path)
        return await handler.function(request, call)

    return replace(handler, function=serve)
