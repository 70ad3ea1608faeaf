"""BORNHOST and STOREHOST of records, and an address of this machine for them."""

import socket

from ternmq_model.address import Address, ip_of
from ternmq_model.message_id import host_bytes


def born_host_bytes(peer: Address) -> bytes:
    """Return BORNHOST for a caller; 127.0.0.1 for one without a numeric address.

    An IPv4 address that a dual-stack socket shows as IPv6 becomes IPv4, and zones are removed.
    """
    try:
        address = ip_of(peer.host.partition("%")[0])
    except ValueError:
        return host_bytes(Address("127.0.0.1", peer.port))
    return host_bytes(Address(str(address), peer.port))


def own_host(hostname: str) -> str:
    """Return an IPv4 address of this machine for other machines. Blocks.

    A name without an address gives 127.0.0.1.
    """
    try:
        return socket.gethostbyname(hostname)
    except OSError:
        return "127.0.0.1"
