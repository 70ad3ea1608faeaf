"""The check-back: producers are asked what became of open transactions.

A transaction is looked at when it is due, by itself: none waits for another. What cannot be read
now is looked at again later; what can never be read is given up, by name, in the log of errors.

Source: RocketMQ `TransactionalMessageServiceImpl.check`,
`AbstractTransactionalMessageCheckListener`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ternmq_broker.groups.sessions import SessionManager
from ternmq_broker.state.clients import ClientSession
from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_broker.storage.yielding import RECORDS_AT_ONCE, yield_to_requests
from ternmq_broker.transactions.check_policy import (
    CheckAction,
    CheckDecision,
    CheckPolicy,
    decide_check,
    is_left_behind,
)
from ternmq_broker.transactions.half_codec import HalfRecord, copy_of, parked_of
from ternmq_broker.transactions.half_reader import HalfReader
from ternmq_broker.transactions.table import OpenTransaction, TransactionTable
from ternmq_broker.transactions.transitions import TransitionRecord, Transitions
from ternmq_model.clock import Clock
from ternmq_model.errors import MessageRefused, TernError, UsageError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.properties import encode_properties
from ternmq_model.record.format import encode_record
from ternmq_protos.v1 import groups_pb2 as groups

logger = logging.getLogger(__name__)

_LOOKS_MAX: Final = 256
_STEP_BYTES: Final = 1 << 20
"""Limit on the half messages that one step asks for, moves or parks."""

_PLACES_MAX: Final = 4_096
"""Limit on the places of the half topic that one step looks at for staged half messages."""

_AGAIN_MS: Final = 1_000
"""Before a transaction on whose end somebody works is looked at again."""

_WHY_CHECKS: Final = "no producer told its end in time"
_WHY_AGE: Final = "its half message is older than messages are kept"
_WHY_EXPIRED: Final = "the time that it was staged for is over"
_WHY_UNREADABLE: Final = "its half message cannot be read any more"


@dataclass(slots=True)
class CheckCounts:
    """Counts of transactions that no producer ended, by fate, since the broker started."""

    asked: int = 0
    """Questions written to producers."""

    alone: int = 0
    """Looks at which no producer of the group was there."""

    moved: int = 0
    """Half messages copied behind the others without a question."""

    parked: int = 0
    """Given up and kept in TRANS_CHECK_MAX_TIME_TOPIC."""

    unreadable: int = 0
    """Given up because the half message is damaged or gone."""

    expired: int = 0
    """Staged ones that were rolled back because their time was over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckContext:
    """Parts that the check-back uses. All owned by the broker's loop."""

    table: TransactionTable
    transitions: Transitions
    halves: HalfReader
    sessions: SessionManager
    clock: Clock
    policy: CheckPolicy
    ready: asyncio.Event
    is_confirmed: Callable[[PhysicalOffset], bool]
    """Tells whether the record that begins there counts as stored."""

    holds_file: Callable[[PhysicalOffset], bool]
    """Tells whether an offset lies in a file that would have gone but for what it holds."""


@dataclass(slots=True)
class _CheckPlan:
    """Records that one step is to store."""

    copies: list[TransitionRecord] = field(default_factory=list[TransitionRecord])
    old: list[TransitionRecord] = field(default_factory=list[TransitionRecord])
    unanswered: list[TransitionRecord] = field(default_factory=list[TransitionRecord])
    expired: list[tuple[OpenTransaction, HalfRecord | None]] = field(
        default_factory=list[tuple[OpenTransaction, HalfRecord | None]]
    )
    bytes: int = 0

    def add(self, line: list[TransitionRecord], change: TransitionRecord) -> None:
        line.append(change)
        self.bytes += len(change.record.body)


