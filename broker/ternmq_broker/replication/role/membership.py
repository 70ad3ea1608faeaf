"""Membership of a broker in its name, for one term."""

import enum
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ternmq_broker.config import BrokerRole
from ternmq_broker.replication.role.epoch_poll import EpochPoll
from ternmq_broker.replication.role.member_discovery import MemberDiscovery
from ternmq_broker.replication.role.replication_state import ReplicationState
from ternmq_broker.state.epochs import Epochs
from ternmq_broker.state.replication_record import LogCut
from ternmq_model.route import MASTER_ID
from ternmq_remoting.rpc import Identity


class EndReason(enum.Enum):
    """Reason for which a term is over."""

    LEFT = "the broker stops"
    """No term follows."""

    PROMOTED = "it was promoted"
    """The next term is a master's."""

    FENCED = "a higher epoch has begun"
    """The next term is a slave's."""

    FOLLOWS = "its master's epoch is a new one"
    """The next term is a slave's that reports the new epoch to readers."""

    CUT = "its log is to be cut"
    """The next term begins with the cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Membership of a broker in its name. Within a term only `state` changes."""

    identity: Identity
    """Identity under which the member registers, with the newest epoch at the term's start."""

    is_slave: bool
    slave_id: int
    """Id of the member whenever it is a slave: no other member may have it."""

    role: BrokerRole
    """Role of the member whenever it is the master: async_master or sync_master."""

    replicas_needed: int
    """Number of members, this one included, that must have a message when it is the master."""

    incarnation: str
    """Random text that names the term."""

    state: ReplicationState
    discovery: MemberDiscovery
    epoch_poll: EpochPoll
    note_epoch: Callable[[int, str], None]
    """Called with each epoch of the broker name that another process reports, and with the name of
    that process: a master without the highest epoch acknowledges nothing any more."""

    end: Callable[[EndReason], None]
    """Ends the term, soon."""

    cut: Callable[[LogCut], None]
    """Ends the term, soon, so that the next term begins with a cut of the log."""

    @property
    def slaves_needed(self) -> int:
        """Number of slaves that must have a message before the master confirms it."""
        return self.replicas_needed - 1 if self.role is BrokerRole.SYNC_MASTER else 0


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
