"""What Spark's user sees of an error: the sentence first, and no traceback of a worker."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.processes import ServiceProcess
from tests.support.spark_data import fill, make_topic
from tests.support.spark_sink import numbers


def lines_of(work: Callable[[], object]) -> list[str]:
    """Return the lines of the error that `work` fails with, as a user prints it."""
    with pytest.raises(Exception, match=r"\w") as raised:
        work()
    return str(raised.value).splitlines()


def test_plan_task_and_stream_tell_the_sentence_first(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    fill(dev.nameserver, "errors-read", 3)
    make_topic(dev.nameserver, "errors-sent")
    streams = 0

    def frame(**options: str) -> DataFrame:
        reader = spark.read.format("ternmq").option("nameserver", dev.nameserver)
        return reader.options(**options).load()

    def write(column: str, **options: str) -> None:
        rows = numbers(spark, 2, partitions=1).selectExpr(column)
        writer = rows.write.format("ternmq").option("nameserver", dev.nameserver)
        writer.option("topic", "errors-sent").options(**options).mode("append").save()

    def stream(topic: str, column: str, **options: str) -> None:
        nonlocal streams
        streams += 1
        reader = spark.readStream.format("ternmq").option("nameserver", dev.nameserver)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        rows = reader.options(**options).load()
        writer = rows.selectExpr(column).writeStream.format("ternmq").trigger(availableNow=True)
        writer = writer.option("nameserver", dev.nameserver).option("topic", "errors-sent")
        writer = writer.option("checkpointLocation", str(tmp_path / str(streams)))
        writer.start().awaitTermination()

    for work, told in (
        (lambda: frame(subscripe="x"), "option 'subscripe': there is no such option"),
        (lambda: frame(subscribe="errors-none").count(), "no broker has topic errors-none"),
        (lambda: write("1 AS body"), "column 'body' has the type int"),
        (lambda: write("if(body = '1', null, 'x') AS body"), "column 'body': is null"),
        (
            lambda: stream("errors-read", "body", endingOffsets="latest"),
            "endingOffsets='latest': is for batches",
        ),
        (lambda: stream("errors-none", "body"), "no broker has topic errors-none"),
        (lambda: stream("errors-read", "cast(null AS binary) AS body"), "column 'body': is null"),
    ):
        lines = lines_of(work)
        assert told in " ".join(lines[:2])
        assert "ternmq_model.errors." in " ".join(lines[:2])
        assert not any("Traceback" in line for line in lines)
