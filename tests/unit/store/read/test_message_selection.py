"""Units that a read looks at."""

import numpy as np
import pytest

from ternmq_store.queues.read_request import ReadLimits
from ternmq_store.queues.units import PADDING_SIZE, Units, make_padding, make_units
from ternmq_store.read.message_selection import take, units_within


def units_of(sizes: list[int]) -> Units:
    """Return units of records with these sizes, one behind the other."""
    lengths = np.array(sizes, dtype=np.int64)
    return make_units(np.cumsum(lengths) - lengths, lengths, np.zeros(len(sizes), dtype=np.int64))


@pytest.mark.parametrize("sizes", [[100] * 5000, [5000, 100] * 2000, [100, 190] * 2000])
def test_read_looks_at_few_units_and_returns_as_many_messages(sizes: list[int]) -> None:
    units, limits = units_of(sizes), ReadLimits(8192, 20_000)
    some = units_within(units, limits.bytes_max)
    assert len(some) < 500

    def count(units: Units) -> int:
        starts, lengths = units["offset"].astype(np.int64), units["size"].astype(np.int64)
        return take(starts, lengths, limits, file_bytes=1 << 30, end=1 << 30)

    assert count(some) == count(units)


def test_read_looks_at_one_unit_at_least() -> None:
    assert len(units_within(units_of([4000, 100]), 10)) == 1


def test_read_looks_at_all_units_behind_padding_or_damage() -> None:
    for size in (PADDING_SIZE, -5, 0):
        assert len(units_within(units_of([size, 100, 100]), 100)) == 3
    assert len(units_within(make_padding(9), 100)) == 9
