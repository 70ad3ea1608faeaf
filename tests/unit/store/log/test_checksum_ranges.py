"""Ranges of the log in which a record must have its checksum."""

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.log.checksum_ranges import (
    ChecksumRange,
    Ranges,
    closed,
    is_inside,
    kept,
    next_border,
    opened,
)


def at(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


def rows(*pairs: tuple[int, int | None]) -> Ranges:
    return tuple(ChecksumRange(at(start), None if end is None else at(end)) for start, end in pairs)


def test_range_goes_from_its_start_to_before_its_end() -> None:
    ranges = rows((10, 20), (30, None))
    inside = [offset for offset in range(40) if is_inside(ranges, at(offset))]
    assert inside == [*range(10, 20), *range(30, 40)]


def test_next_border_is_where_the_answer_may_change() -> None:
    ranges = rows((10, 20), (30, None))
    assert [next_border(ranges, at(offset)) for offset in (0, 10, 20, 30)] == [10, 20, 30, None]


def test_open_range_goes_on_and_a_closed_one_is_followed() -> None:
    assert opened((), at(5)) == rows((5, None))
    assert opened(rows((5, None)), at(9)) == rows((5, None))
    assert opened(rows((5, 9)), at(9)) == rows((5, None))
    assert opened(rows((5, 8)), at(9)) == rows((5, 8), (9, None))


def test_range_closed_where_it_began_is_none() -> None:
    assert closed(rows((5, None)), at(5)) == ()
    assert closed(rows((5, None)), at(7)) == rows((5, 7))
    assert closed(rows((5, 6)), at(7)) == rows((5, 6))


def test_ranges_follow_a_log_that_loses_an_end() -> None:
    ranges = rows((0, 10), (20, 30), (40, None))
    assert kept(ranges, at(5), at(25)) == rows((5, 10), (20, 25), (25, None))
    assert kept(ranges, at(35), at(60)) == rows((40, None))
