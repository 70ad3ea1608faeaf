"""Settings of a service's port. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkConfig:
    """Settings of the port of a service, whatever the service."""

    insecure: bool = False
    """Accept a port beyond this machine without TLS and users. The next minor version refuses to
    listen on such a port without this setting; this one warns."""

    reflection: bool = False
    """gRPC reflection (`grpc.reflection`), by which tools such as grpcurl read the contracts from
    the service. Off: callers need the `.proto` files."""
