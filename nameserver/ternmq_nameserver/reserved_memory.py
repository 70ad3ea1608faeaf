"""Memory reserved for members that unregistered: most of them restart. Pure."""

from collections.abc import Set as AbstractSet
from typing import NamedTuple


class _Reservation(NamedTuple):
    bytes: int
    until_ms: int


class ReservedMemory:
    """Memory of members that left, by broker name and id. Owned by a `RouteTable`.

    Other names cannot use reserved memory until the member is back or its expiry is over. So a
    member that leaves holds no more memory, and no longer, than a silent member.
    """

    def __init__(self) -> None:
        self._reserved: dict[str, dict[int, _Reservation]] = {}
        self._bytes = 0

    @property
    def names(self) -> AbstractSet[str]:
        """Broker names with members that left."""
        return self._reserved.keys()

    def ids(self, broker_name: str) -> AbstractSet[int]:
        """Return the ids of the members of a name that left."""
        return self._reserved.get(broker_name, {}).keys()

    def bytes_for_others(self, broker_name: str) -> int:
        """Return the bytes that are reserved for other names."""
        return self._bytes - sum(
            left.bytes for left in self._reserved.get(broker_name, {}).values()
        )

    def keep(self, broker_name: str, broker_id: int, size: int, *, until_ms: int) -> None:
        """Reserve the memory of a member that has left."""
        self.drop(broker_name, broker_id)
        self._reserved.setdefault(broker_name, {})[broker_id] = _Reservation(size, until_ms)
        self._bytes += size

    def drop(self, broker_name: str, broker_id: int) -> None:
        """Remove the reservation of a member."""
        members = self._reserved.get(broker_name, {})
        left = members.pop(broker_id, None)
        if left is not None:
            self._bytes -= left.bytes
            if not members:
                del self._reserved[broker_name]

    def expire(self, *, now_ms: int) -> None:
        """Remove expired reservations."""
        over = [
            (name, broker_id)
            for name, members in self._reserved.items()
            for broker_id, left in members.items()
            if now_ms > left.until_ms
        ]
        for name, broker_id in over:
            self.drop(name, broker_id)
