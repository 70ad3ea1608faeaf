"""Epochs of logs: the master behind each byte, and the point where two logs part. Pure.

An epoch is the time of one master. Its bytes begin at the end that the log had when the epoch
began. Every member stores the list of epochs: (number, start), both ascending. An entry at or
beyond the end of the log is known to the member, which has no bytes of that epoch yet.

Numbers are never assigned twice. A restart takes the next number. A promotion takes the first
number of the next million that belongs to the member: it is above all restarts of the replaced
master, and differs from the promotion of another member. So two lists with a common entry belong to
logs that are equal up to the end of that epoch in the shorter one. Disks that were set back or
emptied break the rule, so the bytes before such a common point are compared, too, and lower points
are tried.

A slave always removes its bytes beyond the common point: the master of the highest epoch is right.
So a confirmed message survives only if the member with the longest log among its holders is
promoted. `tests/property/test_epoch_model.py` proves that this suffices.

Source: the epoch file of RocketMQ's `AutoSwitchHAService`, Raft's log matching.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ternmq_model.epochs import EPOCH_MAX, REPAIR_COMMAND
from ternmq_model.errors import refusal
from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import ResponseCode

PROBE_BYTES: Final = 64 << 10
"""Bytes before a common point that are compared."""

PROMOTION_STEP: Final = 1_000_000
MEMBER_STEP: Final = 1_000
"""Restarts between two promotions that leave the members' numbers apart."""


class Epoch(NamedTuple):
    """The time of one master."""

    number: int
    start: PhysicalOffset
    """Log offset of the first byte of the epoch."""


Epochs = tuple[Epoch, ...]
"""Numbers ascend; starts do not descend."""


@dataclass(frozen=True, slots=True)
class MemberLog:
    """Log of a member, as the member describes it.

    Attributes:
        epochs: Epochs of the log.
        start: Offset of the first byte.
        end: Offset behind the last byte; `start` for an empty log.
        store_id: Id of the store; empty for a new member.
        highest: Highest epoch that was reported to the member.
    """

    epochs: Epochs
    start: PhysicalOffset
    end: PhysicalOffset
    store_id: str = ""
    highest: int = 0

    @property
    def is_empty(self) -> bool:
        """True for a log without bytes."""
        return self.start == self.end

    @property
    def highest_known(self) -> int:
        """Highest epoch of the log and of all reports."""
        return max(self.highest, newest(self.epochs))


class FollowFrom(NamedTuple):
    """Answer to a slave that may follow: it receives bytes from `start`, the end of its own log."""

    start: PhysicalOffset


class TruncateTo(NamedTuple):
    """Answer to a slave that must cut its log at `keep_to`, and then ask again."""

    keep_to: PhysicalOffset


class StartEmptyLog(NamedTuple):
    """Answer to a slave that must begin an empty log at `start`, and then ask again."""

    start: PhysicalOffset


class MasterDeposed(NamedTuple):
    """Answer of a master that learned of a higher epoch than its own, and so ends its term."""

    highest: int


class FollowRefused(NamedTuple):
    """Answer to a slave that may not follow; its log does not change."""

    reason: str


FollowDecision = FollowFrom | TruncateTo | StartEmptyLog | MasterDeposed | FollowRefused


def newest(epochs: Epochs) -> int:
    """Return the highest number of a list; 0 for an empty one."""
    return epochs[-1].number if epochs else 0


def newest_start(epochs: Epochs) -> PhysicalOffset:
    """Return the start of the newest epoch; 0 for an empty list."""
    return epochs[-1].start if epochs else PhysicalOffset(0)


def newest_reached(epochs: Epochs, end: PhysicalOffset) -> int:
    """Return the highest epoch that starts at or before `end`; 0 without one.

    The log of a store with the higher (newest reached, end) has all messages that were acknowledged
    with enough copies in another log. The end alone does not prove that: a new master confirms the
    bytes that it finds, and a deposed master may have a few bytes of a restart.
    """
    return max((epoch.number for epoch in epochs if epoch.start <= end), default=0)


def number_after_restart(highest: int) -> int:
    """Return the epoch that a master begins after a crash; 1 for the first epoch.

    Args:
        highest: Highest known epoch.

    Raises:
        RefusedError: The last number is in use.
    """
    return _given(highest + 1, highest)


