"""DataFrames become messages: columns, options, and what happens to a write that fails."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ternmq_model.stored_message import StoredMessage
from tests.support.processes import ServiceProcess
from tests.support.sink_doubles import fails_at, open_gate, stops_at
from tests.support.spark_data import make_topic
from tests.support.spark_sink import (
    bodies,
    eventually,
    halves,
    numbers,
    read_topic,
    waiting_halves,
    write_beside,
)

OWN = {"SPARK_QUERY", "SPARK_BATCH", "SPARK_PARTITION", "SPARK_ATTEMPT", "SPARK_ROW"}

SOON = "5"
"""A `stagingTimeout` after which brokers roll back what a task that was killed has left."""


def write(frame: DataFrame, dev: ServiceProcess, **options: str) -> None:
    """Append a frame."""
    told = {"nameserver": dev.nameserver} | options
    frame.write.format("ternmq").options(**told).mode("append").save()


def told(message: StoredMessage, *, own: bool = False) -> Mapping[str, str]:
    """Return what a message's properties say, of the sink or of the user."""
    return {name: value for name, value in message.properties.items() if (name in OWN) == own}


def test_every_written_column_arrives(spark: SparkSession, dev: ServiceProcess) -> None:
    for topic in ("sink-columns", "sink-other"):
        make_topic(dev.nameserver, topic, queues=2)
    rows: list[tuple[object, ...]] = [
        (b"\x00first", "sink-columns", "late", ["a", "b"], {"carrier": "UA"}, "EWR", 0),
        (b"plain", "sink-columns", None, None, None, None, None),
        (b"empty", "sink-other", "", [], {}, "", 0),
        (b"delayed", "sink-columns", None, None, {"carrier": "AA"}, None, 1500),
    ]
    schema = (
        "body binary, topic string, tags string, keys array<string>, "
        "properties map<string,string>, shardingKey string, delay long"
    )
    write(spark.createDataFrame(rows, schema).coalesce(1), dev)

    found = {message.body: message for message in read_topic(dev.nameserver, "sink-columns")}
    assert set(found) == {b"\x00first", b"plain"}
    first = found[b"\x00first"]
    assert (first.tags, list(first.keys), first.sharding_key) == ("late", ["a", "b"], "EWR")
    assert told(first)["carrier"] == "UA"
    assert told(first, own=True).keys() == OWN
    assert told(first)["TERNMQ_STAGED_FOR"] == f"{first.properties['SPARK_QUERY']}/0"
    plain = found[b"plain"]
    assert (plain.tags, list(plain.keys), plain.sharding_key) == ("", [], "")
    assert [plain.properties[f"SPARK_{name}"] for name in ("BATCH", "PARTITION", "ROW")] == [
        *("0", "0", "1")
    ]
    (other,) = read_topic(dev.nameserver, "sink-other")
    assert (other.body, other.properties["SPARK_ROW"]) == (b"empty", "2")
    eventually(lambda: len(read_topic(dev.nameserver, "sink-columns")) == 3, "the delayed one")
    delayed = next(m for m in read_topic(dev.nameserver, "sink-columns") if m.body == b"delayed")
    assert delayed.stored_at_ms - first.stored_at_ms >= 1500
    assert waiting_halves(dev.nameserver) == 0


def test_options_and_alternative_column_types_are_written(
    spark: SparkSession, dev: ServiceProcess
) -> None:
    make_topic(dev.nameserver, "sink-forms")
    frame = spark.createDataFrame(
        [("Zürich", "nowhere", "a b"), ("Genève", None, None)],
        "BODY string, topic string, keys string",
    ).select("*", F.lit(None).alias("tags"), F.lit(None).cast("timestamp").alias("delay"))
    write(frame, dev, topic="sink-forms", producerGroup="sinkers", stagingTimeout="10m")
    found = {message.body.decode(): message for message in read_topic(dev.nameserver, "sink-forms")}
    assert set(found) == {"Zürich", "Genève"}
    assert list(found["Zürich"].keys) == ["a", "b"]
    assert found["Zürich"].properties["PGROUP"] == "sinkers"
    assert found["Zürich"].properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "600"


def test_writes_are_told_apart_and_rows_are_numbered(
    spark: SparkSession, dev: ServiceProcess
) -> None:
    make_topic(dev.nameserver, "sink-twice")
    for _ in range(2):
        write(numbers(spark, 6, partitions=3), dev, topic="sink-twice")
    found = read_topic(dev.nameserver, "sink-twice")
    places = [
        tuple(message.properties[f"SPARK_{name}"] for name in ("QUERY", "PARTITION", "ROW"))
        for message in found
    ]
    assert len(set(places)) == len(places) == 12
    assert len({query for query, _, _ in places}) == 2
    assert {(partition, row) for _, partition, row in places} == {
        (partition, row) for partition in "012" for row in "01"
    }
    assert {message.properties["SPARK_BATCH"] for message in found} == {"0"}


