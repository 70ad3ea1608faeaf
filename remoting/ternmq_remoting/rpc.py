"""The seam between services: what an RPC is, and what calls and serves it.

Clients and services know only these types. `ternmq_remoting.grpc_network` carries them over gRPC;
a simulation carries them inside one process on virtual time. What crosses the seam are the
contract's own messages.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.message import Message as ProtoMessage

from ternmq_model.address import Address as Address

Req = TypeVar("Req", bound=ProtoMessage)
Rep = TypeVar("Rep", bound=ProtoMessage)
ReadT_co = TypeVar("ReadT_co", covariant=True)
WriteT_contra = TypeVar("WriteT_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class UnaryRpc(Generic[Req, Rep]):
    """One request, one reply.

    Every reply has a field `status`. A caller gets a `RefusedError` for a code that is not in
    `answers`, and the reply for one that is.
    """

    service: str
    name: str
    request: type[Req]
    reply: type[Rep]
    answers: frozenset[int] = frozenset({0})

    @property
    def path(self) -> str:
        """The RPC's path on the wire."""
        return f"/{self.service}/{self.name}"


@dataclass(frozen=True, slots=True)
class StreamRpc(Generic[Req, Rep]):
    """Many requests and many replies, each side at its own pace."""

    service: str
    name: str
    request: type[Req]
    reply: type[Rep]

    @property
    def path(self) -> str:
        """The RPC's path on the wire."""
        return f"/{self.service}/{self.name}"


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of the server: sent with every reply's initial metadata.

    A client that expects a broker compares; it never trusts an address alone.
    """

    cluster: str
    name: str
    broker_id: int
    epoch: int

    def __str__(self) -> str:
        """Return it as people read it, who know brokers by their names and ids."""
        epoch = f", epoch {self.epoch}" if self.epoch else ""
        return f"broker {self.name} (id {self.broker_id}{epoch}) of cluster {self.cluster}"

    def to_metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata pairs that tell this identity."""
        return (
            ("ternmq-cluster", self.cluster),
            ("ternmq-broker-name", self.name),
            ("ternmq-broker-id", str(self.broker_id)),
            ("ternmq-epoch", str(self.epoch)),
        )


@dataclass(frozen=True, slots=True)
class Call:
    """A handler's knowledge of its caller."""

    peer: Address
    """The address of the caller's socket."""

    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    """Lower-case keys; has ternmq-language and ternmq-version from our own clients."""


class Readable(Protocol[ReadT_co]):
    """The incoming half of a stream."""

    async def read(self) -> ReadT_co | None:
        """Return the next message, or None when the peer has finished.

        Cancelling may lose a message, and on the caller's side ends the stream: give up reading
        only with the stream.

        Raises:
            ConnectionLost: The stream broke.
            InvalidParameter: The message cannot be parsed, or an enum in it has an unknown number.
                On the handler's side, where it ends the stream.
            Unreachable: Nobody answers; nothing of the stream was sent. On the caller's side.
            RefusedError: The handler ended the stream so. On the caller's side.
            ClosedError: This side cancelled the stream or closed the connection.
        """
        ...


class Writable(Protocol[WriteT_contra]):
    """The outgoing half of a stream."""

    async def write(self, message: WriteT_contra, /) -> None:
        """Send `message`, waiting while the transport is full.

        Cancelling ends the stream on the caller's side.

        Raises:
            ConnectionLost: The stream broke; whether the peer got earlier messages is unknown.
            Unreachable, RefusedError, ClosedError: As for reading.
        """
        ...


class ServerStream(Readable[ReadT_co], Writable[WriteT_contra], Protocol[ReadT_co, WriteT_contra]):
    """A handler's side of a stream. The stream ends when the handler returns or raises.

    A caller that goes away, and a server that closes, cancel the handler.
    """


class ClientStream(Readable[ReadT_co], Writable[WriteT_contra], Protocol[ReadT_co, WriteT_contra]):
    """A caller's side of a stream. One task may read while another writes."""

    async def finish(self) -> None:
        """Tell the peer that no more will be written; reading goes on."""
        ...

    def cancel(self) -> None:
        """End the stream at once, in both directions. Safe to repeat."""
        ...


UnaryHandler = Callable[[Req, Call], Awaitable[Rep]]
"""Serves one request. A `RefusedError` it raises becomes the reply's status."""

