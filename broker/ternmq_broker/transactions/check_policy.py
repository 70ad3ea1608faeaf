"""The policy by which an open transaction that is due is checked back or ended. Pure.

Source: RocketMQ `TransactionalMessageServiceImpl.check`, with three differences: only a question
that was asked counts; a half message under immunity is not copied; and ages go by the broker's
clock. No producer is asked about a staged transaction.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from ternmq_broker.transactions.half_codec import HalfRecord


class CheckAction(Enum):
    """Fate of an open transaction at a check."""

    WAIT = auto()
    """Leave the transaction: it is not due yet."""

    ASK = auto()
    """Ask a producer; then put the half message back with the question counted."""

    ALONE = auto()
    """Check again, and count nothing: no producer is connected."""

    PARK_CHECKS = auto()
    """Park the half message: enough questions had no answer."""

    PARK_AGE = auto()
    """Park the half message: it is too old."""

    EXPIRE = auto()
    """Roll the transaction back without a question: its staging time is over."""


class CheckDecision(NamedTuple):
    """Action on a transaction, and the time until its next check."""

    action: CheckAction
    after_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckPolicy:
    """Times and limits of the questions to producers."""

    timeout_ms: int
    """Age at which the first question is asked about a message without an immunity time."""

    interval_ms: int
    """Time between two questions."""

    checks_max: int
    """Number of questions without an answer before a transaction is parked."""

    age_max_ms: int
    """Age above which a half message is parked: the log soon removes it."""

    span_max: int
    """Number of younger half messages behind which a half message is copied to the end."""

    @property
    def alone(self) -> CheckDecision:
        """Decision about a transaction whose group has no producer here."""
        return CheckDecision(CheckAction.ALONE, min(self.timeout_ms, self.interval_ms))


def decide_check(
    half: HalfRecord, policy: CheckPolicy, *, has_producer: bool, age_ms: int
) -> CheckDecision:
    """Return the decision about an open transaction.

    Args:
        half: Newest half message of the transaction.
        policy: Policy of the broker.
        has_producer: True if a producer of the group can be asked now.
        age_ms: Time since the first half message was stored.
    """
    if half.staged_for:
        left_ms = staged_ms(half.immunity_ms, policy) - age_ms
        if left_ms > 0:
            return CheckDecision(CheckAction.WAIT, left_ms)
        return CheckDecision(CheckAction.EXPIRE, policy.interval_ms)
    if age_ms > policy.age_max_ms:
        return CheckDecision(CheckAction.PARK_AGE, policy.interval_ms)
    if half.checks >= policy.checks_max:
        return CheckDecision(CheckAction.PARK_CHECKS, policy.interval_ms)
    wait_ms = first_check_ms(half, policy) - age_ms
    if half.checks == 0 and wait_ms > 0:
        return CheckDecision(CheckAction.WAIT, wait_ms)
    if not has_producer:
        return policy.alone
    return CheckDecision(CheckAction.ASK, policy.interval_ms)


def first_check_ms(half: HalfRecord, policy: CheckPolicy) -> int:
    """Return the age at which a transaction is checked for the first time."""
    own_ms = policy.timeout_ms if half.immunity_ms is None else half.immunity_ms
    return min(own_ms, policy.age_max_ms + 1)


def staged_ms(immunity_ms: int | None, policy: CheckPolicy) -> int:
    """Return the age at which a staged transaction is rolled back, at most `age_max_ms`."""
    own_ms = policy.timeout_ms if immunity_ms is None else immunity_ms
    return min(own_ms, policy.age_max_ms)


def next_check_ms(half: HalfRecord, policy: CheckPolicy, *, age_ms: int, now_ms: int) -> int:
    """Return the time until the next check of a transaction that was found in the log.

    Args:
        half: Newest half message of the transaction.
        policy: Policy of the broker.
        age_ms: Time since the first half message was stored.
        now_ms: Wall clock.
    """
    if half.staged_for:
        return max(0, staged_ms(half.immunity_ms, policy) - age_ms)
    if half.checks:
        asked_ms = max(0, now_ms - half.stored_at_ms)
        return max(0, policy.interval_ms - asked_ms)
    return max(0, first_check_ms(half, policy) - age_ms)


def must_be_copied(*, behind: int, policy: CheckPolicy, holds_file: bool) -> bool:
    """Return whether a half message must be copied behind the others, without a counted question.

    A half message in its old place holds back the offset of the half topic, or the removal of a
    file of the log.

    Args:
        behind: Number of half messages behind this one.
        policy: Policy of the broker.
        holds_file: The message lies in a file that only open half messages still need.
    """
    return holds_file or behind > policy.span_max
