"""What pages of a broker come to, and which batches are left alone."""

import pytest

from ternmq_client.administration.transactions import OpenTransactions, check_left_behind, merged
from ternmq_model.errors import RefusedError
from ternmq_model.response_code import ResponseCode


def batch(
    staged_for: str, count: int = 1, *, quiet_ms: int = 70_000, left_ms: int | None = 1000
) -> OpenTransactions:
    return OpenTransactions("a", staged_for, "g", "t", count, 100 + count, count, quiet_ms, left_ms)


def test_pages_are_merged_to_one_line_for_each_batch() -> None:
    pages = [
        batch("q/1", 3, quiet_ms=90_000, left_ms=500),
        batch("", 2, left_ms=None),
        batch("q/2"),
        batch("q/1", 4, quiet_ms=80_000, left_ms=400),
        batch("", 5, left_ms=None),
    ]
    assert merged(pages) == [
        OpenTransactions("a", "q/1", "g", "t", 7, 104, 3, 80_000, 400),
        OpenTransactions("a", "", "g", "t", 7, 105, 2, 70_000, None),
        batch("q/2"),
    ]


def test_batch_that_somebody_worked_on_in_the_last_minute_is_named_and_left_alone() -> None:
    check_left_behind([])
    check_left_behind([batch("q/1", quiet_ms=60_000)])
    with pytest.raises(RefusedError, match=r"q/2 is in use: .* 59 s ago") as refused:
        check_left_behind([batch("q/1"), batch("q/2", quiet_ms=59_000)])
    assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
