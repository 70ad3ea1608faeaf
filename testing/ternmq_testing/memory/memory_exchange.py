"""The server's half of the in-memory network: services, and what runs between them and callers."""

import asyncio
import enum
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol

from ternmq_model.address import Address
from ternmq_model.errors import ClosedError, ConnectionLost, RequestTimedOut, TernError, refusal
from ternmq_model.response_code import ResponseCode
from ternmq_remoting.converters import error_of, status_of
from ternmq_remoting.grpc_options import MESSAGE_BYTES_MAX
from ternmq_remoting.rpc import Handler, Identity
from ternmq_remoting.status import refusal_of
from ternmq_runtime.service import OwnedTasks
from ternmq_runtime.timers import Timers
from ternmq_testing.memory.memory_pipe import ErrorMaker, Pipe, soon

LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Loss(enum.Enum):
    """Effect of the network on one unary call."""

    NONE = enum.auto()
    REQUEST = enum.auto()  # never reaches the server; the caller waits until its timeout
    REPLY = enum.auto()  # the handler runs to its end, but the caller waits until its timeout


class HostNetwork(Protocol):
    """The network, as its calls, streams and servers see it."""

    crashes: list[Exception]
    stream_messages_max: int
    timers: Timers

    def draw_latency_s(self) -> float:
        """Return how long the next message takes."""
        ...

    def is_partitioned(self, host: str, other: str) -> bool:
        """Tell whether the two cannot connect."""
        ...

    def loss_of(self, path: str, caller: str, server: str) -> Loss:
        """Return what becomes of a unary call."""
        ...

    def server_at(
        self, client_host: str, address: Address, *, is_member: bool = False
    ) -> "MemoryServer":
        """Return who serves `address` as `client_host` sees it, or raise `Unreachable`."""
        ...

    def free_port(self) -> int:
        """Return a port that this network never gave before."""
        ...

    def track(self, exchange: "Exchange") -> None:
        """Let faults find `exchange` until it is over."""
        ...

    def forget(self, exchange: "Exchange") -> None:
        """Undo `track`. Safe to repeat."""
        ...


class Caller(Protocol):
    """A connection, as an exchange sees it."""

    host: str
    exchanges: "dict[Exchange, None]"


class MemoryServer:
    """One listening service. Owned by the block of `MemoryHost.serve`."""

    tasks: OwnedTasks

    def __init__(
        self,
        network: HostNetwork,
        host: str,
        listen: Address,
        handlers: Sequence[Handler],
        identity: Identity | None,
    ) -> None:
        self.address = listen
        self.host = host
        self.identity = identity
        self.handlers = {handler.rpc.path: handler for handler in handlers}
        self.exchanges: dict[Exchange, None] = {}
        self._network = network

    @property
    def is_loopback(self) -> bool:
        """Only its own host can reach it."""
        return self.address.host in LOOPBACK_HOSTS

    async def drain(self, grace_s: float) -> None:
        """End streams, wait for calls at most `grace_s`, then break them off."""
        running: list[asyncio.Task[None]] = []
        for exchange in self.exchanges:
            if exchange.task is not None:
                running.append(exchange.task)
                if isinstance(exchange, StreamExchange):
                    exchange.task.cancel()
        if running:
            await asyncio.wait(running, timeout=grace_s)
        for exchange in list(self.exchanges):
            exchange.break_off(lambda: ConnectionLost(f"{self.address}: the server has left"))

    def note_crash(self, error: Exception, path: str) -> ErrorMaker:
        """Keep a handler's crash and return what its caller gets."""
        error.add_note(f"in the handler of {path} at {self.address}")
        self._network.crashes.append(error)

        def make() -> TernError:
            remark = f"UNKNOWN {type(error).__name__}"
            refused = refusal(ResponseCode.SYSTEM_ERROR, remark, str(self.address))
            refused.may_have_happened = True
            return refused

        return make

    def told(self, error: TernError) -> ErrorMaker:
        """Return what the caller gets for a handler's `error`."""
        refused = refusal_of(error)
        if refused is not None:
            status = status_of(refused)
            return lambda: error_of(status, str(self.address))
        kind = RequestTimedOut if isinstance(error, RequestTimedOut) else ConnectionLost
        return lambda: kind(f"{self.address}: {error}")


