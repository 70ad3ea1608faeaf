"""The view of a replica in its present term, for the parts that serve readers."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ternmq_broker.replication.master.replicas import Replicas
from ternmq_broker.state.epochs import Epochs
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.route import MASTER_ID
from ternmq_remoting.rpc import Identity


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """Id, epochs and slaves of a member. A value; what it refers to has other owners.

    Attributes:
        broker_id: Under which it is known; 0 = it is the master.
        epochs: Of the log.
        slaves: Tells the ids of the slaves that follow it now.
    """

    broker_id: int
    epochs: Epochs = ()
    slaves: Callable[[], Collection[int]] = tuple

    @property
    def is_slave(self) -> bool:
        """It follows a master."""
        return self.broker_id != MASTER_ID


def replica_view_of(identity: Identity, epochs: Epochs, replicas: Replicas | None) -> ReplicaView:
    """Return the view of a member.

    Args:
        identity: Who it is.
        epochs: Of its log.
        replicas: Who follows a master; None for a slave.
    """
    if replicas is None:
        return ReplicaView(identity.broker_id, epochs)
    following = replicas
    return ReplicaView(
        *(identity.broker_id, epochs),
        slaves=lambda: [stream.follower.broker_id for stream in following.streams()],
    )


def ended_at(epochs: Epochs, number: int) -> PhysicalOffset | None:
    """Return where the log's bytes of an epoch end because a later one begins there. Pure.

    Args:
        epochs: Of the log.
        number: The epoch; the log need not have any bytes of it.

    Returns:
        None when no later one has begun.
    """
    return next((epoch.start for epoch in epochs if epoch.number > number), None)
