"""Families, and counts of histograms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq_runtime.metrics.families import HistogramCounts, MetricFamily, MetricKind

BOUNDS = (1.0, 2.5, 10.0)


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(1, 5))))
def test_counts_are_those_at_or_below_each_bound(observed: list[tuple[float, int]]) -> None:
    counts = HistogramCounts(BOUNDS)
    for value, count in observed:
        counts.observe(value, count)
    *buckets, total = counts.values()
    assert buckets == [
        sum(count for value, count in observed if value <= bound)
        for bound in (*BOUNDS, float("inf"))
    ]
    # Of Python 3.12 on, `sum` rounds less than the additions one by one.
    assert total == pytest.approx(sum(value * count for value, count in observed))


@pytest.mark.parametrize(
    ("kind", "name"),
    [(MetricKind.COUNTER, "x_total"), (MetricKind.GAUGE, "x"), (MetricKind.HISTOGRAM, "x")],
)
def test_samples_of_counters_alone_have_a_suffix(kind: MetricKind, name: str) -> None:
    assert MetricFamily(name="x", kind=kind, help="").sample_name == name
