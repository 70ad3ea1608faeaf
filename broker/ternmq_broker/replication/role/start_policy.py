"""The policy by which a member starts as master or slave, and begins an epoch. Pure.

A member that was the master may have been replaced while it was away. So it starts as the master
only when an answer proves that no member replaced it, or when no member can have done so.
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
        broker_id: Configured id.
        is_master: True when the member was the master last, or is configured as one and has no
            record.
        is_replicated: True when a slave has ever followed the member, or it has been a slave, or is
            a sync_master.
        is_empty: True when the log holds no byte.
        was_clean: True when the member stopped in order, or is new.
        may_lack_confirmed: True when a power loss may have taken confirmed messages: the member is
            a sync_master, flushes asynchronously, and did not stop in order.
        epochs: Epochs of the log.
        log_end: End of the log.
        highest: Highest epoch that the member knows of.
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
    """Highest epoch that the NameServer accepted; None when it knows none."""


class MemberAnswer(NamedTuple):
    """Answer of another member of the name."""

    highest: int
    """Highest epoch that the member knows of."""
    newest: int
    """Newest epoch that the member's log has reached; see `newest_reached`."""
    log_end: PhysicalOffset
    is_master: bool = False
    """True when the member is the master of the highest epoch that it knows of."""
    is_following: bool = False
    """True when a master sends the log to the member, and may wait for it."""


Answer = NameServerAnswer | MemberAnswer


class StartDecision(NamedTuple):
    """Role that a member takes, and the reason."""

    start: StartRole
    reason: str
    """Text for the log, without a full stop."""
    begins: int | None = None
    """Epoch that a master begins at its log's end; None = the master continues its newest epoch."""


def decide_start(
    own: OwnState, answers: Iterable[Answer], *, is_forced: bool = False
) -> StartDecision:
    """Return the role in which a member starts.

    Args:
        own: Knowledge of the member about itself.
        answers: Answers to the poll.
        is_forced: True when an operator forces the member to be the master. That replaces missing
            answers and overrides NameServers, but not a member of a higher epoch.
    """
    known = list(answers)
    if not own.is_master:
        return StartDecision(StartRole.SLAVE, "it is a slave")
    epoch = newest(own.epochs)
    # A member with its first log and without slaves, as far as it knows. A master that answers is
    # another process of the same name, and a NameServer may remember an earlier log.
    is_new = not own.epochs and not own.is_replicated
    members = [each for each in known if isinstance(each, MemberAnswer)]
    of_members = max(
        (each.highest for each in members if not (is_new and each.is_master)), default=0
    )
    highest = max(own.highest, *(each.highest or 0 for each in known), 0)
    if of_members > epoch:
        return StartDecision(
            StartRole.SLAVE, f"a member knows of epoch {of_members}, it of {epoch}"
        )
    if is_forced:
        begins = number_of_promotion(highest, own.broker_id) if highest > epoch else None
        return StartDecision(StartRole.MASTER, "an operator forces it", begins or _begins(own))
    if highest > (number_after_restart(0) if is_new else epoch):
        return StartDecision(
            StartRole.SLAVE, f"epoch {highest} began elsewhere, its own is {epoch}"
        )
    ahead = [each for each in known if _is_ahead(own, each)]
    if own.may_lack_confirmed and ahead:
        return StartDecision(StartRole.WAIT, "a member has more of the log: it is to be promoted")
    if not own.is_replicated:
        return StartDecision(StartRole.MASTER, "no slave ever followed it", _begins(own))
    if any(_confirms(own, each) for each in known):
        return StartDecision(StartRole.MASTER, f"no epoch above {epoch} is known", _begins(own))
    return StartDecision(
        StartRole.WAIT, f"no other member or NameServer confirms that no epoch above {epoch} began"
    )


def why_not_promote(own: MemberLog, others: Sequence[MemberAnswer]) -> str:
    """Return the reason against the promotion of a slave; "" without one.

    Of the slaves that a message needed, the slave with the longest log of the newest epoch has it.
    That slave is among those that answered, if fewer slaves are missing than a message needed.
    """
    if own.is_empty:
        return "its log is empty"
    active = [each for each in others if each.is_master or each.is_following]
    if any(each.highest >= own.highest_known for each in active):
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
    """Return the text on how much a promotion may lose, as far as the slave knows.

    Args:
        end: End of the slave's log.
        others: Answers of the other members.
        lag_bytes: Bytes that the slave lacked at its master's last message.
        is_following: True when the stream to the master is open.
    """
    count = max(lag_bytes, *(each.log_end - end for each in others), 0)
    since = (
        ""
        if is_following
        else ", and what their master acknowledged since its last message to this slave"
    )
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
    # A NameServer without an epoch may have lost its memory.
    return own.is_empty and newest(own.epochs) <= 1


def _is_ahead(own: OwnState, answer: Answer) -> bool:
    """Return whether a member has bytes of this log's epochs that were lost here."""
    if not isinstance(answer, MemberAnswer):
        return False
    for index, epoch in enumerate(own.epochs):
        if epoch.number == answer.newest:
            later = own.epochs[index + 1 :][:1]
            had_to = min([answer.log_end, *(each.start for each in later)])
            return had_to > own.log_end
    return False
