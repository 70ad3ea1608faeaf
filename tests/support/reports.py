"""Reports made by hand."""

from dataclasses import replace
from typing import Any, Final

from ternmq_pipeline.jobs.cluster_report.report_tables import (
    ClusterReport,
    DeadLettersRow,
    GroupRow,
    HourRow,
    MemberRow,
    TopicRow,
)

MADE_AT_MS: Final = 1_795_216_147_000
HOUR_MS: Final = 3_600_000


def topic_row(topic: str = "orders", **changes: Any) -> TopicRow:
    row = TopicRow(
        topic=topic,
        queues=8,
        messages=1200,
        bytes=5 << 20,
        in_per_s=12.5,
        in_24h=4000,
        out_per_s=3.0,
        out_24h=3000,
        groups=1,
        last_stored_at_ms=MADE_AT_MS - 50,
    )
    return replace(row, **changes)


def group_row(group: str = "billing", **changes: Any) -> GroupRow:
    row = GroupRow(
        group=group,
        topic="orders",
        members=2,
        lag=7,
        lag_s=0.25,
        out_per_s=3.0,
        out_24h=3000,
        sent_back_24h=5,
        dead_24h=1,
        is_retry=False,
        is_slow=False,
    )
    return replace(row, **changes)


def member_row(client_id: str = "10.0.0.1@4711#1", **changes: Any) -> MemberRow:
    row = MemberRow(
        group="billing",
        client_id=client_id,
        address="10.0.0.1:5512",
        queues=4,
        in_hand=12,
        messages_per_s=55.2,
        failures=1,
        sent_back=2,
        timed_out=0,
        last_consumed_at_ms=MADE_AT_MS - 900,
        is_slow=False,
    )
    return replace(row, **changes)


def some_report(**changes: Any) -> ClusterReport:
    """Return a report with a row in each table."""
    report = ClusterReport(
        made_at_ms=MADE_AT_MS,
        hours=24,
        slow_after_ms=300_000,
        brokers=("broker-a",),
        topics=[topic_row()],
        groups=[group_row()],
        members=[member_row()],
        dead_letters=[DeadLettersRow("billing", 3, 10, MADE_AT_MS - HOUR_MS)],
        traffic=[HourRow("orders", MADE_AT_MS - MADE_AT_MS % HOUR_MS, 40)],
    )
    return replace(report, **changes)


def empty_report() -> ClusterReport:
    return ClusterReport(MADE_AT_MS, 24, 300_000, (), (), (), (), (), ())