StreamHandler = Callable[[ServerStream[Req, Rep], Call], Awaitable[None]]
"""Serves one stream; is cancelled when the caller goes away."""


@dataclass(frozen=True, slots=True)
class Handler:
    """One RPC with the function that serves it. Make it with `unary` or `stream`."""

    rpc: UnaryRpc[Any, Any] | StreamRpc[Any, Any]
    function: Callable[..., Awaitable[Any]]


def unary(rpc: UnaryRpc[Req, Rep], function: UnaryHandler[Req, Rep]) -> Handler:
    """Return the handler that serves `rpc` with `function`."""
    return Handler(rpc, function)


def stream(rpc: StreamRpc[Req, Rep], function: StreamHandler[Req, Rep]) -> Handler:
    """Return the handler that serves `rpc` with `function`."""
    return Handler(rpc, function)


class RpcService(Protocol):
    """A service: handlers of some RPCs."""

    def handlers(self) -> Sequence[Handler]:
        """Return what to serve."""
        ...


class Connection(Protocol):
    """A way to one peer. It reconnects by itself; a call fails while the peer is away."""

    @property
    def address(self) -> Address:
        """The peer's address, "*" resolved."""
        ...

    @property
    def identity(self) -> Identity | None:
        """The peer's identity, as it told when it was connected to; None = it did not."""
        ...

    async def call(self, rpc: UnaryRpc[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        """Send `request` and return the reply.

        Raises:
            RefusedError: The reply's status is not one of `rpc.answers`.
            Unreachable: Nobody answers; nothing was done.
            RequestTimedOut: No answer within `timeout_s`.
            ConnectionLost: The connection broke before the answer.
        """
        ...

    def open(self, rpc: StreamRpc[Req, Rep]) -> ClientStream[Rep, Req]:
        """Begin a stream. Trouble shows at its first read or write."""
        ...

    async def close(self) -> None:
        """End every call and stream. Safe to repeat."""
        ...


class Server(Protocol):
    """A listening service; `async with network.serve(…) as server`."""

    @property
    def address(self) -> Address:
        """The address it really listens on, the port known."""
        ...


class Listener(Protocol):
    """A port behind which one server follows the other. The first one binds it.

    Attributes:
        stays_open: Between two servers the port stays open, and refuses every call as a peer that
            nobody reaches. Else it is closed with the server that ends next.
    """

    stays_open: bool

    def serve(
        self, handlers: Sequence[Handler], *, identity: Identity | None = None
    ) -> AbstractAsyncContextManager[Server]:
        """Serve `handlers` while the block runs, as `Network.serve` does. One at a time.

        Raises:
            CannotListen: The address cannot be bound.
        """
        ...

    async def close(self) -> None:
        """Close the port, if it is open. Safe to repeat."""
        ...


class Network(Protocol):
    """Makes connections and servers. The one seam between services."""

    async def connect(
        self,
        addresses: Sequence[Address],
        *,
        expect: Identity | None = None,
        timeout_s: float = 1.0,
    ) -> Connection:
        """Try `addresses` side by side and return a connection to the first that answers.

        Args:
            addresses: Without "*".
            expect: Take only a peer that says it is this one; its epoch may be higher. None =
                anyone.
            timeout_s: For each address.

        Raises:
            Unreachable: None answered, or none is who was expected; the message names each.
        """
        ...

    def serve(
        self, handlers: Sequence[Handler], listen: Address, *, identity: Identity | None = None
    ) -> AbstractAsyncContextManager[Server]:
        """Serve `handlers` while the block runs; entering returns when it listens.

        Leaving refuses new calls, lets running ones end for a grace period, then cancels them.

        Raises:
            CannotListen: The address cannot be bound.
        """
        ...

    def listener(self, listen: Address) -> Listener:
        """Return a port that is bound when something is first served behind it."""
        ...


@asynccontextmanager
async def connected(
    network: Network,
    addresses: Sequence[Address],
    *,
    expect: Identity | None = None,
    timeout_s: float = 1.0,
) -> AsyncGenerator[Connection]:
    """Connect as `Network.connect` does, and close the connection at the end of the block."""
    connection = await network.connect(addresses, expect=expect, timeout_s=timeout_s)
    try:
        yield connection
    finally:
        await connection.close()
