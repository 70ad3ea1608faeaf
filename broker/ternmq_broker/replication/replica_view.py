"""The view of a replica in its present term, for the parts that serve readers."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ternmq_broker.state.epochs import Epochs
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import MASTER_ID


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """Id, epochs and slaves of a member. A value; the member's state has other owners.

    Attributes:
        broker_id: Id under which the member registers; 0 = the master.
        epochs: Epochs of the log.
        slaves: Returns the ids of the slaves that follow the member now.
    """

    broker_id: int
    epochs: Epochs = ()
    slaves: Callable[[], Collection[int]] = tuple

    @property
    def is_slave(self) -> bool:
        """True when the member follows a master."""
        return self.broker_id != MASTER_ID


def ended_at(epochs: Epochs, number: int) -> PhysicalOffset | None:
    """Return the end of an epoch's bytes, at which a later epoch begins; None without one. Pure.

    Args:
        epochs: Epochs of the log.
        number: Number of the epoch, of which the log need not have any bytes.
    """
    return next((epoch.start for epoch in epochs if epoch.number > number), None)
