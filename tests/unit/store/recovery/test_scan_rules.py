"""What recovery decides."""

import pytest

from ternmq_model.offsets import PhysicalOffset
from ternmq_store.recovery.scan_rules import (
    FirstRecord,
    NextGood,
    ScanRules,
    end_of_damage,
    scan_start,
)


def test_scan_begins_with_the_last_file_safe_at_its_beginning() -> None:
    files = [FirstRecord(PhysicalOffset(base), at) for base, at in ((0, 10), (100, 20), (200, 30))]
    assert scan_start(files, 30) == 200
    assert scan_start(files, 29) == 100
    assert scan_start(files, 9) == 0
    assert scan_start([*files, FirstRecord(PhysicalOffset(300), 0)], 40) == 200


def offset(value: int) -> PhysicalOffset:
    return PhysicalOffset(value)


@pytest.mark.parametrize(
    ("at", "following", "expected"),
    [
        (100, 200, 200),  # damaged, and it counted as stored
        (100, 900, 500),  # what follows never counted
        (100, None, 500),
        (500, 600, None),  # torn by the crash
    ],
)
def test_flushed_part_of_our_own_log_is_kept_and_the_rest_cut(
    at: int, following: int | None, expected: int | None
) -> None:
    rules = ScanRules(offset(500), is_ours=True, left_at=None, safe_at_ms=0)
    good = NextGood(offset(following), 7) if following is not None else None
    found = end_of_damage(rules, offset(at), good, last_stored_at_ms=9, is_checksummed=False)
    assert found == expected


@pytest.mark.parametrize(
    ("stored_at_ms", "expected"),
    [
        (49, None),  # stale: RocketMQ's log ended here, and older records lie behind
        (50, 200),
        (80, 200),
        (81, None),  # nobody knows whether it was on the disk
    ],
)
def test_store_times_tell_damage_from_the_end_of_a_foreign_log(
    stored_at_ms: int, expected: int | None
) -> None:
    rules = ScanRules(offset(0), is_ours=False, left_at=None, safe_at_ms=80)
    good = NextGood(offset(200), stored_at_ms)
    found = end_of_damage(rules, offset(100), good, last_stored_at_ms=50, is_checksummed=False)
    assert found == expected


def test_range_written_by_this_store_needs_no_store_times() -> None:
    rules = ScanRules(offset(500), is_ours=False, left_at=None, safe_at_ms=80)
    good = NextGood(offset(200), 1)
    for is_checksummed, expected in ((True, 200), (False, None)):
        found = end_of_damage(
            rules, offset(100), good, last_stored_at_ms=50, is_checksummed=is_checksummed
        )
        assert found == expected
