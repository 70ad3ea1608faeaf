"""Limits of a port's connections, most of all of those whose callers are unknown. Pure."""

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ternmq_model.address import Address
from ternmq_remoting.network_config import NetworkConfig

LOOK_S: Final = 1.0
"""Interval between two looks at the connections of a port, s."""

_LATE_S: Final = 5 * LOOK_S
"""Most delay of a look on a busy machine, s."""

PROGRESS_BYTES: Final = 1 << 10
"""Least growth of a connection's bytes that counts as a sign of life. A keepalive ping has 17
bytes, and so holds no connection open that never makes a call."""

ANONYMOUS_CALLS_MAX: Final = 32
"""Most calls at a time of a connection without an admitted call. gRPC buffers up to 4 MiB of each
one whose request is not read."""


class PortLimit(enum.Enum):
    """Limit of a port for which a connection was closed or a call refused."""

    HANDSHAKE = "handshake"
    FIRST_MESSAGE = "first_message"
    ADDRESS = "address"
    ANONYMOUS_BYTES = "anonymous_bytes"
    STREAMS = "streams"


@dataclass(slots=True, eq=False)
class ConnectionCalls:
    """Calls of one connection. Owned by its port."""

    peer: Address
    running: int = 0
    is_admitted: bool = False
    """True once a call was served whose caller is known, or need not be."""

    is_refused: bool = False
    """True once a call was refused before its request was read."""

    awaited: int = 0
    """Running calls of callers that may be unknown whose requests have not arrived."""


@dataclass(slots=True, eq=False)
class PortConnection:
    """Open connection of a port, as far as looks have shown it. Owned by the watcher."""

    peer: Address
    seen_at_s: float
    """Time of the first look that has found the connection, s."""

    calls: ConnectionCalls | None = None
    """Calls of the connection; None = it has made none."""

    received_bytes: int = 0
    _progress_bytes: int = field(init=False, default=0)
    progress_at_s: float = field(init=False)
    """Time of the last look that has found `PROGRESS_BYTES` more than the one of that kind before,
    s."""

    def __post_init__(self) -> None:
        self.progress_at_s = self.seen_at_s

    @property
    def is_settled(self) -> bool:
        """True while the number of received bytes decides nothing."""
        calls = self.calls
        return calls is not None and (calls.is_admitted or not (calls.is_refused or calls.awaited))

    def note_received(self, received_bytes: int, *, now_s: float) -> None:
        """Take over the number of bytes that a look has found."""
        self.received_bytes = received_bytes
        if received_bytes - self._progress_bytes >= PROGRESS_BYTES:
            self._progress_bytes, self.progress_at_s = received_bytes, now_s


def to_close(
    connections: Iterable[PortConnection], limits: NetworkConfig, *, now_s: float
) -> list[tuple[PortConnection, PortLimit]]:
    """Return the connections that exceed a limit, each with the limit.

    Args:
        connections: Connections of the port, the oldest first.
        limits: Settings of the port.
        now_s: Time of the look, s.
    """
    found: list[tuple[PortConnection, PortLimit]] = []
    kept = Counter[str]()
    for each in connections:
        limit = None
        if each.calls is None:
            if now_s - each.progress_at_s >= limits.first_message_timeout_s:
                limit = PortLimit.FIRST_MESSAGE
        elif not each.is_settled and each.received_bytes > limits.anonymous_bytes_max:
            limit = PortLimit.ANONYMOUS_BYTES
        if limit is None and kept[each.peer.host] >= limits.connections_by_address_max:
            limit = PortLimit.ADDRESS
        if limit is None:
            kept[each.peer.host] += 1
        else:
            found.append((each, limit))
    return found


def is_failed_handshake(gone: PortConnection, limits: NetworkConfig, *, now_s: float) -> bool:
    """Return whether gRPC has closed a connection because its handshakes took too long.

    gRPC does not report it. A connection without a call that is gone at that age counts; looks know
    ages to a second, or less exactly on a busy machine.

    Args:
        gone: Connection that the last look has found and this one has not.
        limits: Settings of the port.
        now_s: Time of this look, s.
    """
    late_s = now_s - gone.seen_at_s - limits.handshake_timeout_s
    return gone.calls is None and -LOOK_S <= late_s <= _LATE_S
