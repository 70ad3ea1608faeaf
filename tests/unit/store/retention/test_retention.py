"""Which files retention lets go, and when."""

from typing import Any

import pytest

from ternmq_model.errors import ConfigError
from ternmq_store.config import StoreConfig
from ternmq_store.retention.retention import (
    DeletionReason,
    DiskLevel,
    OldFile,
    disk_level,
    files_to_delete,
    forced_retention_ms,
    reason_to_delete,
    retention_ms,
)

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
DEFAULT = StoreConfig()


def file(index: int, *, age_h: float | None = 100, is_held: bool = False) -> OldFile:
    """A file of 1,024 bytes whose newest record is so old."""
    newest_at_ms = None if age_h is None else NOW_MS - int(age_h * HOUR_MS)
    return OldFile(index * 1024, (index + 1) * 1024, newest_at_ms, is_held)


def count(
    *files: OldFile, reason: DeletionReason = DeletionReason.HOUR, files_max: int = 10
) -> int:
    """Decide with the defaults."""
    kept_ms = retention_ms(DEFAULT, {})
    return files_to_delete(
        files,
        reason,
        now_ms=NOW_MS,
        kept_ms=kept_ms,
        forced_kept_ms=forced_retention_ms(DEFAULT),
        files_max=files_max,
    )


@pytest.mark.parametrize(
    ("used_share", "level"),
    [
        (0.0, DiskLevel.NORMAL),
        (0.7499, DiskLevel.NORMAL),
        (0.75, DiskLevel.CLEAN),
        (0.8499, DiskLevel.CLEAN),
        (0.85, DiskLevel.FORCE),
        (0.8999, DiskLevel.FORCE),
        (0.9, DiskLevel.FULL),
        (1.0, DiskLevel.FULL),
    ],
)
def test_disk_levels_equal_rocketmqs(used_share: float, level: DiskLevel) -> None:
    assert disk_level(used_share, DEFAULT) is level


def test_full_disk_that_may_be_cleaned_late_is_still_full() -> None:
    config = StoreConfig(disk_clean_percent=85)
    assert disk_level(0.86, config) is DiskLevel.FORCE
    assert disk_level(0.9, config) is DiskLevel.FULL


def test_files_are_examined_only_at_the_hour() -> None:
    config = StoreConfig(delete_when="04;16")
    hours = [
        hour
        for hour in range(24)
        if reason_to_delete(hour=hour, level=DiskLevel.NORMAL, is_requested=False, config=config)
    ]
    assert hours == [4, 16]


@pytest.mark.parametrize(
    ("level", "is_requested", "forcibly", "reason"),
    [
        (DiskLevel.NORMAL, False, True, None),
        (DiskLevel.NORMAL, True, True, DeletionReason.REQUEST),
        (DiskLevel.CLEAN, False, True, DeletionReason.DISK),
        (DiskLevel.FORCE, False, True, DeletionReason.DISK_FORCED),
        (DiskLevel.FULL, True, True, DeletionReason.DISK_FULL),
        (DiskLevel.FULL, False, False, DeletionReason.DISK),
        (DiskLevel.FORCE, False, False, DeletionReason.DISK),
    ],
)
def test_reasons_to_delete_outside_the_hour(
    level: DiskLevel, *, is_requested: bool, forcibly: bool, reason: DeletionReason | None
) -> None:
    config = StoreConfig(clean_forcibly=forcibly)
    found = reason_to_delete(hour=12, level=level, is_requested=is_requested, config=config)
    assert found is reason


def test_file_expires_72_hours_after_its_newest_message() -> None:
    assert count(file(0, age_h=72)) == 1
    assert count(file(0, age_h=71.99)) == 0


def test_deletion_ends_before_the_first_unexpired_file() -> None:
    assert count(file(0), file(1, age_h=1), file(2)) == 1


def test_deletion_ends_before_the_first_held_file_however_full_the_disk() -> None:
    files = (file(0), file(1, is_held=True), file(2))
    assert count(*files) == 1
    assert count(*files, reason=DeletionReason.DISK_FULL) == 1


def test_file_of_unknown_age_is_deleted_only_by_a_full_disk() -> None:
    assert count(file(0, age_h=None)) == 0
    assert count(file(0, age_h=None), reason=DeletionReason.DISK_FORCED) == 0
    assert count(file(0, age_h=None), reason=DeletionReason.DISK_FULL) == 1


def test_cleaning_step_deletes_ten_files_at_most() -> None:
    assert count(*map(file, range(30))) == 10


def test_unexpired_files_go_by_force_from_four_hours_on_and_any_on_a_full_disk() -> None:
    files = [file(index, age_h=age_h) for index, age_h in enumerate((9, 4, 3.9, 0))]
    assert count(*files, reason=DeletionReason.DISK) == 0
    assert count(*files, reason=DeletionReason.DISK_FORCED) == 2
    assert count(*files, reason=DeletionReason.DISK_FULL) == 4


def test_longest_retention_of_any_topic_decides() -> None:
    assert retention_ms(DEFAULT, {}) == 72 * HOUR_MS
    assert retention_ms(DEFAULT, {"short": HOUR_MS}) == 72 * HOUR_MS
    assert retention_ms(DEFAULT, {"short": HOUR_MS, "long": 100 * HOUR_MS}) == 100 * HOUR_MS


@pytest.mark.parametrize(
    "values",
    [
        {"delete_when": "24"},
        {"delete_when": ""},
        {"delete_when": "4,5"},
        {"file_reserved_hours": -1},
        {"disk_clean_percent": 86},
        {"disk_clean_percent": 49},
        {"disk_clean_percent": 76, "disk_force_percent": 75},
        {"disk_force_percent": 86},
        {"disk_force_percent": 69},
        {"disk_full_percent": 91},
        {"disk_full_percent": 84},
        {"forced_reserved_hours": -1},
        {"delete_files_max": 0},
    ],
)
def test_impossible_settings_are_refused(values: dict[str, Any]) -> None:
    name = next(iter(values))
    with pytest.raises(ConfigError, match=f"store.{name}"):
        StoreConfig(**values)
