from ternmq_pipeline.jobs.cluster_report.report_tables import (
    ClusterReport,
    HourRow,
    hour_starts,
    hourly,
)
from tests.support.reports import group_row, some_report

HOUR = 3_600_000


def test_hours_begin_at_full_hours_and_end_with_the_present_one() -> None:
    assert hour_starts(10 * HOUR + 5, 2) == [8 * HOUR, 9 * HOUR, 10 * HOUR]


def test_hourly_traffic_is_the_difference_of_its_ends() -> None:
    rows = hourly("T", [0, HOUR], [10, 15, 15])
    assert rows == [HourRow("T", 0, 5), HourRow("T", HOUR, 0)]


def test_slow_groups_come_with_the_slowest_first() -> None:
    rows = [
        group_row("quick"),
        group_row("slow", lag_s=400.0, is_slow=True),
        group_row("slower", lag_s=900.0, is_slow=True),
    ]
    report: ClusterReport = some_report(groups=rows)
    assert [row.group for row in report.slow] == ["slower", "slow"]
