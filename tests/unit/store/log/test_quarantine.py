"""Stretches of the log that readers pass over."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.log.quarantine import DamagedRange, Quarantine

OFFSETS = st.integers(0, 60)


def damaged(start: int, end: int, reason: str = "bad") -> DamagedRange:
    return DamagedRange(PhysicalOffset(start), PhysicalOffset(end), reason)


def test_records_in_a_bad_range_are_bad_and_all_others_good() -> None:
    quarantine = Quarantine([damaged(300, 400), damaged(100, 200)])
    starts = np.array([0, 99, 100, 199, 200, 299, 300, 399, 400], dtype=np.int64)
    bad = quarantine.places.are_in(starts).tolist()
    assert bad == [False, False, True, True, False, False, True, True, False]
    assert [quarantine.end_at(PhysicalOffset(at)) for at in (99, 100, 399, 400)] == [
        None,
        200,
        400,
        None,
    ]


def test_empty_quarantine_is_false_and_finds_nothing_bad() -> None:
    quarantine = Quarantine()
    assert not quarantine
    assert not quarantine.places.are_in(np.array([0, 5], dtype=np.int64)).any()


def test_known_damage_is_no_change() -> None:
    quarantine = Quarantine([damaged(100, 200)])
    assert quarantine.changes == 0
    assert not quarantine.add(PhysicalOffset(150), PhysicalOffset(160), "again")
    assert quarantine.changes == 0
    assert quarantine.add(PhysicalOffset(150), PhysicalOffset(250), "more")
    assert quarantine.changes == 1
    assert quarantine.ranges == (damaged(100, 250),)


def test_damage_outside_the_log_is_forgotten() -> None:
    quarantine = Quarantine([damaged(0, 10), damaged(20, 40), damaged(60, 70)])
    quarantine.keep_between(PhysicalOffset(30), PhysicalOffset(60))
    assert quarantine.ranges == (damaged(30, 40),)
    assert quarantine.changes == 1


def test_mended_bytes_are_forgotten_alone() -> None:
    quarantine = Quarantine([damaged(0, 10), damaged(20, 40), damaged(60, 70)])
    quarantine.remove(PhysicalOffset(25), PhysicalOffset(65))
    assert quarantine.ranges == (damaged(0, 10), damaged(20, 25), damaged(65, 70))
    assert quarantine.end_at(PhysicalOffset(30)) is None
    assert quarantine.changes == 1


@given(pairs=st.lists(st.tuples(OFFSETS, OFFSETS).filter(lambda pair: pair[0] < pair[1])))
def test_ranges_cover_exactly_the_bytes_added(pairs: list[tuple[int, int]]) -> None:
    quarantine = Quarantine()
    for start, end in pairs:
        quarantine.add(PhysicalOffset(start), PhysicalOffset(end), "bad")
    every = np.arange(61, dtype=np.int64)
    expected = [any(start <= at < end for start, end in pairs) for at in range(61)]
    assert quarantine.places.are_in(every).tolist() == expected
    assert [quarantine.end_at(PhysicalOffset(at)) is not None for at in range(61)] == expected
    ranges = quarantine.ranges
    assert all(ranges[i].end < ranges[i + 1].start for i in range(len(ranges) - 1))
