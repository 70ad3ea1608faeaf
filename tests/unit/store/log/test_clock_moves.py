"""How far the clock has moved since records were stored."""

import numpy as np
import pytest

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.log.clock_moves import (
    MOVES_MAX,
    ClockDoubt,
    ClockMove,
    ClockNotes,
    all_moved_ms,
    are_in_order,
    doubted,
    moved_ms,
    stepped,
    within,
)

DAY_MS = 86_400_000


def at(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


def after(*steps: tuple[int, int], doubt: ClockDoubt | None = None) -> ClockNotes:
    """Return what is known after steps, each an end of the log and by how much."""
    clock = ClockNotes(doubt=doubt)
    for end, by_ms in steps:
        clock = stepped(clock, by_ms, at(end))
    return clock


def moved(clock: ClockNotes, *offsets: int) -> list[int]:
    """Return how far the clock has moved since each record was stored, told in both ways."""
    found = [moved_ms(clock.moves, at(offset)) for offset in offsets]
    assert all_moved_ms(clock.moves, np.array(offsets, dtype=np.int64)).tolist() == found
    return found


def test_moves_count_for_records_stored_before() -> None:
    clock = after((100, 5_000), (300, -7_000))
    assert moved(clock, 0, 99, 100, 299, 300) == [-2_000, -2_000, -7_000, -7_000, 0]


def test_step_and_its_return_at_one_offset_leave_no_move() -> None:
    assert after((100, 5_000), (100, -5_000)) == ClockNotes()
    assert moved(after((100, 5_000), (100, -4_000)), 99, 100) == [1_000, 0]


def test_oldest_moves_count_as_one_when_there_are_many() -> None:
    clock = after(*((offset, 1) for offset in range(1, MOVES_MAX + 3)))
    assert len(clock.moves) == MOVES_MAX
    assert are_in_order(clock.moves)
    assert moved(clock, 0, 3, MOVES_MAX + 1) == [MOVES_MAX + 2, MOVES_MAX - 1, 1]


@pytest.mark.parametrize("by_ms", [-5_000, 5_000])
def test_oldest_move_that_goes_makes_no_record_older(by_ms: int) -> None:
    steps = [(1, by_ms), *((offset, 150) for offset in range(2, MOVES_MAX + 2))]
    all_of = [*range(MOVES_MAX + 3)]
    known = after(*steps[:MOVES_MAX])
    more = after(*steps)
    was = [
        each + 150 * (offset <= MOVES_MAX)
        for offset, each in zip(all_of, moved(known, *all_of), strict=True)
    ]
    found = zip(moved(more, *all_of), was, strict=True)
    assert all(younger_by >= before for younger_by, before in found)
    assert moved(more, 2) == [150 * MOVES_MAX - 150]


@pytest.mark.parametrize(
    ("steps", "moved_ms"),
    [
        ([-40], [0, 0]),
        ([40], [40, 0]),
        ([40, -40], [0, 0, 0]),
        ([-40, 40], [0, 40, 0]),
        ([5, -7, 9], [7, 2, 9, 0]),
    ],
)
def test_doubt_leaves_no_move_that_makes_records_older(
    steps: list[int], moved_ms: list[int]
) -> None:
    clock = after(*((100 * n, by_ms) for n, by_ms in enumerate(steps, 1)))
    clock = doubted(clock, ClockDoubt(at(1000), 0))
    assert moved(clock, *(100 * n for n in range(len(steps) + 1))) == moved_ms
    assert are_in_order(clock.moves)


@pytest.mark.parametrize(
    ("behind_ms", "steps", "older_ms"),
    [
        pytest.param(0, [-40], 0, id="ahead at the start, then set right"),
        pytest.param(40, [40], 0, id="behind at the start, then set right"),
        pytest.param(40, [45], 5, id="behind at the start after a pause"),
        pytest.param(0, [40], 40, id="right at the start, then wrong"),
        pytest.param(0, [40, -40], 0, id="right at the start, then ahead for a while"),
        pytest.param(0, [-40, 40], 0, id="right at the start, then behind for a while"),
        pytest.param(40, [-5, 45], 0, id="behind, then more, then set right"),
    ],
)
def test_step_in_doubt_makes_older_records_no_older_than_they_may_be(
    behind_ms: int, steps: list[int], older_ms: int
) -> None:
    doubt = ClockDoubt(at(100), behind_ms * DAY_MS)
    clock = after(*((200 + n, by * DAY_MS) for n, by in enumerate(steps)), doubt=doubt)
    assert moved(clock, 50, 150) == [older_ms * DAY_MS, sum(steps) * DAY_MS]
    assert clock.doubt == ClockDoubt(at(100), (behind_ms - sum(steps)) * DAY_MS)


def test_moves_of_what_the_log_lost_are_forgotten() -> None:
    clock = ClockNotes(
        (ClockMove(at(100), 1), ClockMove(at(200), 2), ClockMove(at(300), 4)),
        ClockDoubt(at(300), 0),
    )
    assert within(clock, at(0), at(300)) == clock
    assert within(clock, at(100), at(250)) == ClockNotes(
        (ClockMove(at(200), 2), ClockMove(at(250), 4)), ClockDoubt(at(250), 0)
    )
    assert within(clock, at(0), at(150)).moves == (ClockMove(at(100), 1), ClockMove(at(150), 6))
