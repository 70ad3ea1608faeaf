"""Running calls of each connection of a port, counted against their limits. Pure."""

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from ternmq_model.address import Address
from ternmq_remoting.connection_limits import ANONYMOUS_CALLS_MAX, ConnectionCalls, PortLimit
from ternmq_remoting.peer import address_of_peer


class PortCalls:
    """Calls of every connection of one port, which owns them.

    Connections have gRPC's names of their peers.

    Args:
        streams_max: Most running calls of one connection.

    Attributes:
        counts: Closed connections and refused calls by their limit.
        is_watched: True = a watcher calls `forget`. False = a connection is forgotten whenever none
            of its calls runs.
        on_doubt: Called after an event for which a connection may have to be closed soon.
    """

    def __init__(self, streams_max: int) -> None:
        self.counts = Counter[PortLimit]()
        self.is_watched = False
        self.on_doubt: Callable[[], None] = _ignore
        self._streams_max = streams_max
        self._anonymous_max = min(streams_max, ANONYMOUS_CALLS_MAX)
        self._by_peer: dict[str, ConnectionCalls] = {}

    def begin(self, peer: str, *, is_admitted: bool = True) -> bool:
        """Count a call and return True; return False if its connection has too many.

        Args:
            peer: Name of the connection.
            is_admitted: True = the caller is known or need not be, and so is the connection from
                now on.
        """
        calls = self._of(peer)
        if is_admitted:
            calls.is_admitted = True
        if calls.running >= (self._streams_max if calls.is_admitted else self._anonymous_max):
            self.counts[PortLimit.STREAMS] += 1
            return False
        calls.running += 1
        return True

    def end(self, peer: str) -> None:
        """Count a call no more for which `begin` has returned True."""
        calls = self._by_peer[peer]
        calls.running -= 1
        if not calls.running and not self.is_watched:
            del self._by_peer[peer]

    def note(self, peer: str) -> None:
        """Note that the connection has made a call, which was not counted."""
        if self.is_watched:
            self._of(peer)

    def admit(self, peer: str) -> None:
        """Note that the caller behind the connection is known."""
        if self.is_watched:
            self._of(peer).is_admitted = True

    def refuse(self, peer: str) -> None:
        """Note that a call of the connection was refused before its request was read."""
        if self.is_watched:
            self._of(peer).is_refused = True
            self.on_doubt()

    def _of(self, peer: str) -> ConnectionCalls:
        calls = self._by_peer.get(peer)
        if calls is None:
            address = plain_address(address_of_peer(peer))
            calls = self._by_peer[peer] = ConnectionCalls(address)
        return calls

    @contextmanager
    def awaiting(self, peer: str) -> Generator[None]:
        """Count a begun call of a caller that may be unknown while its request is awaited."""
        calls = self._by_peer[peer]
        calls.awaited += 1
        self.on_doubt()
        try:
            yield
        finally:
            calls.awaited -= 1

    def called(self) -> Mapping[str, ConnectionCalls]:
        """Return the connections that have made a call, as they are now."""
        return dict(self._by_peer)

    def forget(self, peer: str) -> None:
        """Forget a connection that is gone, unless one of its calls still runs."""
        if not self._by_peer[peer].running:
            del self._by_peer[peer]


def plain_address(address: Address) -> Address:
    """Return the address of a socket as that of IPv4 where it is one, and without its zone."""
    return Address(address.host.removeprefix("::ffff:").partition("%")[0], address.port)


def _ignore() -> None:
    """Ignore the event: nobody watches the port."""
