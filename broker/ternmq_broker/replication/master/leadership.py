"""What the life of a master is told of its reign."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ternmq_broker.config import BrokerRole
from ternmq_broker.state.epochs import Epochs, newest


@dataclass(frozen=True, kw_only=True, slots=True)
class Reign:
    """One epoch of a master: from its beginning to the end of the broker's life."""

    store_id: str
    """Whose bytes its log holds."""

    epochs: Epochs
    """Of its log; the last one is this reign's."""

    role: BrokerRole
    """As what it reigns: async_master or sync_master."""

    in_sync_replicas: int
    """How many members, the master included, must have what is confirmed."""

    own_id: int
    """Its id whenever it is a slave: no other member may have that."""

    on_deposed: Callable[[int, str], None]
    """Told of a higher epoch, and of whom that is known: the life is over. Nothing is acknowledged
    any more by then."""

    on_followed: Callable[[], Awaitable[None]]
    """Awaited before a slave gets its first byte: that there are slaves is durable when it returns.
    Raises StoreError."""

    @property
    def number(self) -> int:
        """Of the epoch."""
        return newest(self.epochs)

    @property
    def slaves_needed(self) -> int:
        """How many slaves must have what is confirmed."""
        return self.in_sync_replicas - 1 if self.role is BrokerRole.SYNC_MASTER else 0
