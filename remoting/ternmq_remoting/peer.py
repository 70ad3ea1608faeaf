"""Addresses and metadata in gRPC's form. Pure."""

import ipaddress
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import unquote

from ternmq_remoting.rpc import ANY_MEMBER, Address, Identity


@lru_cache(maxsize=1024)
def address_of_peer(peer: str) -> Address:
    """Return the address in gRPC's name of a peer.

    Args:
        peer: "ipv4:127.0.0.1:5000", "ipv6:%5B::1%5D:5000". Any other text (a Unix socket) becomes
            the host, with port 0.
    """
    kind, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return Address(peer, 0)
    return Address(host.strip("[]"), int(port))


def target_of(address: Address) -> str:
    """Return gRPC's target for `address`. gRPC resolves names."""
    try:
        version = ipaddress.ip_address(address.host.partition("%")[0]).version
    except ValueError:
        return f"dns:///{address}"
    return f"ipv{version}:{address}"


def texts_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> Mapping[str, str]:
    """Return text metadata by lower-case key; the last value of a repeated key counts."""
    return {key.lower(): value for key, value in metadata or () if isinstance(value, str)}


def is_expected(found: Identity | None, expect: Identity | None) -> bool:
    """Return whether a peer is the expected one. A higher epoch is a later state of that broker."""
    if expect is None:
        return True
    return (
        found is not None
        and (found.cluster, found.name) == (expect.cluster, expect.name)
        and expect.broker_id in (found.broker_id, ANY_MEMBER)
        and found.epoch >= expect.epoch
    )
