"""RPCs: the seam between services.

Clients and services know only these types. `ternmq_remoting.grpc_network` implements them over
gRPC; a simulation implements them inside one process on virtual time. The messages are those of the
contract.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from google.protobuf.message import Message as ProtoMessage

from ternmq_model.address import Address as Address
from ternmq_model.permission import Need, to_know_topic
from ternmq_remoting.connection_limits import PortLimit
from ternmq_remoting.encoded_message import EncodedMessage

Req = TypeVar("Req", bound=ProtoMessage)
Rep = TypeVar("Rep", bound=ProtoMessage)
ReadT_co = TypeVar("ReadT_co", covariant=True)
WriteT_contra = TypeVar("WriteT_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class UnaryRpc(Generic[Req, Rep]):
    """RPC with one request and one reply.

    Every reply has a field `status`. A caller gets the reply for a code in `answers`, and a
    `RefusedError` for any other code.
    """

    service: str
    name: str
    request: type[Req]
    reply: type[Rep]
    answers: frozenset[int] = frozenset({0})

    @property
    def path(self) -> str:
        """Path of the RPC on the wire."""
        return f"/{self.service}/{self.name}"


@dataclass(frozen=True, slots=True)
class StreamRpc(Generic[Req, Rep]):
    """RPC with many requests and many replies. Each side has its own pace."""

    service: str
    name: str
    request: type[Req]
    reply: type[Rep]

    @property
    def path(self) -> str:
        """Path of the RPC on the wire."""
        return f"/{self.service}/{self.name}"


ANY_MEMBER: Final = -1
"""Broker id in an expected identity for which each member of the name is the expected one."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a server, in the initial metadata of every reply.

    A client that expects a broker compares identities, since an address may belong to another one.
    """

    cluster: str
    name: str
    broker_id: int
    epoch: int

    def __str__(self) -> str:
        """Return the identity for people: the broker's name and id."""
        epoch = f", epoch {self.epoch}" if self.epoch else ""
        return f"broker {self.name} (id {self.broker_id}{epoch}) of cluster {self.cluster}"

    def to_metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata pairs of this identity."""
        return (
            ("ternmq-cluster", self.cluster),
            ("ternmq-broker-name", self.name),
            ("ternmq-broker-id", str(self.broker_id)),
            ("ternmq-epoch", str(self.epoch)),
        )

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> "Identity | None":
        """Return the identity in a peer's metadata; None = it is missing or incomplete."""
        try:
            return cls(
                cluster=metadata["ternmq-cluster"],
                name=metadata["ternmq-broker-name"],
                broker_id=int(metadata["ternmq-broker-id"]),
                epoch=int(metadata["ternmq-epoch"]),
            )
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """Certificate of a caller, which its transport has verified."""

    subject: str
    """Distinguished name, such as `CN=shop,O=Example`: the text of gRPC's `x509_subject`, which has
    the form of RFC 4514, with OpenSSL's names of the attributes."""

    common_name: str
    serial: int


class Permits(Protocol):
    """Permissions of one caller."""

    @property
    def user(self) -> str | None:
        """Name of the caller; None = an unknown identity, or no users exist."""
        ...

    def allows(self, need: Need | None) -> bool:
        """Return whether the caller has a permission; None = the one of every known identity."""
        ...

    def check(self, *alternatives: Need | None) -> None:
        """Return if the caller has one of the permissions.

        Raises:
            RefusedError: NO_PERMISSION. The call had no effect.
        """
        ...


class Everything:
    """Permissions of every caller where no users exist: all."""

    @property
    def user(self) -> str | None:
        """Return None."""
        return None

    def allows(self, need: Need | None) -> bool:
        """Return True."""
        return True

    def check(self, *alternatives: Need | None) -> None:
        """Return."""


EVERYTHING: Final = Everything()


