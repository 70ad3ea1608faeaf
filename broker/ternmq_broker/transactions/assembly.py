"""Transactions of one broker: the modules of this room, wired to each other."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import numpy as np

from ternmq_broker.config import BrokerConfig
from ternmq_broker.groups.sessions import SessionManager
from ternmq_broker.state.offsets import OffsetTable
from ternmq_broker.state.topics import TopicTable
from ternmq_broker.state.transaction_scan_offset import GROUP, ScanOffset
from ternmq_broker.storage.ack_policy import AckPolicy
from ternmq_broker.storage.internal_append import InternalWriter
from ternmq_broker.storage.reader import StoreReader
from ternmq_broker.storage.real_topics import RealTopics
from ternmq_broker.storage.routed_batch import NOT_STAGED, STAGED_OWN
from ternmq_broker.storage.system_topic_routing import RoutingRules
from ternmq_broker.transactions.check_back import CheckContext, TransactionChecker
from ternmq_broker.transactions.check_policy import CheckPolicy
from ternmq_broker.transactions.check_policy import staged_ms as staged_lasts_ms
from ternmq_broker.transactions.end_lookup import EndLookup
from ternmq_broker.transactions.end_transaction import EndContext, EndTransactionProcessor
from ternmq_broker.transactions.half_reader import HalfReader
from ternmq_broker.transactions.open_batches import OpenBatches
from ternmq_broker.transactions.readiness import Readiness
from ternmq_broker.transactions.recovery import RecoveryContext, TransactionRecovery
from ternmq_broker.transactions.service import TransactionService
from ternmq_broker.transactions.staged_commits import StagedCommits
from ternmq_broker.transactions.state_lookup import StateLookup
from ternmq_broker.transactions.table import TransactionTable
from ternmq_broker.transactions.transitions import Transitions
from ternmq_model.arrays import Ints
from ternmq_model.clock import Clock
from ternmq_model.errors import RefusedError, TernError, refusal
from ternmq_model.names import CHECK_MAX_TOPIC, HALF_TOPIC, OP_TOPIC
from ternmq_model.offsets import PhysicalOffset, QueueOffset
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import TopicConfig
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_runtime.service import Job
from ternmq_store.message_store import MessageStore

logger = logging.getLogger(__name__)

TOPICS: Final = (HALF_TOPIC, OP_TOPIC, CHECK_MAX_TOPIC)

_PAUSE_S: Final = 0.5
_SPAN_MAX: Final = 100_000
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, kw_only=True, slots=True)
class TransactionContext:
    """Parts of the broker that transactions use. All owned by the broker's loop."""

    config: BrokerConfig
    file_reserved_hours: int
    store: MessageStore
    reader: StoreReader
    writer: InternalWriter
    ack_policy: AckPolicy
    space_made: Callable[[], Awaitable[bool]]
    store_host: Callable[[], bytes]
    topics: TopicTable
    real_topics: RealTopics
    topic_created: Callable[[TopicConfig], None]
    offsets: OffsetTable
    scan_offset: ScanOffset
    sessions: SessionManager
    clock: Clock
    is_clock_doubted: Callable[[], bool]
    is_closing: Callable[[], bool]
    storing: Callable[[], AbstractContextManager[None]]
    """Counts a call that stores: a stop waits for it."""

    rules: Callable[[], RoutingRules]
    """Tells by what delays are followed at this moment."""

    open_max: Callable[[], int]
    """Tells how many may be open at this moment."""


