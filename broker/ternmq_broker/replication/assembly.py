"""The assembly of replication: the slaves of a master, and services for other members."""

from collections.abc import Sequence

from ternmq_broker.config import BrokerConfig
from ternmq_broker.live_settings import LiveSettings
from ternmq_broker.replication.master.epoch_claims import EpochClaims
from ternmq_broker.replication.master.replica_status import MasterStatus
from ternmq_broker.replication.master.replicas import Replicas
from ternmq_broker.replication.master.service import FollowService
from ternmq_broker.replication.replica_view import ReplicaView
from ternmq_broker.replication.role.membership import Membership
from ternmq_broker.replication.role.service import StatusService
from ternmq_broker.replication.slave.slave_replication import SlaveReplication
from ternmq_broker.storage.admission import Admission
from ternmq_broker.storage.confirmations import Confirmations
from ternmq_model.clock import Clock
from ternmq_remoting.environment import Blocking
from ternmq_remoting.rpc import RpcService
from ternmq_store.message_store import MessageStore


def replicas_of(
    config: BrokerConfig,
    member: Membership,
    store: MessageStore,
    confirmations: Confirmations,
    clock: Clock,
) -> Replicas | None:
    """Return the slaves of a master; None for a slave."""
    if member.is_slave:
        return None
    timeout_ms = config.slave_timeout_ms
    return Replicas(member, store, confirmations, clock, slave_timeout_ms=timeout_ms)


def claims_of(replicas: Replicas | None) -> EpochClaims | None:
    """Return the epochs that slaves claim at their master; None for a slave."""
    # The poll includes this master itself: a member that has replaced it is member 0, too.
    return None if replicas is None else EpochClaims(replicas, replicas.member.epoch_poll.ask)


def replica_view_of(member: Membership, replicas: Replicas | None) -> ReplicaView:
    """Return the view of a member for the parts that serve readers."""
    slaves = tuple if replicas is None else replicas.ids
    return ReplicaView(member.identity.broker_id, member.state.epochs, slaves)


def replication_services(
    live: LiveSettings,
    member: Membership,
    store: MessageStore,
    blocking: Blocking,
    *,
    replicas: Replicas | None,
    claims: EpochClaims | None,
    following: SlaveReplication | None,
    admission: Admission,
) -> Sequence[RpcService]:
    """Return the services of a member for the other members, besides its tables.

    A master has `replicas` and `claims`, a slave has `following`.
    """
    flush_mode = live.broker.flush_mode
    if following is not None:
        return (StatusService(member, store, flush_mode, following.describe),)
    assert replicas is not None
    assert claims is not None
    status = MasterStatus(replicas, blocking, live)
    return (
        FollowService(replicas, blocking, on_claim=claims.add, admission=admission),
        StatusService(member, store, flush_mode, status.describe),
    )
