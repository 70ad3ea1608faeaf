"""What is wanted of messages."""

import pytest

from ternmq_model.columns.column_names import COLUMNS
from ternmq_model.errors import UsageError
from ternmq_model.subscription import parse_subscription
from ternmq_store.scan.scan_spec import BATCH_BYTES_MAX, BATCH_ROWS_MAX, ScanSpec


def test_limits_are_lowered_to_the_allowed() -> None:
    wanted = ScanSpec(batch_rows_max=1 << 40, batch_bytes_max=1 << 40, columns=()).checked()
    assert (wanted.batch_rows_max, wanted.batch_bytes_max) == (BATCH_ROWS_MAX, BATCH_BYTES_MAX)
    assert wanted.columns == COLUMNS


@pytest.mark.parametrize("wanted", [ScanSpec(batch_rows_max=0), ScanSpec(batch_bytes_max=0)])
def test_batch_limit_of_zero_is_refused(wanted: ScanSpec) -> None:
    with pytest.raises(UsageError):
        wanted.checked()


def test_deciding_columns_are_read_behind_the_wanted_ones() -> None:
    tags = parse_subscription("A", "x")
    wanted = ScanSpec(subscription=tags, columns=["body"], keys=frozenset("k"), stored_from_ms=1)
    assert wanted.columns_needed == ("body", "tags", "keys", "storeTimestamp")
    assert ScanSpec(subscription=tags, columns=["tags"]).columns_needed == ("tags",)


def test_condition_decides_by_the_bytes_of_properties() -> None:
    wanted = ScanSpec(subscription=parse_subscription("A", "n > 3", "SQL92"))
    keep = wanted.record_filter
    assert keep is not None
    assert keep(b"n\x015\x02")
    assert not keep(b"n\x013\x02")
    assert ScanSpec().record_filter is None