def may_know_topic(permits: Permits, topic: str) -> bool:
    """Return whether a caller may know about a topic."""
    return permits is EVERYTHING or any(map(permits.allows, to_know_topic(topic)))


AUTHORIZATION_KEY: Final = "authorization"
"""Key of the metadata with the token of a caller, after `Bearer `."""


@dataclass(frozen=True, slots=True)
class Call:
    """Caller of a handler."""

    peer: Address
    """Address of the caller's socket."""

    metadata: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Metadata by lower-case key. TernMQ's clients send ternmq-language and ternmq-version; those
    with a token `AUTHORIZATION_KEY`."""

    certificate: PeerCertificate | None = None
    """Certificate of the caller; None = it showed none."""

    permits: Permits = EVERYTHING
    """Permissions of the caller."""


class Readable(Protocol[ReadT_co]):
    """Incoming half of a stream."""

    async def read(self) -> ReadT_co | None:
        """Return the next message; None = the peer has finished.

        Cancelling may lose a message, and on the caller's side ends the stream: cancel a read only
        together with the stream.

        Raises:
            ConnectionLost: The stream broke.
            InvalidParameter: Handler's side: the message cannot be parsed, or has an unknown enum
                number. The stream is over.
            Unreachable: Caller's side: no peer answers, and no message was sent.
            RefusedError: Caller's side: the handler ended the stream with this error.
            ClosedError: This side cancelled the stream or closed the connection.
        """
        ...


class Writable(Protocol[WriteT_contra]):
    """Outgoing half of a stream."""

    async def write(self, message: WriteT_contra | EncodedMessage, /) -> None:
        """Send `message`, waiting while the transport is full.

        Cancelling ends the stream on the caller's side.

        Raises:
            ConnectionLost: The stream broke. The peer may or may not have the earlier messages.
            Unreachable, RefusedError, ClosedError: See `Readable.read`.
        """
        ...


class ServerStream(Readable[ReadT_co], Writable[WriteT_contra], Protocol[ReadT_co, WriteT_contra]):
    """Handler's side of a stream. The stream ends when the handler returns or raises.

    A lost caller and a closing server cancel the handler.
    """


class ClientStream(Readable[ReadT_co], Writable[WriteT_contra], Protocol[ReadT_co, WriteT_contra]):
    """Caller's side of a stream. One task may read while another one writes."""

    async def finish(self) -> None:
        """End the writing side of the stream. Reading goes on."""
        ...

    def cancel(self) -> None:
        """End the stream at once, in both directions. Safe to repeat."""
        ...


UnaryHandler = Callable[[Req, Call], Awaitable[Rep]]
"""Coroutine function that serves one request. Its `RefusedError` becomes the reply's status."""

StreamHandler = Callable[[ServerStream[Req, Rep], Call], Awaitable[None]]
"""Coroutine function that serves one stream. It is cancelled after the loss of the caller."""


class Gate(Protocol):
    """Check of callers before their requests are read."""

    @property
    def is_open(self) -> bool:
        """True = everybody may call, and nothing is checked."""
        ...

    def knows(self, metadata: Mapping[str, str]) -> bool:
        """Return at once whether the caller with this metadata was admitted a short time ago.

        Args:
            metadata: Metadata of the call by lower-case key.
        """
        ...

    async def admit(self, call: Call, path: str) -> None:
        """Admit a caller that is not known yet.

        Args:
            call: Call of the caller.
            path: Path of the RPC.

        Raises:
            RefusedError: The caller has no identity (NO_PERMISSION). Its request was not read.
        """
        ...


@dataclass(frozen=True, slots=True)
class Handler:
    """RPC with the function that serves it. Made by `unary` or `stream`."""

    rpc: UnaryRpc[Any, Any] | StreamRpc[Any, Any]
    function: Callable[..., Awaitable[Any]]


def unary(rpc: UnaryRpc[Req, Rep], function: UnaryHandler[Req, Rep]) -> Handler:
    """Return the handler that serves `rpc` with `function`."""
    return Handler(rpc, function)


