"""The service of replication status, at every member."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ternmq_broker.replication.protocol import epochs_to_pb
from ternmq_broker.state.epochs import Epochs
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.rpc import Call, Handler, Identity, unary
from ternmq_remoting.service_methods import REPLICATION_STATUS
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberState:
    """Fields of a member's status that every role has."""

    role: str
    """async_master, sync_master or slave."""

    store_id: str
    epochs: Epochs
    highest_epoch: int
    in_sync_replicas: int
    slave_id: int
    """Id under which it is known as a slave."""


class RoleStatus(Protocol):
    """Fields of a member's status that one role alone knows."""

    async def describe(self, reply: replication.ReplicationStatusReply) -> None:
        """Fill that in."""
        ...


class StatusService:
    """Serves Status.

    Args:
        store: The member's.
        identity: As it registers.
        member: Its state, asked for with every request.
        flush_mode: Of its store.
        role_status: Adds the fields of its role.
    """

    def __init__(
        self,
        store: MessageStore,
        identity: Identity,
        member: Callable[[], MemberState],
        flush_mode: FlushMode,
        role_status: RoleStatus | None,
    ) -> None:
        self._store = store
        self._identity = identity
        self._member = member
        self._flush_mode: Final = flush_mode
        self._role_status = role_status

    def handlers(self) -> Sequence[Handler]:
        """Return what to serve."""
        return (unary(REPLICATION_STATUS, self.status),)

    async def status(
        self, request: replication.ReplicationStatusRequest, call: Call
    ) -> replication.ReplicationStatusReply:
        """Tell how this member stands."""
        store, identity, member = self._store, self._identity, self._member()
        reply = replication.ReplicationStatusReply(
            cluster=identity.cluster,
            broker_name=identity.name,
            broker_id=identity.broker_id,
            role=member.role,
            store_id=member.store_id,
            epochs=epochs_to_pb(member.epochs),
            highest_epoch=member.highest_epoch,
            log_start=store.min_physical,
            log_end=store.max_physical,
            safe_offset=store.safe_offset,
            confirm_offset=store.confirm_offset,
            dispatched_offset=store.dispatched_offset,
            flush_mode=self._flush_mode.value,
            in_sync_replicas=member.in_sync_replicas,
            slave_id=member.slave_id,
        )
        if self._role_status is not None:
            await self._role_status.describe(reply)
        return reply
