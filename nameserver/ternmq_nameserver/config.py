"""The NameServer's settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ternmq_model.address import PORT_MAX, Address, listen_address, parse_addresses
from ternmq_model.arguments import check_range
from ternmq_nameserver.memory_estimate import BYTES_MAX
from ternmq_nameserver.registration import EXPIRY_MS, EXPIRY_MS_MAX

EXPIRY_MS_LEAST: Final = 120_000
"""Brokers register every 10 to 60 s: less than twice that drops one that lives when a single
registration is late."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NameServerConfig:
    """Settings of one NameServer.

    Raises:
        ConfigError: A setting cannot work; names it.
    """

    listen: str = "127.0.0.1"
    """Host to listen on. `0.0.0.0` or `::` = every interface."""

    port: int = 9876
    """Port to listen on; 0 = any free one."""

    plain_port: int | None = None
    """Second port, without TLS, beside `port` with TLS: for the move of a running cluster. None =
    none."""

    peers: tuple[str, ...] = ()
    """Addresses of the other NameServers, from which this one takes changes of users and
    permissions."""

    data: Path | None = None
    """Directory of the key-value settings, of the highest epoch of each broker name, and of users
    and permissions. Without one they are lost when the process ends."""

    expiry_ms: int = EXPIRY_MS
    """Silence after which a broker without an expiry of its own is dropped; 2 to 10 minutes."""

    registered_bytes_max: int = BYTES_MAX
    """Bytes of memory that registered brokers and topics may count for; 1 MiB to 64 GiB. A topic
    counts 512 bytes and its name, a broker 1 KiB, an endpoint 256 bytes and its host."""

    scan_interval_s: float = 5.0
    """Interval between searches for silent brokers, s; 0.1 to 60."""

    def __post_init__(self) -> None:
        for setting, value, least, most in (
            ("port", self.port, 0, PORT_MAX),
            ("plain_port", 1 if self.plain_port is None else self.plain_port, 1, PORT_MAX),
            ("expiry_ms", self.expiry_ms, EXPIRY_MS_LEAST, EXPIRY_MS_MAX),
            ("registered_bytes_max", self.registered_bytes_max, 1 << 20, 64 << 30),
            ("scan_interval_s", self.scan_interval_s, 0.1, 60.0),
        ):
            check_range(f"nameserver.{setting}", value, least, most)
        _ = self.listen_address, self.peer_addresses

    @property
    def listen_address(self) -> Address:
        """The address to listen on."""
        return listen_address(self.listen, self.port, setting="nameserver.listen")

    @property
    def peer_addresses(self) -> tuple[Address, ...]:
        """The addresses of the peers."""
        return parse_addresses(self.peers, setting="nameserver.peers")