def stream(rpc: StreamRpc[Req, Rep], function: StreamHandler[Req, Rep]) -> Handler:
    """Return the handler that serves `rpc` with `function`."""
    return Handler(rpc, function)


class RpcService(Protocol):
    """Service: handlers of some RPCs."""

    def handlers(self) -> Sequence[Handler]:
        """Return the handlers of the service."""
        ...


class Connection(Protocol):
    """Connection to one peer. It reconnects by itself; calls fail while the peer is away."""

    @property
    def address(self) -> Address:
        """Address of the peer, with "*" resolved."""
        ...

    @property
    def identity(self) -> Identity | None:
        """Identity of the peer when the connection was opened; None = unknown."""
        ...

    async def call(self, rpc: UnaryRpc[Req, Rep], request: Req, *, timeout_s: float) -> Rep:
        """Send `request` and return the reply.

        Raises:
            RefusedError: The reply's status is not in `rpc.answers`.
            Unreachable: The peer does not answer and has not got the request.
            RequestTimedOut: There is no answer within `timeout_s`.
            ConnectionLost: The connection broke before the answer.
        """
        ...

    def open(self, rpc: StreamRpc[Req, Rep]) -> ClientStream[Rep, Req]:
        """Open a stream. Its first read or write raises an error of opening."""
        ...

    async def close(self) -> None:
        """End every call and stream. Safe to repeat."""
        ...


class Server(Protocol):
    """Listening server: `async with network.serve(…) as server`."""

    @property
    def address(self) -> Address:
        """Address on which the server listens, with its port."""
        ...


class Listener(Protocol):
    """Port for successive servers. The first server binds it.

    Attributes:
        stays_open: True = between two servers the port stays open and refuses every call as
            unreachable. False = the port is closed at the end of the present server.
    """

    stays_open: bool

    @property
    def counts(self) -> Mapping[PortLimit, int]:
        """Closed connections and refused calls of the port since it was made, by their limit."""
        ...

    def serve(
        self,
        handlers: Sequence[Handler],
        *,
        identity: Identity | None = None,
        gate: Gate | None = None,
    ) -> AbstractAsyncContextManager[Server]:
        """Serve `handlers` while the block runs, as `Network.serve` does. One server at a time.

        Raises:
            CannotListen: The address cannot be bound.
        """
        ...

    async def close(self) -> None:
        """Close the port. Safe to repeat."""
        ...


class Network(Protocol):
    """Factory of connections and servers: the only seam between services."""

    async def connect(
        self,
        addresses: Sequence[Address],
        *,
        expect: Identity | None = None,
        timeout_s: float = 1.0,
    ) -> Connection:
        """Try `addresses` concurrently and return a connection to the first that answers.

        Args:
            addresses: Addresses without "*".
            expect: Identity of the expected peer, whose epoch may be higher. None = any peer.
            timeout_s: Timeout of each address, s.

        Raises:
            Unreachable: No address answers, or no peer is the expected one. The error names each.
        """
        ...

    def serve(
        self,
        handlers: Sequence[Handler],
        listen: Address,
        *,
        identity: Identity | None = None,
        gate: Gate | None = None,
    ) -> AbstractAsyncContextManager[Server]:
        """Serve `handlers` while the block runs. Entering returns when the server listens.

        Leaving refuses new calls, waits a grace period for running ones, and then cancels them.

        Args:
            handlers: Handlers of the services.
            listen: Address of the port.
            identity: Identity of the server, for clients that expect one.
            gate: Check of callers; None = everybody may call.

        Raises:
            CannotListen: The address cannot be bound.
        """
        ...

    def listener(self, listen: Address, *, plain_port: int | None = None) -> Listener:
        """Return a port that its first server binds.

        Args:
            listen: Address of the port.
            plain_port: Second port, without TLS, for the move of a running cluster; None = none.
        """
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
