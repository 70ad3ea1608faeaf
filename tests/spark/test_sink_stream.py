"""Streams become messages: batches, restarts, and from topic to topic."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.processes import ServiceProcess
from tests.support.sink_doubles import HalfwaySource, is_reached, open_gate
from tests.support.spark_data import fill, make_topic
from tests.support.spark_sink import bodies, eventually, read_topic


def run(
    rows: DataFrame, dev: ServiceProcess, folder: Path, *, mode: str = "append", **options: str
) -> str:
    """Write what is there now, and return the query's id."""
    told = {"nameserver": dev.nameserver, "checkpointLocation": str(folder / "checkpoint")}
    writer = rows.writeStream.format("ternmq").options(**(told | options)).outputMode(mode)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return str(query.id)


def test_each_batch_is_written_once_over_restarts(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(dev.nameserver, "stream-sink")
    (tmp_path / "input").mkdir()
    lines = spark.readStream.option("maxFilesPerTrigger", "1").text(str(tmp_path / "input"))
    rows = lines.withColumnRenamed("value", "body")
    ids: set[str] = set()
    for start in range(2):
        for number in range(2):
            name = f"{2 * start + number}"
            (tmp_path / "input" / name).write_text(f"{name}-a\n{name}-b\n")
        ids.add(run(rows, dev, tmp_path, topic="stream-sink"))
    found = read_topic(dev.nameserver, "stream-sink")
    assert sorted(message.body.decode() for message in found) == [
        f"{name}-{row}" for name in range(4) for row in "ab"
    ]
    assert {message.properties["SPARK_QUERY"] for message in found} == ids
    assert len(ids) == 1
    batches = Counter(message.properties["SPARK_BATCH"] for message in found)
    assert batches == {"0": 2, "1": 2, "2": 2, "3": 2}


def test_stream_copies_topic_to_topic_over_a_restart(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    sent = fill(dev.nameserver, "stream-from", 30)
    make_topic(dev.nameserver, "stream-to")
    source = (
        spark.readStream.format("ternmq")
        .option("nameserver", dev.nameserver)
        .option("subscribe", "stream-from")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "12")
        .load()
    )
    rows = source.select("body", "tags", "keys", "properties")
    run(rows, dev, tmp_path, topic="stream-to")
    sent += fill(dev.nameserver, "stream-from", 10, begin=30)
    run(rows, dev, tmp_path, topic="stream-to")
    found = read_topic(dev.nameserver, "stream-to")
    assert sorted(message.body for message in found) == sorted(sent)
    for message in found:
        number = int(message.body.removeprefix(b"message-"))
        assert message.tags == ("even", "odd")[number % 2]
        assert list(message.keys) == [f"k{number}"]
        assert message.properties["n"] == str(number)


def test_query_stopped_in_its_commit_finishes_it_or_repeats_the_batch(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(dev.nameserver, "stopped")
    spark.dataSource.register(HalfwaySource)
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "0").write_text("a\nb\nc\nd\n")
    rows = spark.readStream.text(str(tmp_path / "input")).withColumnRenamed("value", "body")
    gate = tmp_path / "gate"
    options = {"nameserver": dev.nameserver, "checkpointLocation": str(tmp_path / "checkpoint")}
    writer = rows.writeStream.format("halfway").options(**options, topic="stopped", gate=str(gate))
    query = writer.start()
    eventually(lambda: is_reached(gate), "half of it is committed")
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(query.stop)
        open_gate(gate)
        stopped.result(60)
    assert bodies(dev.nameserver, "stopped") == list("abcd")
    run(rows, dev, tmp_path, topic="stopped")
    assert bodies(dev.nameserver, "stopped") in (list("abcd"), list("aabbccdd"))


def test_impossible_stream_is_refused_by_name(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "0").write_text("a\n")
    lines = spark.readStream.text(str(tmp_path / "input"))
    with pytest.raises(Exception, match="column 'value': the sink does not know it"):
        run(lines, dev, tmp_path, topic="stream-refused")
    counted = lines.withColumnRenamed("value", "body").groupBy("body").count().select("body")
    with pytest.raises(Exception, match="output mode 'complete': messages cannot be overwritten"):
        run(counted, dev, tmp_path / "complete", mode="complete", topic="stream-refused")
    with pytest.raises(Exception, match="does not support Update mode"):
        run(counted, dev, tmp_path / "update", mode="update", topic="stream-refused")
    make_topic(dev.nameserver, "stream-refused")
    assert bodies(dev.nameserver, "stream-refused") == []
