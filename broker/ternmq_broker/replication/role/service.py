"""The service of replication status, at every member."""

from collections.abc import Awaitable, Callable, Sequence

from ternmq_broker.config import BrokerRole
from ternmq_broker.replication.protocol import epochs_to_pb
from ternmq_broker.replication.role.membership import Membership
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.rpc import Call, Handler, unary
from ternmq_remoting.service_methods import REPLICATION_STATUS
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore


class StatusService:
    """Service that reports the replication status of one member.

    Args:
        member: The member.
        store: The member's store.
        flush_mode: Flush mode of the store.
        describe_role: Adds the fields that masters or slaves alone have.
    """

    def __init__(
        self,
        member: Membership,
        store: MessageStore,
        flush_mode: FlushMode,
        describe_role: Callable[[replication.ReplicationStatusReply], Awaitable[None]],
    ) -> None:
        self._member = member
        self._store = store
        self._flush_mode = flush_mode
        self._describe_role = describe_role

    def handlers(self) -> Sequence[Handler]:
        """Return the handler of Status."""
        return (unary(REPLICATION_STATUS, self.status),)

    async def status(
        self, request: replication.ReplicationStatusRequest, call: Call
    ) -> replication.ReplicationStatusReply:
        """Return the status of this member."""
        store, member, state = self._store, self._member, self._member.state
        reply = replication.ReplicationStatusReply(
            cluster=member.identity.cluster,
            broker_name=member.identity.name,
            broker_id=member.identity.broker_id,
            role=(BrokerRole.SLAVE if member.is_slave else member.role).value,
            store_id=state.store_id,
            epochs=epochs_to_pb(state.epochs),
            highest_epoch=state.highest_epoch,
            log_start=store.min_physical,
            log_end=store.max_physical,
            safe_offset=store.safe_offset,
            confirm_offset=store.confirm_offset,
            dispatched_offset=store.dispatched_offset,
            flush_mode=self._flush_mode.value,
            in_sync_replicas=member.replicas_needed,
            slave_id=member.slave_id,
        )
        await self._describe_role(reply)
        return reply
