from typing import Any

import pytest

from ternmq_pipeline.jobs.driver.batch_progress import batch_progress, messages_behind


def told(**changes: Any) -> dict[str, Any]:
    source = {
        "endOffset": {"v": 1, "t": {"T": {"a:0": 7, "a:1": 5}}},
        "latestOffset": {"v": 1, "t": {"T": {"a:0": 10, "a:1": 7}}},
    }
    return {
        "batchId": 3,
        "numInputRows": 12_000,
        "processedRowsPerSecond": 8_250.4,
        "sources": [source],
        "sink": {"numOutputRows": -1},
    } | changes


def test_micro_batch_reports_rows_speed_and_remaining_messages() -> None:
    one = batch_progress(told())
    assert (one.batch, one.rows_in, one.rows_out, one.behind) == (3, 12_000, None, 5)
    assert str(one) == "batch 3: 12,000 rows, 8,250 rows/s, 5 behind"


def test_written_rows_are_shown_where_they_differ() -> None:
    one = batch_progress(told(sink={"numOutputRows": 9_000}))
    assert "12,000 rows, 9,000 written" in str(one)
    assert "written" not in str(batch_progress(told(sink={"numOutputRows": 12_000})))


@pytest.mark.parametrize(
    "source", [{}, {"endOffset": 7, "latestOffset": 9}, {"endOffset": None, "latestOffset": {}}]
)
def test_lag_is_not_reported_for_other_sources(source: dict[str, object]) -> None:
    assert messages_behind(source) is None
    one = batch_progress(told(sources=[source], processedRowsPerSecond=None))
    assert str(one) == "batch 3: 12,000 rows, 0 rows/s"
