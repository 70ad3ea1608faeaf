from typing import Any

import pytest

from ternmq_pipeline.jobs.driver.batch_progress import batch_progress, messages_behind, reason_of


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


def test_failure_reason_is_our_own_line_among_pages_of_others() -> None:
    text = """[STREAM_FAILED] Query [id = 7c] terminated with exception: [PYTHON_STREAMING] Failed
Traceback (most recent call last):
  File "worker.py", line 7, in main
    check()
ternmq_model.errors.DataLost: T/a/0: wanted 3, but it begins with 9;
  failOnDataLoss=true
\tat org.apache.spark.Something.run(Something.scala:7)
java.lang.RuntimeException: other
"""
    assert reason_of(text) == "T/a/0: wanted 3, but it begins with 9; failOnDataLoss=true"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[PYTHON_DATA_SOURCE_ERROR] Failed to plan: ", "\n SQLSTATE: 38000"),
        ("An exception was thrown from the Python worker:\n", "\n\nJVM stacktrace:\norg.x"),
        (
            "[STREAM_FAILED] Query [id = 7c] terminated with exception: [P] Failed: ",
            "\n SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: [id = 7c]",
        ),
    ],
)
def test_failure_reason_is_our_sentence_without_a_traceback(before: str, after: str) -> None:
    text = f"{before}ternmq_model.errors.DataLost: T/a/0: wanted 3;\n  more of it{after}"
    assert reason_of(text) == "T/a/0: wanted 3; more of it"


def test_failure_reason_is_first_line_and_exception_without_our_error() -> None:
    text = "[FAILED] it failed\n  File x\nValueError: no number\n\tat java.Thing"
    assert reason_of(text) == "it failed: ValueError: no number"
    text = (
        "[STREAM_X] Query [id = 1-a, runId = 2-b] terminated with exception: [USER_X] no such day"
    )
    assert reason_of(text) == "no such day"
    text = "[A.B_2] A column `x` cannot be found. SQLSTATE: 42703; line 1 pos 0;\n'Filter"
    assert reason_of(text) == "A column `x` cannot be found."
    assert reason_of("") == "no reason is told"
    assert len(reason_of("x" * 5_000)) < 1_000
