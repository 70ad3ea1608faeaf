"""Leadership of a master: its epoch, its role, its calls."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ternmq_broker.config import BrokerRole
from ternmq_broker.state.epochs import Epochs, newest


@dataclass(frozen=True, kw_only=True, slots=True)
class Leadership:
    """One epoch of a master, from its beginning to the end of the broker's term."""

    store_id: str
    """Id of the store whose bytes its log holds."""

    epochs: Epochs
    """Epochs of its log; the last one is this leadership's."""

    role: BrokerRole
    """Role of the master: async_master or sync_master."""

    in_sync_replicas: int
    """Number of members, the master included, that must have what is confirmed."""

    own_id: int
    """Its id whenever it is a slave: no other member may have that."""

    on_deposed: Callable[[int, str], None]
    """Told of a higher epoch, and of whom that is known: the term is over. Nothing is acknowledged
    any more by then."""

    on_followed: Callable[[], Awaitable[None]]
    """Awaited before a slave gets its first byte: that there are slaves is durable when it returns.
    Raises StoreError."""

    @property
    def number(self) -> int:
        """Number of the epoch."""
        return newest(self.epochs)

    @property
    def slaves_needed(self) -> int:
        """Number of slaves that must have what is confirmed."""
        return self.in_sync_replicas - 1 if self.role is BrokerRole.SYNC_MASTER else 0
