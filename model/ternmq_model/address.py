"""Addresses of services, and the resolution of registered addresses."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from ternmq_model.errors import ConfigError

ANY_HOST: Final = "*"
"""Host in a route that stands for the NameServer's host, as the reader reached it."""

PORT_MAX: Final = 65_535
HOST_CHARACTERS_MAX: Final = 253
"""Most characters of a host name in DNS."""

_IPV6: Final = r"[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?"
_HOST: Final = re.compile(rf"[A-Za-z0-9._-]+|{_IPV6}", re.ASCII)
_TEXT: Final = re.compile(
    rf"(?:\[(?P<v6>{_IPV6})\]|(?P<host>[^\[\]:\s]+)):(?P<port>[0-9]{{1,5}})", re.ASCII
)


@dataclass(frozen=True, order=True, slots=True)
class Address:
    """Address of a service. Host "*" in a route stands for the NameServer's host."""

    host: str
    """Name or IP address; IPv6 without brackets."""

    port: int
    """TCP port."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_legal_endpoint(self) -> bool:
        """True if a broker may register the address: "*", host name or IP address, and port > 0."""
        if not 0 < self.port <= PORT_MAX:
            return False
        if self.host == ANY_HOST:
            return True
        return len(self.host) <= HOST_CHARACTERS_MAX and _HOST.fullmatch(self.host) is not None


def parse_address(text: str, *, setting: str) -> Address:
    """Return the address in `text`: `host:port` or `[IPv6]:port`.

    Args:
        text: Text of a setting. Port 0 (any free one) is legal.
        setting: Name of the setting, for the error.

    Raises:
        ConfigError: `text` has another form, or the port is above 65,535.
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise ConfigError(setting, text, "must be HOST:PORT, an IPv6 host in brackets")
    address = Address(match["v6"] or match["host"], int(match["port"]))
    if address.port > PORT_MAX:
        raise ConfigError(setting, text, f"a port is at most {PORT_MAX}")
    return address


def parse_addresses(
    texts: Iterable[str], *, setting: str, may_be_any: bool = False
) -> tuple[Address, ...]:
    """Return the parsed addresses, each once.

    Args:
        texts: Texts of an operator.
        setting: Name of the setting, for the error.
        may_be_any: The host "*" is legal: the one through which a reader reached the NameServer.

    Raises:
        ConfigError: A text is no address; names the text.
    """
    addresses: list[Address] = []
    for text in texts:
        address = parse_address(text, setting=setting)
        is_any = may_be_any and address.host == ANY_HOST
        if not address.port:
            raise ConfigError(setting, text, "needs a port to dial")
        if not is_any and (not is_host(address.host) or is_unspecified(address.host)):
            raise ConfigError(setting, text, "needs a host name or an IP address to dial")
        addresses.append(address)
    return tuple(dict.fromkeys(addresses))


def listen_address(host: str, port: int, *, setting: str) -> Address:
    """Return the address to listen on.

    Args:
        host: Host name or IP address, IPv6 with or without brackets.
        port: TCP port; 0 = any free one.
        setting: Name of the setting of `host`, for the error.

    Raises:
        ConfigError: `host` is neither a name nor an IP address.
    """
    plain = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not is_host(plain) or (plain != host and ":" not in plain):
        raise ConfigError(setting, host, "must be a host name or an IP address")
    return Address(plain, port)


def is_host(text: str) -> bool:
    """Return whether `text` is a host name or an IP address without brackets."""
    if ":" in text:
        try:
            return bool(ip_address(text))
        except ValueError:
            return False
    return len(text) <= HOST_CHARACTERS_MAX and _HOST.fullmatch(text) is not None


def is_unspecified(host: str) -> bool:
    """Return whether `host` is an IP address for every interface, to which no client connects."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a service on `host`."""
    try:
        return ip_of(host).is_loopback
    except ValueError:
        return host == "localhost"


def ip_of(host: str) -> IPv4Address | IPv6Address:
    """Return the IP address `host`, also that of IPv4 which a dual-stack socket shows as IPv6.

    Raises:
        ValueError: `host` is no IP address.
    """
    found = ip_address(host)
    return getattr(found, "ipv4_mapped", None) or found


def resolve_addresses(endpoints: Iterable[Address], *, nameserver_host: str) -> tuple[Address, ...]:
    """Return the addresses to connect to, in their order, each once.

    Args:
        endpoints: Registered addresses.
        nameserver_host: Host of the NameServer, which replaces "*".
    """
    resolved = (
        Address(nameserver_host, endpoint.port) if endpoint.host == ANY_HOST else endpoint
        for endpoint in endpoints
    )
    return tuple(dict.fromkeys(resolved))
