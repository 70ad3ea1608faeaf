"""Who a broker is among the members of its name, for one life."""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from ternmq_broker.config import BrokerRole
from ternmq_broker.replication.role.epoch_poll import Asker
from ternmq_broker.replication.role.member_discovery import Finder
from ternmq_broker.replication.role.replication_state import ReplicationState
from ternmq_broker.state.replication_record import LogCut
from ternmq_remoting.rpc import Identity


class Outcome(enum.Enum):
    """Why a life is over."""

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
class Member:
    """A broker's part in its name. Nothing of it changes during a life, but what `state` keeps."""

    identity: Identity
    """With the id under which it registers; its epoch is the newest when the life began."""

    is_slave: bool
    role: BrokerRole
    """What it is when it is the master."""

    replicas_needed: int
    """How many members, itself included, a message must be safe at when it is the master."""

    incarnation: str
    """Random per life."""

    state: ReplicationState
    finder: Finder
    asker: Asker
    heard_of: Callable[[int, str], None]
    """Told every epoch of the name that somebody tells, and who: a master that is not of the
    highest acknowledges nothing any more."""

    end: Callable[[Outcome], None]
    """Ends the life, soon."""

    cut: Callable[[LogCut], None]
    """Ends the life, soon, and has the next one begin with a cut of the log."""
