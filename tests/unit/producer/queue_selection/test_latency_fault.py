"""For how long brokers are avoided, by RocketMQ's two tables."""

import pytest

from ternmq_producer.queue_selection.latency_fault import FAULT_RULES, LatencyFaultTolerance

FOUR = [
    (0, 0), (49, 0), (50, 0), (100, 0), (549, 0), (550, 30_000), (999, 30_000), (1000, 60_000),
    (2000, 120_000), (3000, 180_000), (14_999, 180_000), (15_000, 600_000), (30_000, 600_000),
]  # fmt: skip
FIVE = [
    (0, 0), (549, 0), (550, 2000), (1799, 2000), (1800, 5000), (3000, 6000), (5000, 10_000),
    (10_000, 10_000), (14_999, 10_000), (15_000, 30_000),
]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "latency_ms", "isolation_ms"),
    [(4, *row) for row in FOUR] + [(5, *row) for row in FIVE],
)
def test_latency_isolates_for_the_time_of_the_table(
    version: int, latency_ms: int, isolation_ms: int
) -> None:
    table = LatencyFaultTolerance(FAULT_RULES[version])
    assert table.answered("a", latency_ms, now_ms=1000) == isolation_ms
    assert table.isolated_ms("a", now_ms=1000) == isolation_ms
    assert table.isolated_ms("a", now_ms=1000 + isolation_ms) == 0
    assert table.isolated_ms("a", now_ms=1_000_000) == 0


@pytest.mark.parametrize(("version", "isolation_ms"), [(4, 600_000), (5, 10_000)])
def test_failure_counts_as_a_long_latency(version: int, isolation_ms: int) -> None:
    table = LatencyFaultTolerance(FAULT_RULES[version])
    assert table.failed("a", now_ms=5) == isolation_ms
    assert table.isolated_ms("a", now_ms=4 + isolation_ms) == 1
    assert table.answered("a", 3, now_ms=6) == 0
    assert table.isolated_ms("a", now_ms=6) == 0


def test_better_half_takes_turns_when_all_are_isolated() -> None:
    table = LatencyFaultTolerance(FAULT_RULES[4])
    names = ["a", "b", "c", "d"]
    for name, latency_ms in zip(names, (9000, 600, 20_000, 700), strict=True):
        table.answered(name, latency_ms, now_ms=0)
    picked = [table.pick_one_at_least(names, now_ms=1) for _ in range(6)]
    assert set(picked) == {"b", "d"}
    assert picked.count("b") == 3
    assert table.pick_one_at_least(["a"], now_ms=1) == "a"
    assert table.pick_one_at_least(["a", "c"], now_ms=1) == "a"
    assert table.pick_one_at_least(["c", "new"], now_ms=1) == "new"