class Transactions:
    """The transactions of one broker. Owned by the broker's loop."""

    def __init__(self, context: TransactionContext) -> None:
        self._context = context
        config, store = context.config, context.store
        self.table = TransactionTable()
        self._ready = asyncio.Event()
        self._is_blind = False
        self._policy = CheckPolicy(
            timeout_ms=config.transaction_timeout_ms,
            interval_ms=config.transaction_check_interval_ms,
            checks_max=config.transaction_checks_max,
            age_max_ms=max(1, context.file_reserved_hours) * _HOUR_MS,
            span_max=_SPAN_MAX,
        )
        self._halves = HalfReader(context.reader)
        self._transitions = Transitions(
            self.table,
            context.writer,
            context.clock,
            store_host=context.store_host,
            space_made=context.space_made,
            op_bytes_max=config.transaction_op_bytes,
        )
        self.checker = TransactionChecker(
            CheckContext(
                table=self.table,
                transitions=self._transitions,
                halves=self._halves,
                sessions=context.sessions,
                clock=context.clock,
                policy=self._policy,
                ready=self._ready,
                is_confirmed=lambda at: context.ack_policy.confirmations.reached(
                    PhysicalOffset(at + 1)
                ),
                holds_file=lambda at: at < store.cleaner.held_end,
            )
        )
        self.service = self._service()
        self._recovery = self._recovery_dependencies(store)
        store.cleaner.holders.append(self.needed_from)

    def _service(self) -> TransactionService:
        context = self._context
        readiness = Readiness(self._ready, context.is_closing)
        end_lookup = EndLookup(self.table, self._halves)
        ender = EndTransactionProcessor(
            EndContext(
                table=self.table,
                transitions=self._transitions,
                halves=self._halves,
                topics=context.real_topics,
                ack_policy=context.ack_policy,
                staged=StagedCommits(
                    context.reader, self._transitions, context.real_topics, context.ack_policy
                ),
                readiness=readiness,
                storing=context.storing,
                end_lookup=end_lookup,
                rules=context.rules,
            )
        )
        states = StateLookup(
            table=self.table,
            halves=self._halves,
            topics=context.real_topics,
            ack_policy=context.ack_policy,
            readiness=readiness,
            end_lookup=end_lookup,
            ender=ender,
            clock=context.clock,
        )
        batches = OpenBatches(
            table=self.table,
            halves=self._halves,
            clock=context.clock,
            readiness=readiness,
            ender=ender,
        )
        return TransactionService(ender, states, batches)

    def _recovery_dependencies(self, store: MessageStore) -> RecoveryContext:
        context = self._context
        half = context.offsets.query(GROUP, HALF_TOPIC, 0)
        done = context.offsets.query(GROUP, OP_TOPIC, 0)
        # An op offset counts only beside the half offset that it was kept for.
        is_kept = half is not None and done is not None
        return RecoveryContext(
            table=self.table,
            halves=self._halves,
            clock=context.clock,
            is_doubted=context.is_clock_doubted,
            policy=self._policy,
            half_offset=QueueOffset(0) if half is None else half,
            op_offset=done if is_kept and done is not None else QueueOffset(0),
            scan_offset=context.scan_offset.offset,
            end=store.max_physical,
        )

    def jobs(self) -> Sequence[Job]:
        """Return what runs beside the requests."""
        ops_s = self._context.config.transaction_op_interval_ms / 1000
        return (
            Job(name="transactions", interval_s=_PAUSE_S, step=self.step),
            Job(name="transactions-ops", interval_s=ops_s, step=self.write_ops),
        )

    async def step(self) -> bool:
        """Find out what is open, then ask for it, and keep how far all is: one step of a job."""
        if not self._ready.is_set() and not await self._recovered():
            return False
        more = await self.checker.step()
        self._keep()
        return more

    async def _recovered(self) -> bool:
        """Find out what the log says, if it can be read already; tell whether that succeeded."""
        store = self._context.store
        if store.dispatched_offset < self._recovery.end and store.failure is None:
            return False
        try:
            await TransactionRecovery(self._recovery).run()
        except (RefusedError, OSError) as error:
            if not self._is_blind:
                self._is_blind = True
                logger.error("what became of transactions cannot be read yet error=%s", error)
            return False
        self.table.know_work_from(self._context.clock.monotonic_ms())
        self._ready.set()
        return True

    async def write_ops(self) -> bool:
        """Write what the op topic lacks: one step of a job."""
        try:
            self._transitions.write_ops()
        except TernError as error:
            logger.warning("op message not stored yet error=%s", error)
        return False

    def _keep(self) -> None:
        """Keep how far the two topics are done with."""
        context, table = self._context, self.table
        flushed, now_ms = context.store.flushed_offset, context.clock.wall_ms()
        half = table.half_offset(flushed)
        if half > 0:
            for topic, offset in ((HALF_TOPIC, half), (OP_TOPIC, table.op_offset(half))):
                version = context.offsets.versions.get(GROUP, topic, 0)
                context.offsets.commit(GROUP, topic, 0, offset, version, now_ms=now_ms)
        if len(table) or table.unwritten_bytes:
            context.scan_offset.put(table.scan_offset(flushed))

    async def settle(self) -> None:
        """Leave nothing for the next start to look for: nobody ends transactions any more."""
        if self._ready.is_set():
            await self.write_ops()

    def close(self) -> None:
        """Keep how far all is, after `settle`."""
        if self._ready.is_set():
            self._keep()

    def begun(self, physical_offsets: Ints, queue_offsets: Ints, staged_ms: Ints) -> None:
        """Take note of half messages that were appended just now.

        Args:
            physical_offsets: Of each.
            queue_offsets: Of each, ascending.
            staged_ms: How long each is staged; `STAGED_OWN` = as this broker waits, `NOT_STAGED`.
        """
        now_ms = self._context.clock.monotonic_ms()
        for own_ms in np.unique(staged_ms).tolist():
            rows = staged_ms == own_ms
            places = physical_offsets[rows].tolist()
            numbers = queue_offsets[rows].tolist()
            if own_ms == NOT_STAGED:
                due_at_ms = now_ms + self._policy.timeout_ms
                self.table.begin(places, numbers, now_ms=now_ms, due_at_ms=due_at_ms)
            else:
                told_ms = None if own_ms == STAGED_OWN else own_ms
                due_at_ms = now_ms + staged_lasts_ms(told_ms, self._policy)
                self.table.stage(places, numbers, now_ms=now_ms, due_at_ms=due_at_ms)
        self.make_topics()

    def make_topics(self) -> None:
        """Have the topics of transactions among the broker's."""
        context = self._context
        for topic in TOPICS:
            if context.topics.get(topic) is None:
                config = TopicConfig(topic, 1, 1)
                context.topics.put(config, now_ms=context.clock.wall_ms())
                context.topic_created(config)

    def refusal(self) -> RefusedError | None:
        """Return why no transaction may begin now; None when it may."""
        context = self._context
        if not context.config.transactions_accepted:
            return refusal(ResponseCode.NO_PERMISSION, "this broker accepts no transactions")
        if len(self.table) >= context.open_max():
            remark = (
                f"{len(self.table)} transactions are open, {self.table.staged} of them staged: no "
                "more are accepted (broker.transactions_open_max; what is left behind is told by "
                "`ternmq transaction list`)"
            )
            return refusal(ResponseCode.FLOW_CONTROL, remark)
        return None

    def needed_from(self) -> PhysicalOffset | None:
        """Return where the oldest open half message lies; None when there is none.

        Until it is known what is open, all of the log is needed.
        """
        if not self._ready.is_set():
            return PhysicalOffset(0)
        return self.table.lowest_place()

    def describe(self) -> admin.OpenTransactions:
        """Return what operators are told."""
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
