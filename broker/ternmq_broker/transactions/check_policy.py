"""The policy by which an open transaction that is due is checked back or ended. Pure.

Source: RocketMQ `TransactionalMessageServiceImpl.check`, but for three things: only a question that
was asked counts; a half message under immunity stays where it is; and ages are taken by the
broker's clock. Nobody is asked about one that is staged.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from ternmq_broker.transactions.half_codec import HalfRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckPolicy:
    """Times and limits of the questions to producers."""

    timeout_ms: int
    """Before the first question, unless the message has its own time."""

    interval_ms: int
    """Between two questions."""

    checks_max: int
    """Questions without an answer before it is parked."""

    age_max_ms: int
    """A half message that is older is parked: the log does not keep it for much longer."""

    span_max: int
    """A half message with more younger ones behind it is moved behind them."""


class CheckAction(Enum):
    """Fate of an open transaction at a check."""

    WAIT = auto()
    """Nothing: it is not due yet."""

    ASK = auto()
    """Ask a producer; when one was asked, put the half back with the question counted."""

    ALONE = auto()
    """Nobody is there to ask: look again, and count nothing."""

    PARK_CHECKS = auto()
    """Asked often enough: park it and roll it back."""

    PARK_AGE = auto()
    """Too old: alike."""

    EXPIRE = auto()
    """Staged, and its time is over: roll it back without asking."""


class CheckDecision(NamedTuple):
    """An action, and the time until the next check."""

    action: CheckAction
    after_ms: int
    """Until the next look, if it is still open then."""


def decide_check(
    half: HalfRecord, policy: CheckPolicy, *, has_producer: bool, age_ms: int
) -> CheckDecision:
    """Decide about an open transaction.

    Args:
        half: Its newest half message.
        policy: The broker's.
        has_producer: Whether a producer of its group could be asked now.
        age_ms: How long ago its first half message was stored.
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
    wait_ms = first_look_ms(half, policy) - age_ms
    if half.checks == 0 and wait_ms > 0:
        return CheckDecision(CheckAction.WAIT, wait_ms)
    if not has_producer:
        return CheckDecision(CheckAction.ALONE, min(policy.timeout_ms, policy.interval_ms))
    return CheckDecision(CheckAction.ASK, policy.interval_ms)


def first_look_ms(half: HalfRecord, policy: CheckPolicy) -> int:
    """Return the age at which a transaction that nobody was asked about is looked at."""
    own_ms = policy.timeout_ms if half.immunity_ms is None else half.immunity_ms
    return min(own_ms, policy.age_max_ms + 1)


def staged_ms(immunity_ms: int | None, policy: CheckPolicy) -> int:
    """Return the age at which a staged transaction is rolled back: never more than is kept."""
    own_ms = policy.timeout_ms if immunity_ms is None else immunity_ms
    return min(own_ms, policy.age_max_ms)


def look_after_ms(half: HalfRecord, policy: CheckPolicy, *, age_ms: int, now_ms: int) -> int:
    """Return how long a half message that was found in the log waits for its next look.

    Args:
        half: The newest of its transaction.
        policy: The broker's.
        age_ms: How long ago the first one was stored.
        now_ms: Wall clock.
    """
    if half.staged_for:
        return max(0, staged_ms(half.immunity_ms, policy) - age_ms)
    if half.checks:
        asked_ms = max(0, now_ms - half.stored_at_ms)
        return max(0, policy.interval_ms - asked_ms)
    return max(0, first_look_ms(half, policy) - age_ms)


def is_left_behind(*, behind: int, policy: CheckPolicy, holds_file: bool) -> bool:
    """Tell whether a half message must be copied behind the others, uncounted.

    It holds up the half topic's offset, or a file of the log whose time is over.

    Args:
        behind: How many half messages lie behind it.
        policy: The broker's.
        holds_file: It lies in a file that would have gone but for it.
    """
    return holds_file or behind > policy.span_max
