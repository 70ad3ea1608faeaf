"""Arrow arrays of slices of a buffer."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

slices: Any = pytest.importorskip("ternmq_model.columns.slices")

DATA = bytes(range(200))


@given(
    st.lists(
        st.tuples(st.integers(0, 190), st.sampled_from([0, 1, 4, 4, 4, 10])), min_size=1, max_size=6
    ),
    st.sampled_from([None, 0, 4]),
)
def test_slices_are_copied_in_any_order_and_of_any_length(
    places: list[tuple[int, int]], length: int | None
) -> None:
    begins = np.array([begin for begin, _ in places])
    ends = begins + np.array([size if length is None else length for _, size in places])
    found = slices.gather(DATA, begins, ends)
    found.validate(full=True)
    pairs = zip(begins.tolist(), ends.tolist(), strict=True)
    assert found.to_pylist() == [DATA[begin:end] for begin, end in pairs]
