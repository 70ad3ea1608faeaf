"""The service of replication status, at every member, and the part that a master adds."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ternmq_broker.config import BrokerRole
from ternmq_broker.live_settings import LiveSettings
from ternmq_broker.replication.master.replicas import LogSender, Replicas
from ternmq_broker.replication.protocol import epochs_to_pb
from ternmq_broker.replication.role.membership import Membership
from ternmq_model.errors import TernError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.record.format import find_header
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.environment import Blocking
from ternmq_remoting.rpc import Call, Handler, unary
from ternmq_remoting.service_methods import REPLICATION_STATUS
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore
from ternmq_store.replication.log_feed import ColdSlice
from ternmq_store.replication.log_slice import LogSlice


class StatusService:
    """Service that reports the replication status of one member.

    Args:
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


@dataclass(frozen=True, slots=True)
class MasterStatus:
    """Part of a member's status that a master alone knows. Owns nothing."""

    replicas: Replicas
    blocking: Blocking
    live: LiveSettings

    async def describe(self, reply: replication.ReplicationStatusReply) -> None:
        """Add the slaves, and whether this member is still the master."""
        reply.is_fenced = self.replicas.is_fenced
        reply.is_draining = self.live.broker.draining
        reply.in_sync_now = 1 + self.replicas.in_sync.counting
        for sender in self.replicas.senders():
            reply.followers.append(await self._follower(sender))

    async def _follower(self, sender: LogSender) -> replication.FollowerStatus:
        follower = sender.follower
        lag_bytes = self.replicas.store.max_physical - follower.acknowledged
        return replication.FollowerStatus(
            broker_id=follower.broker_id,
            peer=sender.peer,
            is_in_sync=follower.counts,
            counts_from=follower.counts_from or 0,
            sent_offset=follower.sent,
            safe_offset=follower.acknowledged,
            appended_offset=sender.appended,
            dispatched_offset=sender.dispatched,
            lag_bytes=lag_bytes,
            lag_ms=await self._age_ms(follower.acknowledged) if lag_bytes else 0,
            connected_at_ms=sender.connected_at_ms,
            flush_mode=sender.flush_mode,
        )

    async def _age_ms(self, offset: PhysicalOffset) -> int:
        """Return the age of the first record at or after `offset`.

        An unreadable record is as old as the newest one.
        """
        store = self.replicas.store
        start = max(offset, store.min_physical)
        since_ms = None
        while since_ms is None and start < store.feed.end:
            piece = await self._slice(start)
            if piece is None:
                break
            header = find_header(piece.data)
            if header is not None and header.physical_offset == start:
                since_ms = header.stored_at_ms
            start = piece.end
        if since_ms is None:
            since_ms = store.last_stored_at_ms
        return max(self.replicas.clock.wall_ms() - since_ms, 1)

    async def _slice(self, start: PhysicalOffset) -> LogSlice | None:
        feed = self.replicas.store.feed
        try:
            found = feed.slice(start, 1)
            if not isinstance(found, ColdSlice):
                return found
            await self.blocking.run(found.run)
        except (TernError, OSError):
            return None
        return feed.finish(found)
