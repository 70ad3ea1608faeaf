"""Membership of a broker in its name, for one term."""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from ternmq_broker.config import BrokerRole
from ternmq_broker.replication.role.epoch_poll import EpochPoll
from ternmq_broker.replication.role.member_discovery import MemberDiscovery
from ternmq_broker.replication.role.replication_state import ReplicationState
from ternmq_broker.state.replication_record import LogCut
from ternmq_remoting.rpc import Identity


class EndReason(enum.Enum):
    """Reason for which a term is over."""

    LEFT = "the broker stops"
    """There is no next one."""

    PROMOTED = "it was promoted"
    """The next one is a master's."""

    FENCED = "a higher epoch has begun"
    """The next one is a slave's."""

    FOLLOWS = "its master's epoch is a new one"
    """The next one is a slave's that tells that epoch to readers."""

    CUT = "its log is to be cut"
    """The next one begins with that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Membership of a broker in its name. Within a term nothing of it changes but `state`."""

    identity: Identity
    """Its id is that under which it registers, its epoch the newest when the term began."""

    is_slave: bool
    role: BrokerRole
    """Role that it has whenever it is the master."""

    replicas_needed: int
    """Number of members, itself included, that must have a message when it is the master."""

    incarnation: str
    """Random per term."""

    state: ReplicationState
    discovery: MemberDiscovery
    epoch_poll: EpochPoll
    heard_of: Callable[[int, str], None]
    """Told every epoch of the name that somebody tells, and who: a master that is not of the
    highest acknowledges nothing any more."""

    end: Callable[[EndReason], None]
    """Ends the term, soon."""

    cut: Callable[[LogCut], None]
    """Ends the term, soon, and has the next one begin with a cut of the log."""
