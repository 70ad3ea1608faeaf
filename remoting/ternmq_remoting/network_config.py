"""Settings of a service's port. Pure."""

from dataclasses import dataclass

from ternmq_model.arguments import check_range


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkConfig:
    """Settings of the port of a service, whatever the service."""

    insecure: bool = False
    """Accept a port beyond this machine without TLS and users. The next minor version refuses to
    listen on such a port without this setting; this one warns."""

    reflection: bool = False
    """gRPC reflection (`grpc.reflection`), by which tools such as grpcurl read the contracts from
    the service. Off: callers need the `.proto` files."""

    handshake_timeout_s: float = 10.0
    """Time in which a new connection must finish the handshakes of TLS and HTTP/2, s; 1 to 120."""

    first_message_timeout_s: float = 10.0
    """Time in which a new connection must make its first call, s; 1 to 3600. A connection that
    sends at least 1 KiB in each such period, such as a slow upload, stays open."""

    connections_by_address_max: int = 1000
    """Most connections from one IP address, those from this machine included; 1 to 1,000,000. The
    newest ones above it are closed."""

    anonymous_bytes_max: int = 64 << 10
    """Most bytes of a connection on which calls were refused for lack of an identity, and none was
    served; 4 KiB to 64 MiB."""

    streams_max: int = 4096
    """Most calls and streams of one connection at a time; 16 to 1,000,000. Held pulls count."""

    def __post_init__(self) -> None:
        for setting, value, least, most in (
            ("handshake_timeout_s", self.handshake_timeout_s, 1, 120),
            ("first_message_timeout_s", self.first_message_timeout_s, 1, 3600),
            ("connections_by_address_max", self.connections_by_address_max, 1, 1_000_000),
            ("anonymous_bytes_max", self.anonymous_bytes_max, 4 << 10, 64 << 20),
            ("streams_max", self.streams_max, 16, 1_000_000),
        ):
            check_range(f"network.{setting}", value, least, most)