class Exchange:
    """One running call or stream between two hosts."""

    task: asyncio.Task[None] | None = None

    def __init__(self, network: HostNetwork, connection: Caller, server: MemoryServer) -> None:
        self.caller, self.server = connection.host, server.host
        self.hosts = frozenset({connection.host, server.host})
        self._network = network
        self._owners = (connection.exchanges, server.exchanges)
        self._server = server
        network.track(self)
        for owner in self._owners:
            owner[self] = None

    def start(self, coroutine: Coroutine[Any, Any, None], path: str) -> None:
        """Run a handler as a task of the server. Refused, silently, by one that has left."""
        try:
            self.task = self._server.tasks.spawn(coroutine, name=f"serve {path}")
        except ClosedError:
            self.break_off(lambda: ConnectionLost(f"{self._server.address}: the server has left"))

    def break_off(self, error: ErrorMaker) -> None:
        """End it for both sides: the caller gets `error`, the handler is cancelled."""
        self.over()
        self.fail(error)
        if self.task is not None:
            self.task.cancel()

    def over(self) -> None:
        """Let nobody find it any more. Safe to repeat."""
        self._network.forget(self)
        for owner in self._owners:
            owner.pop(self, None)

    def lose(self, sender: str, is_lost: bool) -> None:
        """Let what `sender` says from now on not arrive, or arrive again."""

    def fail(self, error: ErrorMaker) -> None:
        """Tell the caller. Safe to repeat; the first error stays."""
        raise AssertionError(f"no caller to tell {error()}")


class UnaryExchange(Exchange):
    """One running call."""

    def __init__(self, network: HostNetwork, connection: Caller, server: MemoryServer) -> None:
        super().__init__(network, connection, server)
        self.is_settled = False
        self._outcome: asyncio.Future[bytes | ErrorMaker] = (
            asyncio.get_running_loop().create_future()
        )

    def settle(self, outcome: bytes | ErrorMaker, *, latency_s: float) -> None:
        """Give the caller `outcome` after its latency, whatever breaks meanwhile."""
        if not self.is_settled:
            self.is_settled = True
            soon(self._network.timers, latency_s, self._arrive, outcome)

    def fail(self, error: ErrorMaker) -> None:
        """Give the caller `error` at once."""
        self.settle(error, latency_s=0)

    def _arrive(self, outcome: bytes | ErrorMaker) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    async def reply(self) -> bytes:
        """Wait for the outcome; return the reply, or raise the error."""
        outcome = await self._outcome
        if isinstance(outcome, bytes):
            return outcome
        raise outcome()


class StreamExchange(Exchange):
    """One open stream."""

    def __init__(
        self,
        network: HostNetwork,
        connection: Caller,
        server: MemoryServer,
        pipes: tuple[Pipe, Pipe],
    ) -> None:
        super().__init__(network, connection, server)
        self._pipes = pipes

    def lose(self, sender: str, is_lost: bool) -> None:
        """Let what `sender` says stand still, or go on."""
        up, down = self._pipes
        (up if sender == self.caller else down).stall(is_lost)

    def fail(self, error: ErrorMaker) -> None:
        """Break both directions off."""
        for pipe in self._pipes:
            pipe.break_off(error)


def check_size(payload: bytes, address: Address) -> None:
    """Refuse what gRPC would refuse to carry.

    Raises:
        MessageRefused: `payload` is above the cap of both sides.
    """
    if len(payload) > MESSAGE_BYTES_MAX:
        remark = f"a message of {len(payload)} bytes is larger than max ({MESSAGE_BYTES_MAX})"
        raise refusal(ResponseCode.MESSAGE_ILLEGAL, remark, str(address))
