"""The assembly of replication: a member's services, and what a master has for its slaves."""

from collections.abc import Callable, Sequence

from ternmq_broker.config import BrokerConfig, BrokerRole
from ternmq_broker.live_settings import LiveSettings
from ternmq_broker.replication.master.epoch_claims import EpochClaims
from ternmq_broker.replication.master.leadership import Leadership
from ternmq_broker.replication.master.replica_status import MasterStatus
from ternmq_broker.replication.master.replicas import Replicas
from ternmq_broker.replication.master.service import FollowService
from ternmq_broker.replication.role import start_role
from ternmq_broker.replication.role.membership import EndReason, Membership
from ternmq_broker.replication.role.service import MemberState, RoleStatus, StatusService
from ternmq_broker.replication.tables.service import MetadataService
from ternmq_broker.state.tables import Tables
from ternmq_broker.storage.confirmations import Confirmations
from ternmq_broker.storage.real_topics import RealTopics
from ternmq_model.offsets import PhysicalOffset
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import RpcService
from ternmq_store.message_store import MessageStore


def replicas_of(
    config: BrokerConfig,
    member: Membership,
    store: MessageStore,
    confirmations: Confirmations,
    env: Environment,
) -> Replicas | None:
    """Return who may follow this master; None for a slave, whom nobody follows."""
    if member.is_slave:
        return None
    state = member.state

    def deposed(epoch: int, _who: str) -> None:
        state.heard_of(epoch)
        member.end(EndReason.FENCED)

    leadership = Leadership(
        store_id=state.store_id,
        epochs=state.epochs,
        role=member.role,
        in_sync_replicas=member.replicas_needed,
        own_id=start_role.registered_id(config, is_slave=True),
        on_deposed=deposed,
        on_followed=state.note_replicated,
    )
    return Replicas(
        *(store, confirmations, env.clock, leadership), slave_timeout_ms=config.slave_timeout_ms
    )


def claims_of(
    member: Membership, replicas: Replicas | None, env: Environment
) -> EpochClaims | None:
    """Return what becomes of higher epochs that slaves tell of; None for a slave."""
    if replicas is None:
        return None
    # It asks itself, too: whoever has taken its place is member 0 as it is.
    return EpochClaims(replicas, member.epoch_poll.ask, env.clock)


def real_topics_of(
    member: Membership,
    store: MessageStore,
    tables: Tables,
    env: Environment,
    on_made: Callable[[], None],
) -> RealTopics:
    """Return what finds the topics of records that waited, also under masters before this one."""
    epochs = member.state.epochs
    return RealTopics(
        tables.topics,
        deletions=lambda: store.deletions,
        epoch_start=epochs[-1].start if epochs else PhysicalOffset(0),
        clock=env.clock,
        on_made=on_made,
    )


def metadata_of(
    member: Membership,
    store: MessageStore,
    tables: Tables,
    env: Environment,
    *,
    is_closing: Callable[[], bool],
) -> MetadataService:
    """Return what tells other members the tables."""
    return MetadataService(
        *(tables, store),
        incarnation=member.incarnation,
        clock=env.clock,
        blocking=env.blocking,
        is_closing=is_closing,
    )


def replication_services(
    live: LiveSettings,
    member: Membership,
    store: MessageStore,
    env: Environment,
    *,
    metadata: MetadataService,
    side: Replicas | RoleStatus | None,
    claims: EpochClaims | None,
    is_closing: Callable[[], bool],
) -> Sequence[RpcService]:
    """Return what a member serves to the others.

    Args:
        live: The broker's settings.
        member: Who it is.
        store: Its log.
        env: Clock, blocking calls.
        metadata: Tells its tables.
        side: Of a master who follows it; of a slave how it follows.
        claims: Of a master, the higher epochs that slaves tell of.
        is_closing: Tells whether nobody new is served any more.
    """
    services: list[RpcService] = [metadata]
    role_status: RoleStatus | None
    if claims is None or not isinstance(side, Replicas):
        assert not isinstance(side, Replicas), "a master has claims"
        role_status = side
    else:
        role_status = MasterStatus(side, store, env.clock, env.blocking, live)
        services.append(
            FollowService(
                *(side, member.identity, store, env.clock, env.blocking),
                told_higher=claims.add,
                is_closing=is_closing,
            )
        )
    services.append(
        StatusService(
            *(
                store,
                member.identity,
                lambda: _state_of(member, live.broker),
                live.broker.flush_mode,
                role_status,
            )
        )
    )
    return services


def _state_of(member: Membership, config: BrokerConfig) -> MemberState:
    role = BrokerRole.SLAVE if member.is_slave else member.role
    return MemberState(
        role=role.value,
        store_id=member.state.store_id,
        epochs=member.state.epochs,
        highest_epoch=member.state.highest_epoch,
        in_sync_replicas=member.replicas_needed,
        slave_id=start_role.registered_id(config, is_slave=True),
    )
