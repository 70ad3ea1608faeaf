"""Epochs of logs: the master behind each byte, and the point where two logs part. Pure.

An epoch is the time of one master. Its bytes begin at the end that the log had when it began,
and every member keeps the list of them: (number, start), both ascending. An entry at or beyond the
log's end is one that the member knows of and has no bytes of yet.

Numbers are never given twice: a restart takes the next one, a promotion the first of the next
million that belongs to the member, so that it beats every restart of the master it replaced and is
not what another member is promoted to meanwhile. Hence two logs whose lists share an entry agree
up to where that epoch ends in the shorter one. Disks that were set back or made empty break the
rule, so the bytes before such a common point are compared too, and lower points are tried.

What a slave has beyond the common point goes, whatever it is: the master of the highest epoch is
right. So a message that enough members had when it was confirmed stays only if the one of them that
has the most is promoted. `tests/property/test_epoch_model.py` proves that this suffices.

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
    """Start of its bytes."""


Epochs = tuple[Epoch, ...]
"""Numbers ascend; starts do not descend."""


@dataclass(frozen=True, slots=True)
class MemberLog:
    """Log of a member, as the member describes it.

    Attributes:
        epochs: Whose bytes it holds.
        start: First byte that is kept.
        end: Behind its last byte; `start` when it holds none.
        store_id: Whose log it is; "" when nobody's yet.
        highest: The highest epoch that the member has heard of, from whomever.
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
        """Highest epoch that the member has or has heard of."""
        return max(self.highest, newest(self.epochs))


class FollowFrom(NamedTuple):
    """The slave takes the master's bytes from `start`, the end of its own log."""

    start: PhysicalOffset


class TruncateTo(NamedTuple):
    """The slave keeps what lies before `keep_to`, and then asks again."""

    keep_to: PhysicalOffset


class StartEmptyLog(NamedTuple):
    """Answer to a slave that must begin an empty log at `start`, and then ask again."""

    start: PhysicalOffset


class MasterDeposed(NamedTuple):
    """Answer of a master that has heard of a higher epoch than its own, and so ends its term."""

    highest: int


class FollowRefused(NamedTuple):
    """The slave may not follow; nothing is to be done to its log."""

    reason: str


FollowDecision = FollowFrom | TruncateTo | StartEmptyLog | MasterDeposed | FollowRefused


def newest(epochs: Epochs) -> int:
    """Return the highest number of a list; 0 for an empty one."""
    return epochs[-1].number if epochs else 0


def newest_start(epochs: Epochs) -> PhysicalOffset:
    """Return the start of the newest epoch; 0 for an empty list."""
    return epochs[-1].start if epochs else PhysicalOffset(0)


def newest_reached(epochs: Epochs, end: PhysicalOffset) -> int:
    """Return the highest epoch of which a log that ends at `end` has all that came before; or 0.

    Of two logs of one store, that of the higher (newest reached, end) has all that was acknowledged
    with enough copies in the other. Bytes alone do not tell: a master may confirm what it
    found, and a master that was deposed may have a few bytes of a restart.
    """
    return max((epoch.number for epoch in epochs if epoch.start <= end), default=0)


def number_after_restart(highest: int) -> int:
    """Return what a master begins after it did not stop in order; 1 when it is the first ever.

    Args:
        highest: The highest epoch that is known.

    Raises:
        RefusedError: No number is left.
    """
    return _given(highest + 1, highest)


def number_of_promotion(highest: int, broker_id: int) -> int:
    """Return what a member begins when it is promoted.

    It is above every number that restarts reach before the next promotion, and differs from what a
    member of another id begins that knows the same or less.

    Args:
        highest: The highest epoch that is known.
        broker_id: Its own, as configured. Ids are told apart up to 999.

    Raises:
        RefusedError: No number is left.
    """
    first = (highest // PROMOTION_STEP + 1) * PROMOTION_STEP
    return _given(first + broker_id % MEMBER_STEP * MEMBER_STEP, highest)


def _given(number: int, highest: int) -> int:
    if number <= EPOCH_MAX:
        return number
    remark = (
        f"no epoch can begin above {highest}: the last one is {EPOCH_MAX}. No history leads there,"
        f" so that number was made up: {REPAIR_COMMAND}"
    )
    raise refusal(ResponseCode.ILLEGAL_OPERATION, remark)


def begin(epochs: Epochs, number: int, start: PhysicalOffset) -> Epochs:
    """Return the list of a master that begins epoch `number` at its log's end, `start`.

    Entries of which it has no bytes are dropped. The list must be durable before the first append.
    """
    assert number > newest(epochs), f"epoch {number} does not follow {newest(epochs)}"
    return (*cut_to(epochs, start), Epoch(number, start))


def cut_to(epochs: Epochs, at: PhysicalOffset) -> Epochs:
    """Return the list of a log that was cut at `at`: the epochs that it has bytes of."""
    return tuple(epoch for epoch in epochs if epoch.start < at)


def why_not(master: MemberLog, slave: MemberLog) -> MasterDeposed | FollowRefused | None:
    """Return why `slave` cannot follow `master`; None when it can, perhaps after a cut.

    To be asked first: what a foreign member says deposes nobody.
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
    """Return up to where two logs may be the same, the highest first.

    Each is the end of an epoch that both have, or its beginning, and has bytes before it in both
    logs. The first at which both have the same `probe` bytes is the common point; when there is
    none, they have nothing in common that can be found.
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
    """Return the range that is to have the same bytes in both logs if `point` is common."""
    lowest = max(master.start, slave.start, point - PROBE_BYTES)
    return PhysicalOffset(lowest), point


def follow_decision(
    master: MemberLog, slave: MemberLog, common: PhysicalOffset | None
) -> FollowDecision:
    """Return what a slave has to do.

    Args:
        master: Of the member that was asked.
        slave: Of the member that wants to follow it.
        common: The first of `common_points` at which the bytes agree; None when there is none.
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

    It lost none in order: it begins a new epoch after anything but a clean stop, before which all
    is flushed. What it lacks may have been confirmed.
    """
    last = master.epochs[-1] if master.epochs else None
    return common == master.end and any(
        epoch == last and end > common for epoch, end in _ends(slave)
    )


def _ends(log: MemberLog) -> Iterator[tuple[Epoch, PhysicalOffset]]:
    """Yield the epochs and where their bytes end in `log`."""
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
