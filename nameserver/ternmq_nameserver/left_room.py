"""Room that is kept free for members that unregistered: most of them restart. Pure."""

from collections.abc import Set as AbstractSet
from typing import NamedTuple


class _Left(NamedTuple):
    bytes: int
    until_ms: int


class LeftRoom:
    """Room of members that left, by broker name and id. Owned by a `RouteTable`.

    What is kept free counts as taken for every other name, until the member is back or its expiry
    is over: so whoever leaves holds no more, and no longer, than who stays and falls silent.
    """

    def __init__(self) -> None:
        self._left: dict[str, dict[int, _Left]] = {}
        self._bytes = 0

    @property
    def names(self) -> AbstractSet[str]:
        """Broker names of which a member left."""
        return self._left.keys()

    def ids(self, broker_name: str) -> AbstractSet[int]:
        """Return the ids of the members of a name that left."""
        return self._left.get(broker_name, {}).keys()

    def bytes_for_others(self, broker_name: str) -> int:
        """Return how many bytes a name must leave free."""
        return self._bytes - sum(left.bytes for left in self._left.get(broker_name, {}).values())

    def keep(self, broker_name: str, broker_id: int, size: int, *, until_ms: int) -> None:
        """Keep the room of a member free that has left."""
        self.drop(broker_name, broker_id)
        self._left.setdefault(broker_name, {})[broker_id] = _Left(size, until_ms)
        self._bytes += size

    def drop(self, broker_name: str, broker_id: int) -> None:
        """Keep a member's room free no longer: it is back, or will not come."""
        members = self._left.get(broker_name, {})
        left = members.pop(broker_id, None)
        if left is not None:
            self._bytes -= left.bytes
            if not members:
                del self._left[broker_name]

    def expire(self, *, now_ms: int) -> None:
        """Keep no room free whose time is over."""
        over = [
            (name, broker_id)
            for name, members in self._left.items()
            for broker_id, left in members.items()
            if now_ms > left.until_ms
        ]
        for name, broker_id in over:
            self.drop(name, broker_id)
