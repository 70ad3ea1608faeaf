"""Status of the replicas of a master, as the master sees them."""

from dataclasses import dataclass

from ternmq_broker.live_settings import LiveSettings
from ternmq_broker.replication.master.replicas import Replicas, ReplicaStream
from ternmq_model.clock import Clock
from ternmq_model.errors import TernError
from ternmq_model.offsets import PhysicalOffset
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.environment import Blocking
from ternmq_store.log.resync import stored_at_ms
from ternmq_store.message_store import MessageStore
from ternmq_store.replication.log_feed import ColdSlice
from ternmq_store.replication.log_slice import LogSlice


@dataclass(frozen=True, slots=True)
class MasterStatus:
    """Fields of a member's status that a master alone knows. Owns nothing."""

    replicas: Replicas
    store: MessageStore
    clock: Clock
    blocking: Blocking
    live: LiveSettings

    async def describe(self, reply: replication.ReplicationStatusReply) -> None:
        """Fill in who follows, and whether this is still the master."""
        reply.is_fenced = self.replicas.is_fenced
        reply.is_draining = self.live.broker.draining
        reply.in_sync_now = 1 + self.replicas.in_sync.counting
        for stream in self.replicas.streams():
            reply.followers.append(await self._follower(stream))

    async def _follower(self, stream: ReplicaStream) -> replication.FollowerStatus:
        follower, end = stream.follower, self.store.max_physical
        lag_bytes = end - follower.acknowledged
        return replication.FollowerStatus(
            broker_id=follower.broker_id,
            peer=stream.peer,
            is_in_sync=follower.counts,
            counts_from=follower.counts_from or 0,
            sent_offset=follower.sent,
            safe_offset=follower.acknowledged,
            appended_offset=stream.appended,
            dispatched_offset=stream.dispatched,
            lag_bytes=lag_bytes,
            lag_ms=await self._age_ms(follower.acknowledged) if lag_bytes else 0,
            connected_at_ms=stream.connected_at_ms,
            flush_mode=stream.flush_mode,
        )

    async def _age_ms(self, offset: PhysicalOffset) -> int:
        """Return for how long the log has had the record that begins at `offset`, or the next one.

        What cannot be read is as old as the newest record.
        """
        start = max(offset, self.store.min_physical)
        since_ms = None
        while since_ms is None and start < self.store.feed.end:
            piece = await self._slice(start)
            if piece is None:
                break
            since_ms = stored_at_ms(piece.data, start)
            start = piece.end
        if since_ms is None:
            since_ms = self.store.last_stored_at_ms
        return max(self.clock.wall_ms() - since_ms, 1)

    async def _slice(self, start: PhysicalOffset) -> LogSlice | None:
        try:
            found = self.store.feed.slice(start, 1)
            if not isinstance(found, ColdSlice):
                return found
            await self.blocking.run(found.run)
        except (TernError, OSError):
            return None
        return self.store.feed.finish(found)
