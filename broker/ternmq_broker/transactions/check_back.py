"""Check-back: questions to producers about the ends of open transactions.

Each transaction has its own time of the next check: none waits for another. A half message that
cannot be read now is checked again later; a half message that can never be read is given up, and
the error log names it.

Source: RocketMQ `TransactionalMessageServiceImpl.check`,
`AbstractTransactionalMessageCheckListener`.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ternmq_broker.groups.sessions import SessionManager
from ternmq_broker.state.clients import ClientSession
from ternmq_broker.storage.internal_record import InternalRecord
from ternmq_broker.storage.yielding import RECORDS_AT_ONCE, yield_to_requests
from ternmq_broker.transactions.check_policy import (
    CheckAction,
    CheckPolicy,
    decide_check,
    must_be_copied,
)
from ternmq_broker.transactions.half_codec import HalfRecord, copy_of, parked_of
from ternmq_broker.transactions.half_reader import HalfReader
from ternmq_broker.transactions.table import OpenTransaction
from ternmq_broker.transactions.transitions import TransitionRecord, Transitions
from ternmq_model.clock import Clock
from ternmq_model.errors import MessageRefused, TernError, UsageError
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.properties import encode_properties
from ternmq_model.record.format import encode_record
from ternmq_protos.v1 import groups_pb2 as groups

logger = logging.getLogger(__name__)

_CHECKS_MAX: Final = 256
_STEP_BYTES: Final = 1 << 20
"""Limit on the bytes of half messages that one step asks about, copies or parks."""

_OFFSETS_MAX: Final = 4_096
"""Limit on the offsets of the half topic that one step tries for staged half messages."""

_AGAIN_MS: Final = 1_000
"""Time until the next check of a transaction on whose end a request works."""

_WHY_EXPIRED: Final = "its staging time is over"
_WHY_UNREADABLE: Final = "its half message cannot be read any more"
_COPIES: Final = ""
_WHYS: Final = {
    CheckAction.PARK_AGE: "its half message is older than the log keeps messages",
    CheckAction.PARK_CHECKS: "no producer ended it in time",
}


@dataclass(slots=True)
class CheckCounts:
    """Counts of transactions that no producer ended, by fate, since the broker started."""

    asked: int = 0
    """Questions written to producers."""

    alone: int = 0
    """Checks at which no producer of the group was connected."""

    moved: int = 0
    """Half messages copied behind the others without a question."""

    parked: int = 0
    """Transactions given up, with their half messages in TRANS_CHECK_MAX_TIME_TOPIC."""

    unreadable: int = 0
    """Transactions given up because the half message is damaged or gone."""

    expired: int = 0
    """Staged transactions rolled back at the end of their staging time."""

    topics: Counter[str] = field(default_factory=Counter[str])
    """Questions written to producers, by topic."""


@dataclass(slots=True)
class _CheckPlan:
    """Records that one step is to store."""

    changes: dict[str, list[TransitionRecord]] = field(
        default_factory=lambda: {_COPIES: [], **{why: [] for why in _WHYS.values()}}
    )
    """Copies, and messages to be parked, by the reason."""

    expired: list[tuple[OpenTransaction, HalfRecord | None]] = field(
        default_factory=list[tuple[OpenTransaction, HalfRecord | None]]
    )
    producers: dict[str, list[ClientSession]] = field(
        default_factory=dict[str, list[ClientSession]]
    )
    """Connected producers by group."""

    bytes: int = 0

    def add(
        self, why: str, entry: OpenTransaction, half: HalfRecord, record: InternalRecord
    ) -> None:
        self.changes[why].append(TransitionRecord(entry, half, record))
        self.bytes += len(record.body)


@dataclass(kw_only=True, slots=True, eq=False)
class TransactionChecker:
    """Checker of due transactions. Owned by the broker's loop."""

    transitions: Transitions
    halves: HalfReader
    sessions: SessionManager
    clock: Clock
    policy: CheckPolicy
    holds_file: Callable[[PhysicalOffset], bool]
    """Returns whether an offset lies in a file that only open half messages still need."""

    counts: CheckCounts = field(default_factory=CheckCounts, init=False)
    _turn: int = field(default=0, init=False)
    _expired: deque[OpenTransaction] = field(default_factory=deque[OpenTransaction], init=False)

    async def step(self) -> bool:
        """Check a bounded number of due transactions: one step of a job."""
        table, now_ms = self.transitions.table, self.clock.monotonic_ms()
        plan, checked = _CheckPlan(), 0
        more = False
        if not self._expired:
            expired, more = table.take_expired(now_ms, offsets_max=_OFFSETS_MAX)
            self._expired.extend(expired)
        while plan.bytes < _STEP_BYTES and checked < _CHECKS_MAX:
            if checked % RECORDS_AT_ONCE == RECORDS_AT_ONCE - 1:
                await yield_to_requests()
            entry = table.take_due(now_ms)
            if entry is None:
                if not self._expired:
                    break
                entry = self._expired.popleft()
            checked += 1
            if not table.is_open(entry):
                continue
            after_ms = self.policy.interval_ms
            try:
                after_ms = await self._check(entry, now_ms, plan)
            except TernError as error:
                logger.warning(
                    "transaction not checked transaction=%d err=%s", entry.transaction, error
                )
            finally:
                if table.is_open(entry):
                    table.rest(entry, until_ms=now_ms + after_ms)
        # A transaction with a record that cannot be stored now is unchanged, and checked once more.
        for why, changes in plan.changes.items():
            self._store(changes, why)
        self._expire([pair for pair in plan.expired if self._is_unclaimed(pair[0])])
        return more or checked == _CHECKS_MAX or plan.bytes >= _STEP_BYTES

    async def _check(self, entry: OpenTransaction, now_ms: int, plan: _CheckPlan) -> int:
        """Decide about one transaction; return the time until its next check."""
        policy, offset = self.policy, entry.physical_offset
        if entry.is_ending or not self.halves.is_confirmed(offset):
            return _AGAIN_MS
        if (after_ms := self._undecided_ms(entry, now_ms, plan)) is not None:
            return after_ms
        found = await self.halves.read(offset)
        if not self._is_unclaimed(entry) or entry.physical_offset != offset:
            return _AGAIN_MS
        if found is None:
            if entry.is_staged and entry.due_at_ms <= now_ms:
                plan.expired.append((entry, None))
            else:
                self._give_up(entry)
            return policy.interval_ms
        half, record = found
        entry.group = half.group
        there = self._producers(half.group, plan)
        age_ms = now_ms - entry.began_at_ms
        decision = decide_check(half, policy, has_producer=bool(there), age_ms=age_ms)
        if decision.action is CheckAction.ASK and not self._ask(half, record, there):
            decision = policy.alone
        match decision.action:
            case CheckAction.ASK:
                self.counts.asked += 1
                self.counts.topics[half.topic] += 1
                plan.add(_COPIES, entry, half, copy_of(record, half, checks=half.checks + 1))
            case CheckAction.PARK_AGE | CheckAction.PARK_CHECKS:
                plan.add(_WHYS[decision.action], entry, half, parked_of(record, half))
            case CheckAction.EXPIRE:
                plan.expired.append((entry, half))
                plan.bytes += len(record.body)
            case CheckAction.WAIT | CheckAction.ALONE:
                self.counts.alone += decision.action is CheckAction.ALONE
                if self._must_move(entry):
                    self.counts.moved += 1
                    plan.add(_COPIES, entry, half, copy_of(record, half, checks=half.checks))
        entry.is_alone = decision.action is CheckAction.ALONE
        if decision.action is CheckAction.WAIT:
            entry.quiet_until_ms = now_ms + decision.after_ms
        return min(decision.after_ms, policy.interval_ms)

    def _producers(self, group: str, plan: _CheckPlan) -> list[ClientSession]:
        if group not in plan.producers:
            plan.producers[group] = self.sessions.table.producers(group)
        return plan.producers[group]

    def _undecided_ms(self, entry: OpenTransaction, now_ms: int, plan: _CheckPlan) -> int | None:
        """Return the time until the next check, without a read; None = the half must be read."""
        policy = self.policy
        if (
            entry.is_staged
            or now_ms - entry.began_at_ms > policy.age_max_ms
            or self._must_move(entry)
        ):
            return None
        if entry.quiet_until_ms > now_ms:
            return min(policy.interval_ms, entry.quiet_until_ms - now_ms)
        if entry.is_alone and not self._producers(entry.group, plan):
            self.counts.alone += 1
            return policy.alone.after_ms
        return None

    def _must_move(self, entry: OpenTransaction) -> bool:
        return not entry.is_staged and must_be_copied(
            behind=self.transitions.table.half_end - entry.queue_offset,
            policy=self.policy,
            holds_file=self.holds_file(entry.physical_offset),
        )

    def _ask(self, half: HalfRecord, record: InternalRecord, there: list[ClientSession]) -> bool:
        """Ask a connected producer, each in its turn; return whether the question was sent."""
        question = groups.CheckTransaction(
            producer_group=half.group,
            transaction_offset=half.transaction,
            message_id=half.message_id,
            transaction_id=half.transaction_id,
            record=_record_for(half, record),
            check=half.checks + 1,
        )
        reply = groups.SessionReply(check_transaction=question)
        self._turn += 1
        count = len(there)
        return any(
            self.sessions.command(there[(self._turn + step) % count], reply)
            for step in range(count)
        )

    def _is_unclaimed(self, entry: OpenTransaction) -> bool:
        return self.transitions.table.is_open(entry) and not entry.is_ending

    def _expire(self, expired: Sequence[tuple[OpenTransaction, HalfRecord | None]]) -> None:
        """Roll back staged transactions, all by one op message."""
        if not expired:
            return
        try:
            self.transitions.roll_back(expired, why=_WHY_EXPIRED)
        except TernError as error:
            logger.warning("staged rows not rolled back yet count=%d err=%s", len(expired), error)
            return
        gone = sum(half is None for _, half in expired)
        self.counts.expired += len(expired)
        self.counts.unreadable += gone
        first = next((half for _, half in expired if half is not None), None)
        logger.warning(
            "staged rows rolled back after their timeout count=%d unreadable=%d group=%s"
            " first_of=%s",
            len(expired),
            gone,
            "" if first is None else first.group,
            "" if first is None else first.staged_for,
        )

    def _store(self, changes: Sequence[TransitionRecord], why: str) -> None:
        """Store copies, or park for a reason, the half messages unchanged since their check."""
        same = [
            change
            for change in changes
            if self._is_unclaimed(change.entry)
            and change.entry.physical_offset == change.half.physical_offset
        ]
        if not same:
            return
        try:
            if why:
                self.transitions.park(same, why=why)
            else:
                self.transitions.put_back(same)
        except (UsageError, MessageRefused) as error:
            # One record can never be stored: the others can.
            if len(same) > 1:
                for change in same:
                    self._store([change], why)
            else:
                self._never_stored(same[0], why, error)
            return
        except TernError as error:
            logger.warning("half messages not stored count=%d err=%s", len(same), error)
            return
        if why:
            self.counts.parked += len(same)
            for change in same:
                half = change.half
                logger.warning(
                    "transaction parked transaction=%d group=%s topic=%s message_id=%s reason=%s",
                    half.transaction,
                    half.group,
                    half.topic,
                    half.message_id,
                    why,
                )

    def _never_stored(self, change: TransitionRecord, why: str, error: TernError) -> None:
        """Leave a half message that cannot be stored again in its place, or roll it back at last.

        Its properties have the greatest length, so that a copy has no space for its own: only
        another broker accepts such a message.
        """
        half = change.half
        logger.warning(
            "half message cannot be stored again transaction=%d group=%s err=%s",
            half.transaction,
            half.group,
            error,
        )
        if why:
            try:
                self.transitions.roll_back([(change.entry, None)], why=why)
            except TernError as refused:
                logger.warning("transaction not given up err=%s", refused)

    def _give_up(self, entry: OpenTransaction) -> None:
        """Roll back a transaction whose half message is damaged or gone.

        Raises:
            TernError: The roll-back was not stored; the transaction is checked again.
        """
        logger.error(
            "transaction given up transaction=%d log_offset=%d group=%s reason=%s",
            entry.transaction,
            entry.physical_offset,
            entry.group,
            _WHY_UNREADABLE,
        )
        self.transitions.roll_back([(entry, None)], why=_WHY_UNREADABLE)
        self.counts.unreadable += 1


def _record_for(half: HalfRecord, record: InternalRecord) -> bytes:
    """Return the message in the form for its producer, with the real topic and queue."""
    return encode_record(
        topic=half.topic.encode(),
        queue_id=half.queue_id,
        body=record.body,
        properties=encode_properties(record.properties),
        flag=record.flag,
        sys_flag=record.sys_flag,
        queue_offset=half.queue_offset,
        physical_offset=half.physical_offset,
        born_at_ms=record.born_at_ms,
        born_host=record.born_host,
        stored_at_ms=half.stored_at_ms,
        store_host=bytes(8),
        reconsume_times=record.reconsume_times,
    )
