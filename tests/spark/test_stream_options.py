"""Options of streams, each for what it does to a query's batches."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit, spark_partition_id
from pyspark.sql.streaming.query import StreamingQuery

from ternmq_model.message import Message
from ternmq_runtime.clock import SystemClock, rest
from tests.support.processes import ServiceProcess
from tests.support.spark_data import make_topic, send
from tests.support.stream_runs import Sent, arrived, rows_of, run, source, start

WAITS = 300
"""Tenths of a second."""


def until(query: StreamingQuery, done: Callable[[], bool]) -> None:
    """Wait for `done` while `query` runs."""
    for _ in range(WAITS):
        if done():
            return
        query.processAllAvailable()
    raise AssertionError(f"it does not come: {query.lastProgress}")


def sent_to(dev: ServiceProcess, topic: str, count: int, queues: int = 2) -> Sent:
    make_topic(dev.nameserver, topic, queues)
    sent = Sent(dev.nameserver)
    sent.send(topic, count)
    return sent


def test_batch_limits_hold_and_every_message_is_read_once(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    sent = sent_to(dev, "StreamLimits", 40)
    frame = source(
        spark, dev.nameserver, subscribe="StreamLimits", maxOffsetsPerTrigger=15, minPartitions=4
    )
    done = run(frame.withColumn("task", spark_partition_id()), tmp_path)
    assert [each.numInputRows for each in done] == [15, 15, 10]
    assert arrived(spark, tmp_path) == sent.places
    tasks = spark.read.parquet(str(tmp_path / "rows")).select("task").distinct().count()
    assert tasks >= 4
    assert json.loads(done[-1].sources[0].endOffset)["t"]["StreamLimits"] == {
        f"{dev.broker_name}:0": 20,
        f"{dev.broker_name}:1": 20,
    }
    sent.send("StreamLimits", 5)
    again = source(spark, dev.nameserver, subscribe="StreamLimits", maxRecordsPerPartition=1)
    (only,) = run(again.withColumn("task", spark_partition_id()), tmp_path)
    assert only.numInputRows == 5
    assert arrived(spark, tmp_path) == sent.places


def test_byte_limit_holds_and_trigger_once_ignores_limits(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    sent = sent_to(dev, "StreamBytes", 20)
    options = {"subscribe": "StreamBytes", "maxBytesPerTrigger": 2000}
    done = run(source(spark, dev.nameserver, **options), tmp_path / "bytes")
    assert len(done) > 2
    assert all(each.numInputRows * 100 < 2000 for each in done)
    assert arrived(spark, tmp_path / "bytes") == sent.places
    (only,) = run(source(spark, dev.nameserver, **options), tmp_path / "once", once=True)
    assert only.numInputRows == 20


def test_stream_begins_at_its_options_and_resumes_at_its_checkpoint(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    sent_to(dev, "StreamStart", 6, queues=1)
    rest(0.01)
    after_ms = SystemClock().wall_ms()
    sent = Sent(dev.nameserver)
    sent.send("StreamStart", 4)
    queue = f"{dev.broker_name}:0"
    positions: dict[str, dict[str, Any]] = {
        "latest": {"startingOffsets": "latest"},
        "offsets": {"startingOffsets": json.dumps({"StreamStart": {queue: 2}})},
        "time": {"startingTimestamp": after_ms},
        "times": {"startingOffsetsByTimestamp": json.dumps({"StreamStart": {queue: after_ms}})},
    }

    def asked(case: str, options: dict[str, Any]) -> DataFrame:
        frame = source(spark, dev.nameserver, subscribe="StreamStart", **options)
        return frame.select("queueOffset", lit(case).alias("case"))

    def united() -> DataFrame:
        frames = [asked(case, options) for case, options in positions.items()]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.union(frame)
        return whole

    def found() -> dict[str, list[int]]:
        rows = spark.read.parquet(str(tmp_path / "rows")).collect()
        return {
            case: sorted(row.queueOffset for row in rows if row.case == case) for case in positions
        }

    run(united(), tmp_path)
    begins = {"latest": 10, "offsets": 2, "time": 6, "times": 6}
    assert found() == {case: list(range(begin, 10)) for case, begin in begins.items()}
    sent.send("StreamStart", 3)
    run(united(), tmp_path)
    assert found() == {case: list(range(begin, 13)) for case, begin in begins.items()}


def test_batch_waits_for_enough_messages_or_the_longest_delay(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    sent = sent_to(dev, "StreamLeast", 4)
    frame = source(
        spark,
        dev.nameserver,
        subscribe="StreamLeast",
        minOffsetsPerTrigger=10,
        maxTriggerDelay="5s",
    )
    query = start(frame, tmp_path, processingTime="100 milliseconds")
    try:
        query.processAllAvailable()
        assert rows_of(query) == []
        sent.send("StreamLeast", 8)
        until(query, lambda: rows_of(query) == [12])
        sent.send("StreamLeast", 2)
        query.processAllAvailable()
        assert rows_of(query) == [12]
        until(query, lambda: rows_of(query) == [12, 2])
    finally:
        query.stop()
    assert arrived(spark, tmp_path) == sent.places


def test_stream_has_the_columns_and_filters_of_a_batch(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(dev.nameserver, "StreamColumns", 1)
    tags = ("red", "blue", "red")
    send(dev.nameserver, [Message("StreamColumns", b"b", tags=each, keys=("k",)) for each in tags])
    frames = {
        "narrow": spark.readStream.schema("tags string, queueOffset long").options(filter="red"),
        "kafka": spark.readStream.option("view", "kafka"),
        "tuples": spark.readStream.option("arrow", "false").option("filter", "red || blue"),
    }
    for case, reader in frames.items():
        frame = (
            reader.format("ternmq")
            .option("nameserver", dev.nameserver)
            .options(subscribe="StreamColumns", startingOffsets="earliest")
            .load()
        )
        run(frame, tmp_path / case)

    def rows(case: str) -> list[Any]:
        return spark.read.parquet(str(tmp_path / case / "rows")).collect()

    assert sorted((row.tags, row.queueOffset) for row in rows("narrow")) == [("red", 0), ("red", 2)]
    assert sorted((row.key, row.value, row.offset) for row in rows("kafka")) == [
        (b"k", b"b", number) for number in range(3)
    ]
    assert sorted(row.queueOffset for row in rows("tuples")) == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger"),
        ({"endingOffsets": "latest"}, "endingOffsets"),
        ({"subscribe": "NoSuchTopic"}, "NoSuchTopic"),
    ],
)
def test_unsupported_options_end_a_stream_with_an_error_naming_them(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path, options: dict[str, str], said: str
) -> None:
    make_topic(dev.nameserver, "StreamHostile", 1)
    with pytest.raises(Exception, match=said):
        run(source(spark, dev.nameserver, **{"subscribe": "StreamHostile", **options}), tmp_path)


def test_newer_checkpoint_is_refused_and_one_of_other_topics_is_a_loss(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    sent_to(dev, "StreamOld", 3)
    newer = sent_to(dev, "StreamNewer", 4)
    run(source(spark, dev.nameserver, subscribe="StreamOld"), tmp_path)
    other = source(spark, dev.nameserver, subscribe="StreamNewer")
    with pytest.raises(StreamingQueryException, match=r"topic StreamOld, broker .*, queue 0"):
        run(other, tmp_path)
    run(
        source(spark, dev.nameserver, subscribe="StreamNewer", failOnDataLoss="false"),
        tmp_path,
    )
    found = arrived(spark, tmp_path)
    assert {place for place in found if place[0] == "StreamNewer"} == set(newer.places)
    offsets = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))[-1]
    offsets.write_text(offsets.read_text().replace('"v": 1', '"v": 2'))
    offsets.with_name(f".{offsets.name}.crc").unlink()
    with pytest.raises(StreamingQueryException, match="version"):
        run(other, tmp_path)
