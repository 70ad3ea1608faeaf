"""What a stream tells while it runs: its lag, and how far its group is."""

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ternmq_model.queue import MessageQueue
from ternmq_pipeline.source.streams.stream_listener import StreamListener, StreamReport
from tests.support.processes import ServiceProcess, run_ternmq
from tests.support.spark_data import make_topic
from tests.support.spark_sink import eventually
from tests.support.stream_runs import RUN_WITHIN_S, Sent, run, source, start


def described(dev: ServiceProcess, group: str, topic: str) -> list[tuple[int, int]]:
    """Return offset and lag of each queue that `ternmq group describe` shows for `group`."""
    words = ("group", "describe", group, "--nameserver", dev.nameserver, "--json")
    rows: list[dict[str, Any]] = json.loads(run_ternmq(*words))["progress"]
    return [(row["committed"], row["lag"]) for row in rows if row["topic"] == topic]


def test_commit_group_follows_a_stream_late_by_option_and_exactly_by_listener(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(dev.nameserver, "Watched", 1)
    Sent(dev.nameserver).send("Watched", 20)
    options = {"subscribe": "Watched", "maxOffsetsPerTrigger": 8}
    reports: list[StreamReport] = []
    listener = StreamListener(
        observe=reports.append,
        commit_group="watch-exactly",
        query_name="watched",
        nameserver=dev.nameserver,
    )
    spark.streams.addListener(listener)
    try:
        frame = source(spark, dev.nameserver, **options, commitGroup="watch-late")
        query = start(frame, tmp_path, name="watched")
        assert query.awaitTermination(RUN_WITHIN_S)
        run(source(spark, dev.nameserver, subscribe="Watched"), tmp_path / "other")
        queue = MessageQueue("Watched", dev.broker_name, 0)
        eventually(lambda: len(reports) >= 3, "a report of each batch")
        assert [report.behind.queues for report in reports if report.behind] == [
            {queue: 12},
            {queue: 4},
            {queue: 0},
        ]
        assert reports[0].behind is not None
        assert reports[0].behind.metrics()["maxOffsetsBehindLatest"] == 12
        assert described(dev, "watch-late", "Watched") == [(16, 4)]
        # A listener is told of a batch before it commits it.
        eventually(lambda: described(dev, "watch-exactly", "Watched") == [(20, 0)], "the last end")
    finally:
        spark.streams.removeListener(listener)
        listener.close()
