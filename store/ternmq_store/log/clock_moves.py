"""Moves of the broker's clock since records were stored, for the ages of records. Pure.

A store time is a time of the clock at the append. When the clock follows a step of the wall clock,
earlier records become no older: an age is the clock, less the store time, less the moves since.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from ternmq_model.arrays import Ints
from ternmq_model.offsets import PhysicalOffset, QueueOffset

MOVES_MAX: Final = 100
"""Limit of retained moves. The oldest surplus move is added to the next if it led ahead, and
dropped if it led back: no record becomes older by that."""


class ClockMove(NamedTuple):
    """A step of the broker's clock."""

    end: PhysicalOffset
    """End of the log at the step: records before it were stored before the step."""

    by_ms: int
    """Distance of the step, ms; negative = back."""


Moves = Sequence[ClockMove]
"""Sorted, at most one for an offset."""


class ClockDoubt(NamedTuple):
    """A start whose clock was far from the newest record."""

    start: PhysicalOffset
    """End of the log at that start."""

    behind_ms: int
    """Distance of the clock behind the record's time, ms; negative once it is ahead of it."""


class TimerMove(NamedTuple):
    """A step of the broker's clock that timed messages follow."""

    end: QueueOffset
    """Queue offset behind the last message that was stored."""

    by_ms: int | None
    """Distance of the step, ms; None = unknown, since the clock was set back before the start."""


@dataclass(frozen=True, slots=True)
class ClockNotes:
    """Notes of the clock behind a log's store times."""

    moves: Moves = ()
    doubt: ClockDoubt | None = None
    """Doubt about the clock; None = there is none."""

    left_at_ms: int = 0
    """Time of the clock at the last clean stop, ms; 0 = it was in doubt."""

    timer_moves: Sequence[TimerMove] = ()
    """Moves, oldest first, that some timed message has not followed yet."""


BELIEVED: Final = ClockNotes()
"""Notes of a clock that never moved."""


def moved_ms(moves: Moves, offset: PhysicalOffset) -> int:
    """Return how far the clock has moved since the record at `offset` was stored, ms."""
    first = bisect_right(moves, offset, key=lambda move: move.end)
    return sum(move.by_ms for move in moves[first:])


def all_moved_ms(moves: Moves, offsets: Ints) -> Ints:
    """Return how far the clock has moved since each of several records was stored, ms."""
    moved = np.zeros(len(offsets), dtype=np.int64)
    for move in moves:
        moved[offsets < move.end] += move.by_ms
    return moved


def stepped(clock: ClockNotes, by_ms: int, end: PhysicalOffset) -> ClockNotes:
    """Return the notes of the clock after a step.

    A step that corrects an error since the start is no move for earlier records. While the clock is
    in doubt, such steps are those back from the time of the start, and those ahead up to the newest
    record's time: of two possible ages of a record, the lesser counts.

    Args:
        clock: Notes before the step.
        by_ms: Distance of the step.
        end: End of the log.
    """
    moves, doubt = {move.end: move.by_ms for move in clock.moves}, clock.doubt
    moves[end] = moves.get(end, 0) + by_ms
    if doubt is not None:
        left_ms = doubt.behind_ms - by_ms
        older_ms = max(0, -left_ms) - max(0, -doubt.behind_ms)
        moves[doubt.start] = moves.get(doubt.start, 0) + older_ms - by_ms
        doubt = ClockDoubt(doubt.start, left_ms)
    kept = [ClockMove(end, by_ms) for end, by_ms in sorted(moves.items()) if by_ms]
    while len(kept) > MOVES_MAX:
        first, second, *others = kept
        kept = [ClockMove(second.end, max(first.by_ms, 0) + second.by_ms), *others]
    return replace(clock, moves=tuple(kept), doubt=doubt)


def doubted(clock: ClockNotes, doubt: ClockDoubt) -> ClockNotes:
    """Return the notes of a clock that is in doubt at a start.

    A noted step may have been reversed while no broker ran. Of the two possible ages of a record,
    with the moves since and without, the lesser counts.
    """
    moves: list[ClockMove] = []
    kept_ms = since_ms = 0
    for move in reversed(clock.moves):
        since_ms += move.by_ms
        if by_ms := max(since_ms, 0) - kept_ms:
            moves.insert(0, ClockMove(move.end, by_ms))
            kept_ms += by_ms
    return replace(clock, moves=tuple(moves), doubt=doubt)


def within(clock: ClockNotes, start: PhysicalOffset, end: PhysicalOffset) -> ClockNotes:
    """Return the notes that concern a log from `start` to `end`."""
    ends = [min(move.end, end) for move in clock.moves]
    moved = [(at, move.by_ms) for at, move in zip(ends, clock.moves, strict=True) if at > start]
    sums = {at: sum(by_ms for each, by_ms in moved if each == at) for at, _ in moved}
    doubt = clock.doubt
    if doubt is not None:
        doubt = doubt._replace(start=PhysicalOffset(min(doubt.start, end)))
    moves = (ClockMove(PhysicalOffset(at), by_ms) for at, by_ms in sums.items() if by_ms)
    return replace(clock, moves=tuple(moves), doubt=doubt)


def are_in_order(moves: Moves) -> bool:
    """Return whether moves are sorted, with at most one for an offset."""
    return all(one.end < next_one.end for one, next_one in pairwise(moves))
