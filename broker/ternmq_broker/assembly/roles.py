"""The two roles of a broker: what a master does by itself, and what a slave does instead.

Both are built of the same parts and serve the same RPCs. A master delivers delayed and timed
messages, checks transactions, stores events, and waits for its slaves. A slave has no timers: it
stores what its master stored, and refuses what its master alone may do.

Three rooms have a difference of their own. Groups of a slave give no locks and make no topics
(`groups/assembly`). Answers of a slave to pulls send readers to the master (`pull/answers`).
Retention of a slave counts ages to its newest record at most: another clock gave the store times
(`storage/retention`).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ternmq_broker.pull.offset_moved import OffsetMovedPublisher
from ternmq_broker.replication.master.epoch_claims import EpochClaims
from ternmq_broker.replication.master.replicas import Replicas
from ternmq_broker.replication.slave.slave_replication import SlaveReplication
from ternmq_broker.replication.tables.service import MetadataService
from ternmq_broker.scheduled.assembly import ScheduledAssembly
from ternmq_broker.transactions.assembly import Transactions
from ternmq_model.offsets import PhysicalOffset
from ternmq_remoting.rpc import Handler
from ternmq_runtime.service import Job
from ternmq_store.dispatch.log_dispatcher import Arrival
from ternmq_store.message_store import MessageStore

_SETTLE_TIMEOUT_S: Final = 2.0


class MasterRole:
    """Duties of a master.

    Args:
        store: Written by this member alone.
        scheduled: Delivers delayed and timed messages.
        transactions: Checks and ends transactions.
        offset_moved: Stores events of corrected offsets.
        replicas: Its slaves, and what they let it confirm.
        claims: Higher epochs of which slaves tell.
        metadata: Tells slaves the tables.
        flush_to: Brings the log to the disk up to an offset, if it can.
    """

    def __init__(
        self,
        store: MessageStore,
        scheduled: ScheduledAssembly,
        transactions: Transactions,
        offset_moved: OffsetMovedPublisher,
        replicas: Replicas,
        claims: EpochClaims,
        metadata: MetadataService,
        *,
        flush_to: Callable[[PhysicalOffset], Awaitable[None]],
    ) -> None:
        self._store = store
        self._scheduled = scheduled
        self._transactions = transactions
        self._offset_moved = offset_moved
        self._replicas = replicas
        self._claims = claims
        self._metadata = metadata
        self._flush_to = flush_to

    def handlers(self, handlers: Sequence[Handler]) -> Sequence[Handler]:
        """Return what to serve: everything."""
        return handlers

    def jobs(self) -> Sequence[Job]:
        """Return the jobs that store nothing: they settle what slaves claim of epochs."""
        return (self._claims.job,)

    def writing_jobs(self) -> Sequence[Job]:
        """Return the jobs that store by themselves."""
        return (*self._scheduled.jobs(), *self._transactions.jobs(), self._offset_moved.job())

    async def begin(self) -> None:
        """Find out what was delivered already: before the jobs begin."""
        await self._scheduled.begin()

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Take note of new messages."""
        self._scheduled.arrived(arrivals)

    def stepped(self, by_ms: int) -> None:
        """Note that the clock has moved by so much: ahead, or back."""
        self._store.session.clock_stepped(by_ms, self._store.max_physical)
        self._scheduled.stepped(by_ms)

    async def leave(self) -> None:
        """Do nothing: the jobs of a master wait for nobody but its own store."""

    async def settle(self) -> None:
        """Bring the progress of the jobs, which have ended, into the tables."""
        await self._scheduled.settle(self._flush_to)

    def fence(self, epoch: int, who: str) -> None:
        """Acknowledge nothing any more, if that epoch is above its own, and end the term."""
        self._replicas.fence(epoch, who)

    async def drain(self) -> None:
        """Store what transactions still have to store; slaves that keep up get all of it."""
        await self._transactions.settle()
        await self._replicas.settle(_SETTLE_TIMEOUT_S)
        await self._metadata.settle(_SETTLE_TIMEOUT_S)

    def close(self) -> None:
        """Let go of what transactions hold."""
        self._transactions.close()


class SlaveRole:
    """Duties of a slave: it follows.

    Args:
        following: Its stream from the master, and the tables that come beside it.
        refusals: Returns handlers as a slave has them.
    """

    def __init__(
        self,
        following: SlaveReplication,
        *,
        refusals: Callable[[Sequence[Handler]], Sequence[Handler]],
    ) -> None:
        self._following = following
        self._refusals = refusals

    def handlers(self, handlers: Sequence[Handler]) -> Sequence[Handler]:
        """Return what to serve: reads, and refusals of what its master alone does."""
        return self._refusals(handlers)

    def jobs(self) -> Sequence[Job]:
        """Return no job: a slave has no slaves that claim an epoch."""
        return ()

    def writing_jobs(self) -> Sequence[Job]:
        """Return the jobs that follow the master."""
        return self._following.jobs()

    async def begin(self) -> None:
        """Do nothing: a slave delivers nothing."""

    def arrived(self, arrivals: Sequence[Arrival]) -> None:
        """Do nothing: a slave delivers nothing."""

    def stepped(self, by_ms: int) -> None:
        """Do nothing: the records of a slave were stored by its master's clock."""

    async def leave(self) -> None:
        """Let go of the master: the steps under way end, and no other begins."""
        await self._following.leave()

    async def settle(self) -> None:
        """Keep how far the log is confirmed: the jobs have ended."""
        await self._following.end()

    def fence(self, epoch: int, who: str) -> None:
        """Do nothing: a slave acknowledges no sends, and learns its epoch from its master."""

    async def drain(self) -> None:
        """Do nothing: a slave answers no sends."""

    def close(self) -> None:
        """Do nothing: a slave checks no transactions."""