def number_of_promotion(highest: int, broker_id: int) -> int:
    """Return the epoch that a promoted member begins.

    The number is above all restarts before this promotion. It differs from the promotion of a
    member with another id that knows the same epochs or fewer.

    Args:
        highest: Highest known epoch.
        broker_id: Configured id of the member; ids up to 999 get different numbers.

    Raises:
        RefusedError: The last number is in use.
    """
    first = (highest // PROMOTION_STEP + 1) * PROMOTION_STEP
    return _given(first + broker_id % MEMBER_STEP * MEMBER_STEP, highest)


def _given(number: int, highest: int) -> int:
    if number <= EPOCH_MAX:
        return number
    remark = (
        f"no epoch can begin above {highest}: the last one is {EPOCH_MAX}. Restarts and promotions"
        f" do not reach that number, so it was made up: {REPAIR_COMMAND}"
    )
    raise refusal(ResponseCode.ILLEGAL_OPERATION, remark)


def begin(epochs: Epochs, number: int, start: PhysicalOffset) -> Epochs:
    """Return the list of a master that begins epoch `number` at the end of its log, `start`.

    Entries without bytes are dropped. The list must be durable before the first append.
    """
    assert number > newest(epochs), f"epoch {number} does not follow {newest(epochs)}"
    return (*cut_to(epochs, start), Epoch(number, start))


def cut_to(epochs: Epochs, at: PhysicalOffset) -> Epochs:
    """Return the list of a log that was cut at `at`: the epochs with bytes before it."""
    return tuple(epoch for epoch in epochs if epoch.start < at)


def why_not(master: MemberLog, slave: MemberLog) -> MasterDeposed | FollowRefused | None:
    """Return the reason why `slave` cannot follow `master`; None when it can, perhaps after a cut.

    This check comes first, because a member of another store deposes no master.
    """
    is_higher = slave.highest_known > master.highest_known
    if slave.store_id != master.store_id and (not slave.is_empty or (slave.store_id and is_higher)):
        return FollowRefused(
            f"the log is of store {slave.store_id or 'unknown'}, the master's of store "
            f"{master.store_id}: empty the slave's data directory if it is to follow this master"
        )
    if is_higher:
        return MasterDeposed(slave.highest_known)
    if master.highest > newest(master.epochs):
        return MasterDeposed(master.highest)
    return None


def common_points(master: MemberLog, slave: MemberLog) -> tuple[PhysicalOffset, ...]:
    """Return the offsets up to which two logs may be equal, highest first.

    Each is the start or end of an epoch of both logs, behind some bytes of both. The first offset
    with equal `probe` bytes is the common point.
    """
    lowest, highest = max(master.start, slave.start), min(master.end, slave.end)
    theirs = dict(_ends(slave))
    points: set[PhysicalOffset] = set()
    for epoch, end in _ends(master):
        if epoch in theirs:
            points |= {epoch.start, min(end, theirs[epoch])}
    return tuple(sorted((at for at in points if lowest < at <= highest), reverse=True))


def probe(
    master: MemberLog, slave: MemberLog, point: PhysicalOffset
) -> tuple[PhysicalOffset, PhysicalOffset]:
    """Return the range of bytes that must be equal in both logs if `point` is common."""
    lowest = max(master.start, slave.start, point - PROBE_BYTES)
    return PhysicalOffset(lowest), point


def follow_decision(
    master: MemberLog, slave: MemberLog, common: PhysicalOffset | None
) -> FollowDecision:
    """Return the answer of a master to a slave.

    Args:
        master: Log of the master.
        slave: Log of the slave.
        common: First of the `common_points` with equal bytes; None without one.
    """
    refused = why_not(master, slave)
    if refused is not None:
        return refused
    if slave.is_empty:
        at_start = slave.start == master.start
        return FollowFrom(slave.end) if at_start else StartEmptyLog(master.start)
    if common is None:
        return StartEmptyLog(master.start)
    if common == slave.end:
        return FollowFrom(common)
    if _is_set_back(master, slave, common):
        return FollowRefused(
            f"the slave's log goes to {slave.end} in epoch {newest(master.epochs)}, its master's "
            f"to {master.end} only: the master's disk was set back. Promote the slave, or empty "
            "its data directory"
        )
    return TruncateTo(common)


def _is_set_back(master: MemberLog, slave: MemberLog, common: PhysicalOffset) -> bool:
    """Return whether a master lacks bytes of its own epoch.

    A clean stop flushes all bytes, and a new epoch begins after a crash. So the missing bytes were
    lost with the disk, and may have been confirmed.
    """
    last = master.epochs[-1] if master.epochs else None
    return common == master.end and any(
        epoch == last and end > common for epoch, end in _ends(slave)
    )


def _ends(log: MemberLog) -> Iterator[tuple[Epoch, PhysicalOffset]]:
    """Yield each epoch with the end of its bytes in `log`."""
    for index, epoch in enumerate(log.epochs):
        behind = log.epochs[index + 1].start if index + 1 < len(log.epochs) else log.end
        yield epoch, min(behind, log.end)


def ended_at(epochs: Epochs, number: int) -> PhysicalOffset | None:
    """Return the end of an epoch's bytes, at which a later epoch begins; None without one. Pure.

    Args:
        epochs: Epochs of the log.
        number: Number of the epoch, of which the log need not have any bytes.
    """
    return next((epoch.start for epoch in epochs if epoch.number > number), None)
