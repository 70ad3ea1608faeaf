"""The policy by which a member starts as master or slave, and begins an epoch. Pure.

A member that was the master may have been replaced while it was away. So it starts as the master
only when somebody who would know says that nobody was, or when nobody can have taken its place.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from ternmq_broker.state.epochs import (
    Epochs,
    MemberLog,
    newest,
    newest_reached,
    number_after_restart,
    number_of_promotion,
)
from ternmq_model.offsets import PhysicalOffset

MASTER_LIVES: Final = "its master is alive: a promotion would make it a second one"


class StartRole(Enum):
    """Role that a member takes when it starts."""

    MASTER = auto()
    SLAVE = auto()
    WAIT = auto()
    """No role yet: the member polls again, and serves no call until then."""


@dataclass(frozen=True, slots=True)
class OwnState:
    """Knowledge of a member about itself when it starts.

    Attributes:
        broker_id: As configured.
        is_master: It was the master when it was last told, or is configured as one and was never
            told.
        is_replicated: A slave has ever followed it, it has ever been one, or it is a sync_master.
        is_empty: Its log holds no byte.
        was_clean: It stopped in order, or is new.
        may_lack_confirmed: A power loss can have taken what members confirmed together: it is a
            sync_master, flushes asynchronously, and did not stop in order.
        epochs: Of its log.
        log_end: Of its log.
        highest: The highest epoch that it has heard of, from whomever.
    """

    broker_id: int
    is_master: bool
    is_replicated: bool
    is_empty: bool
    was_clean: bool
    epochs: Epochs
    log_end: PhysicalOffset
    may_lack_confirmed: bool = False
    highest: int = 0


class NameServerAnswer(NamedTuple):
    """Answer of a NameServer about the broker name."""

    highest: int | None
    """The highest epoch that it accepted; None when it knows none."""


class MemberAnswer(NamedTuple):
    """Answer of another member of the name."""

    highest: int
    """The highest epoch that it has heard of."""
    newest: int
    """The newest epoch that its log has reached: `newest_reached`."""
    log_end: PhysicalOffset
    is_master: bool = False
    """True when the member is the master of the highest epoch that it knows of."""
    is_following: bool = False
    """A master sends it the log, and waits for it perhaps."""


Answer = NameServerAnswer | MemberAnswer


class StartDecision(NamedTuple):
    """Role that a member takes, and the reason."""

    start: StartRole
    reason: str
    """Text for the log, without a full stop."""
    begins: int | None = None
    """The epoch that a master begins at its log's end; None = it goes on with its last."""


def decide_start(
    own: OwnState, answers: Iterable[Answer], *, is_forced: bool = False
) -> StartDecision:
    """Return what a member starts as.

    Args:
        own: What it knows.
        answers: Of those who were asked; who did not answer is left out.
        is_forced: Somebody said by hand that it is to be the master. That stands for the answers
            that are missing, and is stronger than what a NameServer remembers, but not than a
            member of a higher epoch that answers.
    """
    told = list(answers)
    if not own.is_master:
        return StartDecision(StartRole.SLAVE, "it is a slave")
    epoch = newest(own.epochs)
    # One that begins its first log, and that nobody ever followed as far as it knows. Who did is a
    # slave; a master is another process of that name, and a NameServer may remember a log before.
    is_new = not own.epochs and not own.is_replicated
    members = [each for each in told if isinstance(each, MemberAnswer)]
    of_members = max(
        (each.highest for each in members if not (is_new and each.is_master)), default=0
    )
    highest = max(own.highest, *(each.highest or 0 for each in told), 0)
    if of_members > epoch:
        return StartDecision(
            StartRole.SLAVE, f"a member knows of epoch {of_members}, it of {epoch}"
        )
    if is_forced:
        begins = number_of_promotion(highest, own.broker_id) if highest > epoch else None
        return StartDecision(StartRole.MASTER, "it is forced to", begins or _begins(own))
    if highest > (number_after_restart(0) if is_new else epoch):
        return StartDecision(
            StartRole.SLAVE, f"epoch {highest} began elsewhere, its own is {epoch}"
        )
    ahead = [each for each in told if _is_ahead(own, each)]
    if own.may_lack_confirmed and ahead:
        return StartDecision(StartRole.WAIT, "a member has more of the log: it is to be promoted")
    if not own.is_replicated:
        return StartDecision(StartRole.MASTER, "nobody ever followed it", _begins(own))
    if any(_confirms(own, each) for each in told):
        return StartDecision(StartRole.MASTER, f"no epoch above {epoch} is known", _begins(own))
    return StartDecision(StartRole.WAIT, f"nobody confirms that no epoch above {epoch} began")


def why_not_promote(own: MemberLog, others: Sequence[MemberAnswer]) -> str:
    """Return why a slave had better not be promoted; "" when nothing speaks against it.

    Of the slaves that a message needed, the one with the longest log of the newest epoch has it.
    It is among those that answered when no more are missing than a message needed slaves, less one.

    Args:
        own: Its log.
        others: The members that answered.
    """
    if own.is_empty:
        return "its log holds nothing"
    lives = [each for each in others if each.is_master or each.is_following]
    if any(each.highest >= own.highest_known for each in lives):
        return MASTER_LIVES
    mine = newest_reached(own.epochs, own.end)
    best = max(((each.newest, each.log_end) for each in others), default=(0, PhysicalOffset(0)))
    if best > (mine, own.end):
        return (
            f"another member has the log up to {best[1]} in epoch {best[0]}, "
            f"this one up to {own.end} in epoch {mine}"
        )
    return ""


def may_be_lost(
    end: PhysicalOffset, others: Sequence[MemberAnswer], *, lag_bytes: int, is_following: bool
) -> str:
    """Return how much a promotion may lose, as far as the slave can know.

    Args:
        end: Of its log.
        others: The members that answered.
        lag_bytes: What it lacked when it last heard of its master.
        is_following: It still hears of its master.
    """
    count = max(lag_bytes, *(each.log_end - end for each in others), 0)
    since = "" if is_following else ", and what their master acknowledged since it was last heard"
    return f"others may have {count} acknowledged bytes that this log lacks{since}"


def _begins(own: OwnState) -> int | None:
    """Return the epoch of a master that was not replaced; None = no new epoch."""
    epoch = newest(own.epochs)
    if epoch and own.was_clean:
        return None
    return number_after_restart(max(epoch, own.highest))


def _confirms(own: OwnState, answer: Answer) -> bool:
    """Return whether an answer without a higher epoch proves that there is none."""
    if isinstance(answer, MemberAnswer) or answer.highest is not None:
        return True
    # A NameServer that knows nothing may have lost its memory.
    return own.is_empty and newest(own.epochs) <= 1


def _is_ahead(own: OwnState, answer: Answer) -> bool:
    """Return whether a member has bytes of this log's epochs that were lost here."""
    if not isinstance(answer, MemberAnswer):
        return False
    for index, epoch in enumerate(own.epochs):
        if epoch.number == answer.newest:
            later = own.epochs[index + 1 : index + 2]
            had_to = min([answer.log_end, *(each.start for each in later)])
            return had_to > own.log_end
    return False
