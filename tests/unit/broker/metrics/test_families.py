"""The table of a broker's metrics."""

from ternmq_broker.metrics import families
from ternmq_runtime.metrics.families import MetricFamily, MetricKind


def table() -> list[MetricFamily]:
    return [each for each in vars(families).values() if isinstance(each, MetricFamily)]


def test_names_are_unique_and_begin_with_their_system() -> None:
    names = [each.name for each in table()]
    assert len(names) == len(set(names))
    assert all(name.startswith(("rocketmq_", "ternmq_")) for name in names)


def test_bounds_ascend_and_only_histograms_have_them() -> None:
    for each in table():
        assert bool(each.bounds) is (each.kind is MetricKind.HISTOGRAM), each.name
        assert list(each.bounds) == sorted(set(each.bounds)), each.name


def test_ages_are_extremes_and_counts_are_sums() -> None:
    extremes = {each.name for each in table() if each.is_extreme}
    assert extremes == {
        "rocketmq_consumer_lag_latency_milliseconds",
        "rocketmq_consumer_queueing_latency_milliseconds",
        "ternmq_consumer_queue_lag_seconds",
        "ternmq_consumer_oldest_unacknowledged_seconds",
    }
