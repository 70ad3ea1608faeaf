"""Moves of the broker's clock since records were stored, for the ages of records. Pure.

A store time is one of the clock as it was. When that clock follows a step of the wall clock, what
was stored before has become no older: its age is the clock, less its store time, less the moves.
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
"""Most moves that are retained; of more, the oldest goes. One ahead is added to the next, one back
is forgotten: no record becomes older by that."""


class ClockMove(NamedTuple):
    """A step of the broker's clock."""

    end: PhysicalOffset
    """End of the log then: records before it were stored before."""

    by_ms: int
    """Distance of the step: ahead, or back."""


Moves = Sequence[ClockMove]
"""Sorted, at most one for an offset."""


class ClockDoubt(NamedTuple):
    """A start whose clock was far from the newest record."""

    start: PhysicalOffset
    """End of the log at that start."""

    behind_ms: int
    """By how much the clock may move ahead until it is at the record's time. Less than 0 when it
    has moved further."""


class TimerMove(NamedTuple):
    """A step of the broker's clock that timed messages are to follow."""

    end: QueueOffset
    """Queue offset behind the last message that was stored."""

    by_ms: int | None
    """Distance of the step, ms; None = unknown, since the clock was set back before the start."""


@dataclass(frozen=True, slots=True)
class ClockNotes:
    """Notes of the clock that a log's store times come from."""

    moves: Moves = ()
    doubt: ClockDoubt | None = None
    """Doubt about the clock; None = the clock is believed."""

    left_at_ms: int = 0
    """The clock at the last clean stop, if it was believed then; 0 = it was not."""

    timer_moves: Sequence[TimerMove] = ()
    """Oldest first, until all that waited then is laid anew."""


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

    A step that sets right what was wrong from the start on is no move for records before it. While
    the clock is in doubt that is every step back from where it started, and a step ahead up to the
    newest record's time: of two ages that such a record may have, the lesser counts.

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

    A noted step may have been taken back while no broker ran. Of the two ages that a
    record has then, with the moves since and without, the lesser counts.
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