def test_frames_and_partitions_without_rows_write_nothing(
    spark: SparkSession, dev: ServiceProcess
) -> None:
    make_topic(dev.nameserver, "sink-empty")
    write(numbers(spark, 0), dev, topic="sink-empty")
    write(numbers(spark, 2).where("body = 'none'"), dev, topic="sink-empty")
    assert bodies(dev.nameserver, "sink-empty") == []
    write(numbers(spark, 1, partitions=3), dev, topic="sink-empty")
    assert bodies(dev.nameserver, "sink-empty") == ["0"]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"value": "'x'"}, {}, "column 'value': the sink does not know it"),
        ({"tags": "'x'"}, {}, "no column 'body'"),
        ({"body": "1"}, {}, "column 'body' has the type int"),
        ({"body": "'x'", "delay": "1.5D"}, {}, "column 'delay' has the type double"),
        ({"body": "'x'", "keys": "array(1)"}, {}, "column 'keys' has the type array<int>"),
        ({"body": "'x'"}, {"topic": ""}, "topic"),
        ({"body": "'x'"}, {"topic": "white space"}, "topic='white space'"),
        ({"body": "'x'"}, {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, "topic='RMQ_SYS"),
        ({"body": "'x'"}, {"stagingTimeout": "0"}, "stagingTimeout"),
        ({"body": "'x'"}, {"subscribe": "x"}, "subscribe"),
        ({"body": "'x'"}, {"nonsense": "x"}, "nonsense"),
    ],
)
def test_impossible_write_is_refused_by_name_before_it_begins(
    spark: SparkSession,
    dev: ServiceProcess,
    columns: dict[str, str],
    options: dict[str, str],
    message: str,
) -> None:
    frame = spark.range(1).select(*[F.expr(text).alias(name) for name, text in columns.items()])
    with pytest.raises(Exception, match=message):
        write(frame, dev, **({"topic": "sink-refused"} | options))


def test_row_needs_a_topic(spark: SparkSession, dev: ServiceProcess) -> None:
    with pytest.raises(Exception, match="neither an option 'topic' nor a column 'topic'"):
        write(numbers(spark, 1), dev)


def test_messages_cannot_be_overwritten(spark: SparkSession, dev: ServiceProcess) -> None:
    writer = numbers(spark, 1).write.format("ternmq").option("nameserver", dev.nameserver)
    writer = writer.option("topic", "sink-refused")
    with pytest.raises(Exception, match="mode 'overwrite': messages cannot be overwritten"):
        writer.mode("overwrite").save()
    for mode in ("ignore", "errorifexists"):
        with pytest.raises(Exception, match=r"(?i)mode"):
            writer.mode(mode).save()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"body": "if(id = 5, null, 'x')"}, "row 2 of partition 1 of batch 0: column 'body': is"),
        ({"topic": "if(id = 5, null, 'sink-bad')"}, "row 2 of partition 1.*column 'topic'"),
        ({"tags": "if(id = 5, 'a||b', 'a')"}, r"row 2 of partition 1.*tag 'a\|\|b'"),
        ({"delay": "if(id = 5, -1, 0)"}, "row 2 of partition 1.*column 'delay': is -1"),
        ({"delay": "timestampadd(DAY, if(id = 5, 4, 0), now())"}, "row 2 of partition 1.*3 days"),
        ({"properties": "map('TAGS', 'x')"}, "row 0 of partition .*property 'TAGS'"),
    ],
)
def test_row_that_makes_no_message_fails_the_write_and_is_named(
    spark: SparkSession, dev: ServiceProcess, changed: dict[str, str], message: str
) -> None:
    make_topic(dev.nameserver, "sink-bad")
    told = {"body": "'x'", "topic": "'sink-bad'"} | changed
    columns = [F.expr(text).alias(name) for name, text in told.items()]
    with pytest.raises(Exception, match=message):
        write(spark.range(0, 6, 1, 2).select(*columns), dev, stagingTimeout=SOON)
    assert bodies(dev.nameserver, "sink-bad") == []


def test_failed_task_and_its_neighbours_leave_no_visible_rows(
    spark: SparkSession, dev: ServiceProcess
) -> None:
    make_topic(dev.nameserver, "sink-failed")
    frame = numbers(spark, 6).select(fails_at(F.col("body"), "5").alias("body"))
    with pytest.raises(Exception, match="this row cannot be computed"):
        write(frame, dev, topic="sink-failed", stagingTimeout=SOON)
    assert bodies(dev.nameserver, "sink-failed") == []
    eventually(lambda: waiting_halves(dev.nameserver) == 0, "what was staged is rolled back")
    write(numbers(spark, 6), dev, topic="sink-failed")
    assert bodies(dev.nameserver, "sink-failed") == list("012345")


def test_batch_older_than_its_staging_timeout_fails_invisibly(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(dev.nameserver, "sink-late")
    frame = numbers(spark, 6).select(stops_at(F.col("body"), "5", tmp_path / "gate").alias("body"))
    eventually(lambda: waiting_halves(dev.nameserver) == 0, "nothing waits of other writes")
    before = halves(dev.nameserver).rolled_back
    with ThreadPoolExecutor(1) as pool:
        options = {"nameserver": dev.nameserver, "topic": "sink-late", "stagingTimeout": "1"}
        done = write_beside(pool, frame, "ternmq", **options)
        eventually(
            lambda: halves(dev.nameserver).rolled_back >= before + 3,
            "the time of the first task is over",
            beside=done,
        )
        open_gate(tmp_path / "gate")
        why = r"nothing was committed: [3-6] of 6.*stagingTimeout=1 s"
        with pytest.raises(Exception, match=why) as raised:
            done.result(60)
    lines = str(raised.value).splitlines()
    assert "BatchNotCommitted: batch 0 of " in " ".join(lines[:2])
    assert not any("Traceback" in line for line in lines)
    assert bodies(dev.nameserver, "sink-late") == []
    eventually(lambda: waiting_halves(dev.nameserver) == 0, "the rest is rolled back")
