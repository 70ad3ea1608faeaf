"""Transactions of one broker: the modules of this folder, wired to each other."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from ternmq_broker.config import BrokerConfig
from ternmq_broker.environment import BrokerEnvironment
from ternmq_broker.groups.sessions import SessionManager
from ternmq_broker.state.transaction_scan_offset import GROUP
from ternmq_broker.storage.ack_policy import AckPolicy
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.real_topics import RealTopics
from ternmq_broker.storage.routed_batch import NOT_STAGED, STAGED_OWN
from ternmq_broker.storage.system_topic_routing import RoutingRules
from ternmq_broker.transactions.check_back import TransactionChecker
from ternmq_broker.transactions.check_policy import CheckPolicy
from ternmq_broker.transactions.check_policy import staged_ms as staged_lasts_ms
from ternmq_broker.transactions.end_lookup import EndLookup
from ternmq_broker.transactions.end_transaction import EndTransactionProcessor
from ternmq_broker.transactions.half_reader import HalfReader
from ternmq_broker.transactions.open_batches import OpenBatches
from ternmq_broker.transactions.recovery import TransactionRecovery
from ternmq_broker.transactions.service import TransactionService
from ternmq_broker.transactions.table import TransactionTable
from ternmq_broker.transactions.transitions import EndCounts, Transitions
from ternmq_model.arrays import Ints
from ternmq_model.errors import RefusedError, TernError, refusal
from ternmq_model.names import CHECK_MAX_TOPIC, HALF_TOPIC, OP_TOPIC
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_runtime.service import Job

logger = logging.getLogger(__name__)

TOPICS: Final = (HALF_TOPIC, OP_TOPIC, CHECK_MAX_TOPIC)

_PAUSE_S: Final = 0.5
_SPAN_MAX: Final = 100_000
_HOUR_MS: Final = 3_600_000


class Transactions:
    """The transactions of one broker. Owned by the broker's loop.

    Args:
        env: Settings, store and tables of the term.
        writer: Stores half, op and committed messages.
        ack_policy: Decides when an end is answered.
        real_topics: Finds the topics of committed messages.
        sessions: Sessions of the producers that are asked.
        rules: Returns the present rules for delays.
    """

    def __init__(
        self,
        env: BrokerEnvironment,
        writer: InternalWriter,
        ack_policy: AckPolicy,
        real_topics: RealTopics,
        sessions: SessionManager,
        *,
        rules: Callable[[], RoutingRules],
    ) -> None:
        config, store, clock = env.live.broker, env.store, env.clock
        self._env = env
        self.table = table = TransactionTable()
        self._ready = asyncio.Event()
        self._is_failing = False
        self._recovered_end = store.max_physical
        self._policy = _check_policy(config, file_reserved_hours=env.live.store.file_reserved_hours)
        self._halves = halves = HalfReader(env.reader, ack_policy)
        self._transitions = Transitions(
            table, writer, clock, op_bytes_max=config.transaction_op_bytes
        )
        self.checker = TransactionChecker(
            transitions=self._transitions,
            halves=halves,
            sessions=sessions,
            clock=clock,
            policy=self._policy,
            holds_file=lambda at: at < store.cleaner.held_end,
        )
        ender = EndTransactionProcessor(
            transitions=self._transitions,
            halves=halves,
            topics=real_topics,
            end_lookup=EndLookup(table, halves),
            ready=self._ready,
            admission=env.admission,
            rules=rules,
        )
        batches = OpenBatches(ender, clock)
        self.service = TransactionService(ender, batches, clock)
        store.cleaner.holders.append(self.needed_from)

    def jobs(self) -> Sequence[Job]:
        """Return the jobs of check-back and of op messages."""
        ops_s = self._env.live.broker.transaction_op_interval_ms / 1000
        return (
            Job(name="transactions", interval_s=_PAUSE_S, step=self.step, due_in_s=self._due_in_s),
            Job(name="transactions-ops", interval_s=ops_s, step=self.write_ops),
        )

    async def step(self) -> bool:
        """Recover the table, then check due transactions and store progress: one step of a job."""
        if not self._ready.is_set() and not await self._recover():
            return False
        more = await self.checker.step()
        self._keep()
        return more

    def _due_in_s(self) -> float:
        """Return the time until a transaction is due to be checked, s."""
        return (self.table.due_at_ms() - self._env.clock.monotonic_ms()) / 1000

    async def _recover(self) -> bool:
        """Fill the table from the log, if it can be read already; return whether that succeeded."""
        store = self._env.store
        if store.dispatched_offset < self._recovered_end and store.failure is None:
            return False
        recovery = TransactionRecovery(
            self._env, self.table, self._halves, self._policy, self._recovered_end
        )
        try:
            await recovery.run()
        except (RefusedError, OSError) as error:
            if not self._is_failing:
                self._is_failing = True
                logger.error("states of transactions cannot be read yet err=%s", error)
            return False
        self.table.work_known_from_ms = self._env.clock.monotonic_ms()
        self._ready.set()
        return True

    async def write_ops(self) -> bool:
        """Write the op message that is due: one step of a job."""
        try:
            self._transitions.write_ops()
        except TernError as error:
            logger.warning("op message not stored yet err=%s", error)
        return False

    def _keep(self) -> None:
        offsets, table = self._env.tables.offsets, self.table
        flushed, now_ms = self._env.store.flushed_offset, self._env.clock.wall_ms()
        half = table.half_offset(flushed)
        if half > 0:
            for topic, offset in ((HALF_TOPIC, half), (OP_TOPIC, table.op_offset(half))):
                version = offsets.versions.get(GROUP, topic, 0)
                offsets.commit(GROUP, topic, 0, offset, version, now_ms=now_ms)
        if len(table) or table.unwritten_bytes:
            self._env.tables.scan_offset.offset = table.scan_offset(flushed)

    async def settle(self) -> None:
        """Write the last op message, after the last end of a transaction."""
        if self._ready.is_set():
            await self.write_ops()

    def close(self) -> None:
        """Store progress, after `settle`."""
        if self._ready.is_set():
            self._keep()

    def begun(
        self,
        physical_offsets: Ints,
        queue_offsets: Ints,
        staged_ms: Ints,
        topics: Sequence[str],
    ) -> None:
        """Open the transactions of half messages that were just appended.

        Args:
            physical_offsets: Log offsets of the half messages.
            queue_offsets: Offsets of the half messages in the half queue, ascending.
            staged_ms: Staging time of each message; `STAGED_OWN` = the broker's, or `NOT_STAGED`.
            topics: Real topic of each message.
        """
        now_ms = self._env.clock.monotonic_ms()
        for own_ms in np.unique(staged_ms).tolist():
            rows, is_staged = staged_ms == own_ms, own_ms != NOT_STAGED
            lasts_ms = self._policy.timeout_ms
            if is_staged:
                lasts_ms = staged_lasts_ms(None if own_ms == STAGED_OWN else own_ms, self._policy)
            self.table.begin(
                physical_offsets[rows].tolist(),
                queue_offsets[rows].tolist(),
                now_ms=now_ms,
                due_at_ms=now_ms + lasts_ms,
                topics=itertools.compress(topics, rows.tolist()),
                is_staged=is_staged,
            )
        for topic in TOPICS:
            if self._env.tables.topics.add_missing(topic, now_ms=self._env.clock.wall_ms()):
                self._env.registrar.changed()

    @property
    def ends(self) -> Mapping[str, EndCounts]:
        """Ends of transactions by topic, read-only."""
        return self._transitions.ends

    def forget_topic(self, topic: str) -> None:
        """Remove the counts of a deleted topic. Its open transactions stay."""
        self._transitions.ends.pop(topic, None)
        self.checker.counts.topics.pop(topic, None)

    def refusal(self) -> RefusedError | None:
        """Return why no transaction may begin now; None when it may."""
        settings = self._env.live.broker
        if not settings.transactions_accepted:
            return refusal(ResponseCode.NO_PERMISSION, "this broker accepts no transactions")
        if len(self.table) >= settings.transactions_open_max:
            remark = (
                f"{len(self.table)} transactions are open, {self.table.staged} of them staged: no "
                "more are accepted (broker.transactions_open_max; `ternmq transaction list` lists "
                "them)"
            )
            return refusal(ResponseCode.FLOW_CONTROL, remark)
        return None

    def needed_from(self) -> PhysicalOffset | None:
        """Return the log offset of the oldest open half message; None when there is none.

        All of the log is needed until the table is filled.
        """
        if not self._ready.is_set():
            return PhysicalOffset(0)
        return self.table.lowest_physical_offset()

    def describe(self) -> admin.OpenTransactions:
        """Return the counts of transactions for operators."""
        counts = self.checker.counts
        return admin.OpenTransactions(
            open=len(self.table),
            committed=self.table.committed,
            rolled_back=self.table.rolled_back,
            asked=counts.asked,
            alone=counts.alone,
            parked=counts.parked,
            unreadable=counts.unreadable,
            staged=self.table.staged,
            expired=counts.expired,
        )


def _check_policy(config: BrokerConfig, *, file_reserved_hours: int) -> CheckPolicy:
    return CheckPolicy(
        timeout_ms=config.transaction_timeout_ms,
        interval_ms=config.transaction_check_interval_ms,
        checks_max=config.transaction_checks_max,
        age_max_ms=max(1, file_reserved_hours) * _HOUR_MS,
        span_max=_SPAN_MAX,
    )
