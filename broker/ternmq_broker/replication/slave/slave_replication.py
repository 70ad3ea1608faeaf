"""Replication of a slave: the follower of the log, and the synchronizer of tables."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.replication.role.membership import EndReason, Membership
from ternmq_broker.replication.slave.follower import LogFollower
from ternmq_broker.replication.tables.applier import TableApplier
from ternmq_broker.replication.tables.synchronizer import TableSynchronizer
from ternmq_broker.state.replication_record import LogCut
from ternmq_broker.storage.loop import StoreLoop
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_runtime.service import Job


class SlaveReplication:
    """Replication of the master's log and tables; a log that must be cut ends the term.

    Args:
        no_cleaning: Held while a topic is deleted.
        topic_gone: Called with each topic that was deleted.

    Attributes:
        changes_log: True when the log is to be cut, so that the term is over.
    """

    def __init__(
        self,
        member: Membership,
        env: BrokerEnvironment,
        *,
        no_cleaning: AbstractAsyncContextManager[object],
        store_loop: StoreLoop,
        topic_gone: Callable[[str], None],
    ) -> None:
        # Delayed messages and transactions hold no files of a slave: its master holds them.
        env.store.cleaner.holders.clear()
        self._member = member
        self.changes_log = False
        self.follower = LogFollower(
            member,
            env,
            env.store,
            store_loop,
            flush_mode=env.live.broker.flush_mode,
            on_cut=self._end_with_cut,
            is_term_over=self._is_term_over,
        )
        store_loop.on_safe = self.follower.safe_moved
        store_loop.is_copying = self.follower.is_far_behind
        applier = TableApplier(
            env,
            env.store,
            env.tables,
            no_cleaning=no_cleaning,
            topics_changed=env.registrar.changed,
            topic_gone=topic_gone,
        )
        self._metadata = TableSynchronizer(
            env, env.tables, applier, connection=lambda: self.follower.connection
        )

    @property
    def is_following(self) -> bool:
        """True while the stream to the master is open."""
        return self.follower.connection is not None

    def jobs(self) -> Sequence[Job]:
        """Return the jobs that follow the master; callers call `leave` before the jobs end."""
        return (*self.follower.jobs(), *self._metadata.jobs())

    async def leave(self) -> None:
        """Leave the master: the steps under way end, and no other begins."""
        await self.follower.leave()
        await self._metadata.leave()

    async def end(self) -> None:
        """Store the confirm offset, after the jobs have ended."""
        await self.follower.keep_confirmed()

    async def describe(self, reply: replication.ReplicationStatusReply) -> None:
        """Add the part of the status that a slave alone knows."""
        reply.following.CopyFrom(self.follower.status())
        reply.following.metadata_age_ms = self._metadata.age_ms()

    def behind(self) -> Sequence[tuple[int, int]]:
        """Return the id of this slave with the bytes of its master's log that it lacks."""
        return ((self._member.identity.broker_id, self.follower.status().lag_bytes),)

    def _is_term_over(self, epoch: int) -> bool:
        """End the term if the master's epoch is a later one than the term's.

        Readers send the epoch of the term's identity with their positions. With an earlier epoch,
        the master would send them back to the end of that epoch.
        """
        if self._member.identity.epoch == epoch:
            return False
        self._member.end(EndReason.FOLLOWS)
        return True

    def _end_with_cut(self, cut: LogCut, epoch: int) -> None:
        self.changes_log = True
        # The master's epoch is on the disk before the log is cut.
        self._member.note_epoch(epoch, "its master")
        self._member.cut(cut)
