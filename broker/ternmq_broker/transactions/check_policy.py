"""What becomes of a transaction that is open and due. Pure.

Source: RocketMQ `TransactionalMessageServiceImpl.check`, but for three things: only a question that
was asked counts; a half message under immunity stays where it is; and ages are taken by the
broker's clock. Nobody is asked about one that is staged.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from ternmq_broker.transactions.half_codec import Half


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckRules:
    """When producers are asked, and for how long."""

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


class Step(Enum):
    """What to do."""

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


class Verdict(NamedTuple):
    """What to do with a transaction, and when to look at it again."""

    step: Step
    after_ms: int
    """Until the next look, if it is still open then."""


def judge(half: Half, rules: CheckRules, *, has_producer: bool, age_ms: int) -> Verdict:
    """Decide about an open transaction.

    Args:
        half: Its newest half message.
        rules: The broker's.
        has_producer: Whether a producer of its group could be asked now.
        age_ms: How long ago its first half message was stored.
    """
    if half.staged_for:
        left_ms = staged_ms(half.immunity_ms, rules) - age_ms
        if left_ms > 0:
            return Verdict(Step.WAIT, left_ms)
        return Verdict(Step.EXPIRE, rules.interval_ms)
    if age_ms > rules.age_max_ms:
        return Verdict(Step.PARK_AGE, rules.interval_ms)
    if half.checks >= rules.checks_max:
        return Verdict(Step.PARK_CHECKS, rules.interval_ms)
    wait_ms = first_look_ms(half, rules) - age_ms
    if half.checks == 0 and wait_ms > 0:
        return Verdict(Step.WAIT, wait_ms)
    if not has_producer:
        return Verdict(Step.ALONE, min(rules.timeout_ms, rules.interval_ms))
    return Verdict(Step.ASK, rules.interval_ms)


def first_look_ms(half: Half, rules: CheckRules) -> int:
    """Return the age at which a transaction that nobody was asked about is looked at."""
    own_ms = rules.timeout_ms if half.immunity_ms is None else half.immunity_ms
    return min(own_ms, rules.age_max_ms + 1)


def staged_ms(immunity_ms: int | None, rules: CheckRules) -> int:
    """Return the age at which a staged transaction is rolled back: never more than is kept."""
    own_ms = rules.timeout_ms if immunity_ms is None else immunity_ms
    return min(own_ms, rules.age_max_ms)


def look_after_ms(half: Half, rules: CheckRules, *, age_ms: int, now_ms: int) -> int:
    """Return how long a half message that was found in the log waits for its next look.

    Args:
        half: The newest of its transaction.
        rules: The broker's.
        age_ms: How long ago the first one was stored.
        now_ms: Wall clock.
    """
    if half.staged_for:
        return max(0, staged_ms(half.immunity_ms, rules) - age_ms)
    if half.checks:
        asked_ms = max(0, now_ms - half.stored_at_ms)
        return max(0, rules.interval_ms - asked_ms)
    return max(0, first_look_ms(half, rules) - age_ms)


def is_left_behind(*, behind: int, rules: CheckRules, holds_file: bool) -> bool:
    """Tell whether a half message must be copied behind the others, uncounted.

    It holds up the half topic's offset, or a file of the log whose time is over.

    Args:
        behind: How many half messages lie behind it.
        rules: The broker's.
        holds_file: It lies in a file that would have gone but for it.
    """
    return holds_file or behind > rules.span_max
