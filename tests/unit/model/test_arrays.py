"""Tests of functions of numpy arrays."""

import numpy as np
import pytest

from ternmq_model.arrays import rows_with_repeats


@pytest.mark.parametrize("count", [3, 48, 49, 1000])
def test_rows_with_repeats_are_found_for_few_and_many_codes(count: int) -> None:
    rows = np.array([0, 0, 2, 2, 2, 3, 5, 5])
    codes = np.array([0, 1, 1, 2, 1, 1, count - 1, count - 1])
    assert rows_with_repeats(rows, codes, count) == [2, 5]
    assert rows_with_repeats(rows[:0], codes[:0], count) == []