class TransactionChecker:
    """Looks at due transactions. Owned by the broker's loop.

    Attributes:
        counts: What it did.
    """

    def __init__(self, context: CheckContext) -> None:
        self.counts = CheckCounts()
        self._context = context
        self._turn = 0
        self._expired: deque[OpenTransaction] = deque()

    async def step(self) -> bool:
        """Look at what is due, so much of it at once: one step of a job."""
        context = self._context
        if not context.ready.is_set():
            return False
        now_ms = context.clock.monotonic_ms()
        producers: dict[str, list[ClientSession]] = {}
        plan, looked = _CheckPlan(), 0
        more = False
        if not self._expired:
            expired, more = context.table.take_expired(now_ms, places_max=_PLACES_MAX)
            self._expired.extend(expired)
        while plan.bytes < _STEP_BYTES and looked < _LOOKS_MAX:
            if looked % RECORDS_AT_ONCE == RECORDS_AT_ONCE - 1:
                await yield_to_requests()
            due = context.table.take_due(now_ms, maximum=1)
            if not due and not self._expired:
                break
            looked += 1
            entry = due[0] if due else self._expired.popleft()
            if not context.table.is_open(entry):
                continue
            after_ms = context.policy.interval_ms
            try:
                after_ms = await self._look(entry, now_ms, producers, plan)
            except TernError as error:
                logger.warning(
                    "transaction not looked at transaction=%d error=%s", entry.transaction, error
                )
            finally:
                if context.table.is_open(entry):
                    context.table.rest(entry, until_ms=now_ms + after_ms)
        self._store(plan)
        return more or looked == _LOOKS_MAX or plan.bytes >= _STEP_BYTES

    async def _look(
        self,
        entry: OpenTransaction,
        now_ms: int,
        producers: dict[str, list[ClientSession]],
        plan: _CheckPlan,
    ) -> int:
        """Decide about one transaction; return when to look again."""
        context, policy = self._context, self._context.policy
        if entry.is_ending or not context.is_confirmed(entry.physical_offset):
            return _AGAIN_MS
        if (after_ms := self._undecided_ms(entry, now_ms, producers)) is not None:
            return after_ms
        offset = entry.physical_offset
        found = await context.halves.read(offset)
        if not context.table.is_open(entry) or entry.is_ending or entry.physical_offset != offset:
            return _AGAIN_MS
        if found is None:
            if entry.is_staged and entry.due_at_ms <= now_ms:
                plan.expired.append((entry, None))
            else:
                self._give_up(entry)
            return policy.interval_ms
        half, inner = found
        entry.group = half.group
        there = self._producers(half.group, producers)
        age_ms = now_ms - entry.began_at_ms
        decision = decide_check(half, policy, has_producer=bool(there), age_ms=age_ms)
        if decision.action is CheckAction.ASK and not self._ask(half, inner, there):
            decision = CheckDecision(CheckAction.ALONE, min(policy.timeout_ms, policy.interval_ms))
        self._plan(plan, decision, entry, half, inner)
        entry.is_alone = decision.action is CheckAction.ALONE
        if decision.action is CheckAction.WAIT:
            entry.quiet_until_ms = now_ms + decision.after_ms
        return min(decision.after_ms, policy.interval_ms)

    def _producers(self, group: str, known: dict[str, list[ClientSession]]) -> list[ClientSession]:
        if group not in known:
            known[group] = self._context.sessions.table.producers(group)
        return known[group]

    def _undecided_ms(
        self, entry: OpenTransaction, now_ms: int, producers: dict[str, list[ClientSession]]
    ) -> int | None:
        """Return when to look again at one of which nothing can have changed; None to read it."""
        policy = self._context.policy
        if entry.is_staged:
            return None
        if now_ms - entry.began_at_ms > policy.age_max_ms or self._must_move(entry):
            return None
        if entry.quiet_until_ms > now_ms:
            return min(policy.interval_ms, entry.quiet_until_ms - now_ms)
        if entry.is_alone and not self._producers(entry.group, producers):
            self.counts.alone += 1
            return min(policy.timeout_ms, policy.interval_ms)
        return None

    def _plan(
        self,
        plan: _CheckPlan,
        decision: CheckDecision,
        entry: OpenTransaction,
        half: HalfRecord,
        inner: InternalRecord,
    ) -> None:
        match decision.action:
            case CheckAction.ASK:
                self.counts.asked += 1
                copy = copy_of(inner, half, checks=half.checks + 1)
                plan.add(plan.copies, TransitionRecord(entry, half, copy))
            case CheckAction.PARK_AGE:
                plan.add(plan.old, TransitionRecord(entry, half, parked_of(inner, half)))
            case CheckAction.PARK_CHECKS:
                plan.add(plan.unanswered, TransitionRecord(entry, half, parked_of(inner, half)))
            case CheckAction.EXPIRE:
                plan.expired.append((entry, half))
                plan.bytes += len(inner.body)
            case CheckAction.WAIT | CheckAction.ALONE:
                self.counts.alone += decision.action is CheckAction.ALONE
                if self._must_move(entry):
                    self.counts.moved += 1
                    copy = copy_of(inner, half, checks=half.checks)
                    plan.add(plan.copies, TransitionRecord(entry, half, copy))

    def _must_move(self, entry: OpenTransaction) -> bool:
        context = self._context
        if entry.is_staged:
            return False
        return is_left_behind(
            behind=context.table.half_end - entry.queue_offset,
            policy=context.policy,
            holds_file=context.holds_file(entry.physical_offset),
        )

    def _ask(self, half: HalfRecord, inner: InternalRecord, there: list[ClientSession]) -> bool:
        """Ask one of the producers that are there, each in its turn; False when none hears it."""
        question = groups.CheckTransaction(
            producer_group=half.group,
            transaction_offset=half.transaction,
            message_id=half.message_id,
            transaction_id=half.transaction_id,
            record=_record_for(half, inner),
            check=half.checks + 1,
        )
        reply = groups.SessionReply(check_transaction=question)
        self._turn += 1
        count = len(there)
        return any(
            self._context.sessions.command(there[(self._turn + step) % count], reply)
            for step in range(count)
        )

    def _store(self, plan: _CheckPlan) -> None:
        """Store what was planned of what is still open: nothing else ran since that was looked at.

        What cannot be stored now is as it was: asked for once more.
        """
        for changes, why in (
            (plan.copies, ""),
            (plan.old, _WHY_AGE),
            (plan.unanswered, _WHY_CHECKS),
        ):
            self._store_all(changes, why)
        self._roll_back([pair for pair in plan.expired if self._is_untouched(*pair)])

    def _is_untouched(self, entry: OpenTransaction, half: HalfRecord | None) -> bool:
        return self._context.table.is_open(entry) and not entry.is_ending

    def _roll_back(self, expired: Sequence[tuple[OpenTransaction, HalfRecord | None]]) -> None:
        """Roll back what was staged and is over, all by one op message."""
        if not expired:
            return
        try:
            self._context.transitions.expire(expired, why=_WHY_EXPIRED)
        except TernError as error:
            logger.warning("staged not rolled back yet count=%d error=%s", len(expired), error)
            return
        gone = sum(half is None for _, half in expired)
        self.counts.expired += len(expired)
        self.counts.unreadable += gone
        first = next((half for _, half in expired if half is not None), None)
        logger.warning(
            "staged rolled back, its time is over count=%d unreadable=%d group=%s first_of=%s",
            *(len(expired), gone),
            *(("", "") if first is None else (first.group, first.staged_for)),
        )

    def _store_all(self, changes: Sequence[TransitionRecord], why: str) -> None:
        still = [change for change in changes if self._is_same(change)]
        if not still:
            return
        try:
            if why:
                self._context.transitions.park(still, why=why)
            else:
                self._context.transitions.put_back(still)
        except (UsageError, MessageRefused) as error:
            # One of them can never be stored: the others can.
            if len(still) > 1:
                for change in still:
                    self._store_all([change], why)
            else:
                self._never_stored(still[0], why, error)
            return
        except TernError as error:
            logger.warning("half messages not stored count=%d error=%s", len(still), error)
            return
        if why:
            self.counts.parked += len(still)
            for half in [change.half for change in still]:
                logger.warning(
                    "transaction parked transaction=%d group=%s topic=%s message=%s reason=%s",
                    *(half.transaction, half.group, half.topic, half.message_id, why),
                )

    def _never_stored(self, change: TransitionRecord, why: str, error: TernError) -> None:
        """Leave a half message where it is that no log can hold once more, or end it at last.

        Only another broker can have taken it: it is as long as properties can be.
        """
        half = change.half
        logger.warning(
            "half message cannot be stored again transaction=%d group=%s error=%s",
            *(half.transaction, half.group, error),
        )
        if why:
            try:
                self._context.transitions.give_up(change.entry, why=why)
            except TernError as refused:
                logger.warning("transaction not given up error=%s", refused)

    def _is_same(self, change: TransitionRecord) -> bool:
        entry = change.entry
        return (
            self._context.table.is_open(entry)
            and not entry.is_ending
            and entry.physical_offset == change.half.physical_offset
        )

    def _give_up(self, entry: OpenTransaction) -> None:
        """Let a transaction go whose half message is damaged or gone; nobody can see it.

        Raises:
            TernError: That could not be stored; it is looked at again.
        """
        logger.error(
            "transaction given up transaction=%d offset=%d group=%s reason=%s",
            *(entry.transaction, entry.physical_offset, entry.group, _WHY_UNREADABLE),
        )
        self._context.transitions.give_up(entry, why=_WHY_UNREADABLE)
        self.counts.unreadable += 1


def _record_for(half: HalfRecord, inner: InternalRecord) -> bytes:
    """Return the message as a producer is shown it: with the topic and queue it is meant for."""
    host = inner.born_host
    return encode_record(
        topic=half.topic.encode(),
        queue_id=half.queue_id,
        body=inner.body,
        properties=encode_properties(inner.properties),
        flag=inner.flag,
        sys_flag=inner.sys_flag,
        queue_offset=half.queue_offset,
        physical_offset=half.physical_offset,
        born_at_ms=inner.born_at_ms,
        born_host=host,
        stored_at_ms=half.stored_at_ms,
        store_host=bytes(8),
        reconsume_times=inner.reconsume_times,
    )
