from typing import Any

import pytest

from ternmq_model.errors import TransportError, UsageError
from ternmq_pipeline.jobs.replay import replay

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("to_topic", "options", "named"),
    [
        ("T", {}, "Parquet files or a topic"),
        ("T", {"folder": "/x", "topic": "U"}, "Parquet files or a topic"),
        ("T", {"topic": "U", "start_ms": 9, "end_ms": 9}, "start_ms=9: must be before end_ms=9"),
        ("T", {"topic": "T"}, "into itself: give a past end_ms"),
        ("T", {"topic": "T", "end_ms": 1 << 50}, "into itself: give a past end_ms"),
        ("T", {"topic": "U", "batch_rows": 0}, "batch_rows=0"),
        ("%DLQ%g", {"topic": "U"}, "only brokers may write"),
        ("T", {"folder": "/x", "checkpoint": "/y", "dry_run": True}, "leave checkpoint out"),
        ("T", {"topic": "U", "checkpoint": "a\0b"}, "checkpoint="),
    ],
)
def test_illegal_options_are_refused_by_name(
    to_topic: str, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        replay(to_topic, nameserver=NOBODY, **options)


def test_silent_cluster_is_reported_before_spark_starts() -> None:
    with pytest.raises(TransportError, match=NOBODY):
        replay("T", nameserver=NOBODY, folder="/x", retry_timeout_s=1)
