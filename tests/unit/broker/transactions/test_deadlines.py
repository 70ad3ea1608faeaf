from hypothesis import given
from hypothesis import strategies as st

from ternmq_broker.transactions.deadlines import StagedDeadlines
from ternmq_model.offsets import QueueOffset


def add(deadlines: StagedDeadlines, begin: int, end: int, due_at_ms: int) -> None:
    deadlines.add(QueueOffset(begin), QueueOffset(end), due_at_ms)


def test_places_come_due_in_their_second_and_no_earlier() -> None:
    deadlines = StagedDeadlines()
    add(deadlines, 5, 8, 60_001)
    assert deadlines.take(60_999, maximum=10) == []
    assert deadlines.take(61_000, maximum=10) == [5, 6, 7]
    assert deadlines.take(1 << 40, maximum=10) == []


def test_deadlines_are_taken_a_bounded_number_at_a_time() -> None:
    deadlines = StagedDeadlines()
    add(deadlines, 0, 5, 1_000)
    add(deadlines, 5_000, 5_003, 1_000)
    add(deadlines, 9_000, 9_001, 2_000)
    assert deadlines.take(2_000, maximum=3) == [0, 1, 2]
    assert deadlines.take(2_000, maximum=3) == [3, 4, 5_000]
    assert deadlines.take(1_999, maximum=3) == [5_001, 5_002]
    assert deadlines.take(2_000, maximum=3) == [9_000]


def test_adjacent_places_share_one_range() -> None:
    deadlines = StagedDeadlines()
    for begin in range(0, 100_000, 10):
        add(deadlines, begin, begin + 8, 5_000)
    (ranges,) = deadlines._ranges.values()  # pyright: ignore[reportPrivateUsage]
    assert len(ranges) == 1


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 40), st.integers(0, 9_000))),
    st.integers(1, 50),
)
def test_each_place_is_examined_once_due(told: list[tuple[int, int, int]], maximum: int) -> None:
    deadlines = StagedDeadlines()
    at, wanted = 0, set[tuple[int, int]]()
    for gap, count, due_at_ms in told:
        at += gap
        add(deadlines, at, at + count, due_at_ms)
        wanted |= {(place, due_at_ms) for place in range(at, at + count)}
        at += count
    for now_ms in range(0, 11_000, 1_000):
        found: list[QueueOffset] = []
        while some := deadlines.take(now_ms, maximum=maximum):
            assert len(some) <= maximum
            found += some
        assert len(found) == len(set(found))
        due = {pair for pair in wanted if pair[1] <= now_ms}
        assert {place for place, _ in due} <= set(found)
        wanted -= due
    assert not wanted
