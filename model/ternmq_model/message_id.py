"""Ids of a message: unique key and offset message id.

The producer creates the unique key: address 4 or 16 bytes, process id 2, a constant of the process
4, milliseconds since the begin of the month 4, a counter 2; in upper-case hex. The broker creates
the offset message id: store host (address, port 4) and physical offset 8.

Source: RocketMQ `MessageClientIDSetter`, `MessageId`, `MessageDecoder.createMessageId`.
"""

import struct
from datetime import datetime
from ipaddress import ip_address

from ternmq_model.address import Address
from ternmq_model.errors import UsageError
from ternmq_model.offsets import PhysicalOffset

_OFFSET: struct.Struct = struct.Struct(">q")
_PORT: struct.Struct = struct.Struct(">i")


class UniqueKeys:
    """Generator of the unique keys of one client.

    Args:
        address: IPv4 or IPv6 address of the host, 4 or 16 bytes.
        process_id: Process id, of which the low 16 bits are used.
        salt: Number that differs between clients of one process, of which 32 bits are used.
    """

    def __init__(self, *, address: bytes, process_id: int, salt: int) -> None:
        fixed = address + struct.pack(">HI", process_id & 0xFFFF, salt & 0xFFFFFFFF)
        self._fixed = fixed.hex().upper().encode()
        self._counter = 0
        self._at_ms = -1
        self._month_began_ms = 0
        self._month_ends_ms = -1
        self._prefix = b""

    @property
    def key_bytes(self) -> int:
        """Length of each key."""
        return len(self._fixed) + 12

    def next(self, now_ms: int) -> bytes:
        """Return a new key, 32 hex digits (56 with IPv6), at wall time `now_ms`."""
        if now_ms != self._at_ms:
            self._at_ms = now_ms
            self._prefix = self._prefix_at(now_ms)
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return b"%s%04X" % (self._prefix, counter)

    def reserve(self, count: int, now_ms: int) -> tuple[bytes, int]:
        """Return what `count` new keys begin with, and the counter of the first."""
        self.next(now_ms)
        first = self._counter
        self._counter = (first + count - 1) & 0xFFFF
        return self._prefix, first

    def _prefix_at(self, now_ms: int) -> bytes:
        if not self._month_began_ms <= now_ms < self._month_ends_ms:
            self._month_began_ms, self._month_ends_ms = _month(now_ms)
        return b"%s%08X" % (self._fixed, (now_ms - self._month_began_ms) & 0xFFFFFFFF)


def _month(now_ms: int) -> tuple[int, int]:
    """Return the begin and end of the month of `now_ms` in local time, Unix ms."""
    began = datetime.fromtimestamp(now_ms / 1000).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    ends = began.replace(year=began.year + began.month // 12, month=began.month % 12 + 1)
    return int(began.timestamp() * 1000), int(ends.timestamp() * 1000)


def offset_message_id(store_host: bytes, offset: PhysicalOffset) -> str:
    """Return the id of the record at `offset`: 32 hex digits, or 56 for an IPv6 store host."""
    return (store_host + _OFFSET.pack(offset)).hex().upper()


def parse_offset_message_id(message_id: str) -> tuple[bytes, PhysicalOffset]:
    """Return the store host bytes and the physical offset in `message_id`.

    Raises:
        UsageError: The id has not 32 or 56 hex digits, or its offset is negative.
    """
    try:
        data = bytes.fromhex(message_id)
    except ValueError:
        data = b""
    if len(data) not in (16, 28) or len(message_id) != 2 * len(data):
        raise UsageError(f"message id {message_id!r}: must be 32 or 56 hex digits")
    offset = _OFFSET.unpack_from(data, len(data) - 8)[0]
    if offset < 0:
        raise UsageError(f"message id {message_id!r}: has no valid log offset")
    return data[:-8], PhysicalOffset(offset)


def host_bytes(address: Address) -> bytes:
    """Return the bytes of a host in a record: 8 for IPv4, 20 for IPv6.

    Raises:
        ValueError: The host is a name, not a numeric address.
    """
    return ip_address(address.host).packed + _PORT.pack(address.port)


def ip_bytes(host: bytes) -> bytes:
    """Return the IP address in the host bytes of a record, without the port."""
    return host[: -_PORT.size]


def host_text(host: bytes) -> str:
    """Return the host bytes of a record as `address:port`."""
    return str(
        Address(str(ip_address(ip_bytes(host))), _PORT.unpack_from(host, len(host) - _PORT.size)[0])
    )
