"""Replication of a slave: the follower of the log and the synchronizer of tables, wired."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from ternmq_broker.replication.role.membership import EndReason, Membership
from ternmq_broker.replication.slave.follow_rules import LogChange
from ternmq_broker.replication.slave.follower import FollowerContext, LogFollower
from ternmq_broker.replication.tables.applier import TableContext
from ternmq_broker.replication.tables.synchronizer import (
    SynchronizerContext,
    TableSynchronizer,
)
from ternmq_broker.state.replication_record import LogCut
from ternmq_broker.state.tables import Tables
from ternmq_broker.storage.loop import StoreLoop
from ternmq_protos.v1 import replication_pb2 as replication
from ternmq_remoting.environment import Environment
from ternmq_runtime.service import Job
from ternmq_store.config import FlushMode
from ternmq_store.message_store import MessageStore


class SlaveReplication:
    """Follows the log and the tables of the master, and ends the term when the log must be cut.

    Args:
        member: Who follows.
        env: Network, clock, blocking calls.
        store: Its log.
        tables: Its tables.
        flush_mode: What its acknowledgements mean.
        no_cleaning: Held while a topic is deleted.
        store_loop: Brings the log to the disk and makes it readable.
        topics_changed: Called after topics changed.
        topic_gone: Called for each topic that was deleted.
    """

    def __init__(
        self,
        member: Membership,
        env: Environment,
        store: MessageStore,
        tables: Tables,
        *,
        flush_mode: FlushMode,
        no_cleaning: AbstractAsyncContextManager[object],
        store_loop: StoreLoop,
        topics_changed: Callable[[], None],
        topic_gone: Callable[[str], None],
    ) -> None:
        # What of its log is needed by what only masters do, its master says.
        store.cleaner.holders.clear()
        self._member = member
        self._changes_log = False
        identity = member.identity
        self.follower = LogFollower(
            FollowerContext(
                cluster=identity.cluster,
                broker_name=identity.name,
                broker_id=identity.broker_id,
                incarnation=member.incarnation,
                flush_mode=flush_mode,
                env=env,
                store=store,
                discovery=member.discovery,
                state=member.state,
                appended=store_loop.appended,
                space_made=store_loop.space_made,
                on_change=self._log_changes,
                is_term_over=self._is_term_over,
            )
        )
        store_loop.on_safe = self.follower.safe_moved
        store_loop.is_copying = self.follower.is_far_behind
        self._metadata = TableSynchronizer(
            SynchronizerContext(
                env=env,
                connection=lambda: self.follower.connection,
                tables=TableContext(
                    tables=tables,
                    store=store,
                    clock=env.clock,
                    blocking=env.blocking,
                    no_cleaning=no_cleaning,
                    topics_changed=topics_changed,
                    topic_gone=topic_gone,
                ),
            )
        )
        self.follower.metadata_age_ms = self._metadata.age_ms

    @property
    def is_following(self) -> bool:
        """The master's stream is open."""
        return self.follower.connection is not None

    @property
    def changes_log(self) -> bool:
        """Its log is to be cut: the term is over."""
        return self._changes_log

    def jobs(self) -> Sequence[Job]:
        """Return what follows; `leave` before they are left."""
        return (*self.follower.jobs(), *self._metadata.jobs())

    async def leave(self) -> None:
        """Let go of the master: the steps under way end, and no other begins."""
        await self.follower.leave()
        await self._metadata.leave()

    async def end(self) -> None:
        """Keep how far the log is confirmed: the jobs have ended."""
        await self.follower.keep_confirmed()

    async def describe(self, reply: replication.ReplicationStatusReply) -> None:
        """Tell a slave's part of Status."""
        await self.follower.describe(reply)

    def _is_term_over(self, epoch: int) -> bool:
        """End the term when it is of an earlier epoch.

        Readers keep under which epoch they learnt where they are, as a term's identity tells it:
        who was told an earlier one would be sent back to its end by the master.
        """
        if self._member.identity.epoch == epoch:
            return False
        self._member.end(EndReason.FOLLOWS)
        return True

    def _log_changes(self, change: LogChange) -> None:
        self._changes_log = True
        self._member.heard_of(change.epoch, "its master")
        self._member.cut(LogCut(change.keep_to, change.starts_over, change.file_bytes))
