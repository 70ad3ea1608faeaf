"""The listener, heard without Spark."""

import json
import logging
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress

from ternmq_model.errors import TernError, UsageError
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import Offsets
from ternmq_pipeline.source.streams.stream_lag import StreamLag
from ternmq_pipeline.source.streams.stream_listener import StreamListener, StreamReport

A0 = MessageQueue("TopicA", "broker-a", 0)
OURS: dict[str, Any] = {
    "description": "x",
    "startOffset": {"v": 1, "t": {"TopicA": {"broker-a:0": 0}}},
    "endOffset": {"v": 1, "t": {"TopicA": {"broker-a:0": 7}}},
    "latestOffset": {"v": 1, "t": {"TopicA": {"broker-a:0": 9}}},
    "numInputRows": 7,
    "inputRowsPerSecond": 1.0,
    "processedRowsPerSecond": 1.0,
    "metrics": {},
}
OTHERS = OURS | {"endOffset": {"files": 3}, "latestOffset": None}


class Commits:
    """Remembers what was committed."""

    def __init__(self, error: TernError | None = None) -> None:
        self.told: list[tuple[str, Offsets]] = []
        self.error = error
        self.is_closed = False

    def commit(self, group: str, offsets: Offsets) -> None:
        """Remember, or fail."""
        if self.error is not None:
            raise self.error
        self.told.append((group, offsets))

    def close(self) -> None:
        """Remember that too."""
        self.is_closed = True


def event(*sources: dict[str, Any], name: str | None = "flights") -> QueryProgressEvent:
    progress: dict[str, Any] = {
        "id": "114be242-57d4-4b7b-bf28-86424b10f777",
        "runId": "1fb2ffef-c8b5-48ce-89ed-cbe56dbf63c8",
        "name": name,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": 3,
        "batchDuration": 10,
        "durationMs": {},
        "eventTime": {},
        "stateOperators": [],
        "sources": list(sources),
        "sink": {"description": "y", "numOutputRows": 7, "metrics": {}},
        "numInputRows": 7,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
        "observedMetrics": {},
    }
    return QueryProgressEvent(StreamingQueryProgress.fromJson(json.loads(json.dumps(progress))))


def test_end_of_a_batch_is_reported_and_committed_unchanged() -> None:
    reports: list[StreamReport] = []
    commits = Commits()
    listener = StreamListener(observe=reports.append, commit_group="lake", committer=commits)
    listener.onQueryProgress(event(OTHERS, OURS))
    listener.close()
    assert commits.told == [("lake", {A0: 7})]
    assert commits.is_closed
    (report,) = reports
    assert (report.query_name, report.batch, report.behind) == ("flights", 3, StreamLag({A0: 2}))


def test_progress_of_other_queries_is_ignored() -> None:
    commits = Commits()
    listener = StreamListener(commit_group="lake", query_name="flights", committer=commits)
    listener.onQueryProgress(event(OURS, name="others"))
    listener.onQueryProgress(event(OURS, name=None))
    assert not commits.told
    listener.onQueryProgress(event(OURS))
    assert commits.told


def test_failed_commit_is_logged_and_the_next_one_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    commits = Commits(UsageError("no broker answers"))
    listener = StreamListener(commit_group="lake", committer=commits)
    with caplog.at_level(logging.WARNING):
        listener.onQueryProgress(event(OURS))
    assert "group=lake" in caplog.text
    assert "no broker answers" in caplog.text
    commits.error = None
    listener.onQueryProgress(event(OURS))
    assert commits.told == [("lake", {A0: 7})]
