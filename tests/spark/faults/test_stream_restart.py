"""A query that is stopped, fails or is killed and goes on: no row is lost or doubled."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.support.examples import SEED, examples
from tests.support.processes import ServiceProcess
from tests.support.spark_data import make_topic
from tests.support.stream_driver import stream_driver
from tests.support.stream_runs import PLACE, Sent, arrived, run, source, start

KILLS = examples(2, soak=20)
STOPS = examples(4, soak=50)


def test_killed_driver_neither_loses_nor_doubles_rows(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    print(f"TESTS_SEED={SEED}")
    dice = random.Random(SEED)
    make_topic(dev.nameserver, "KilledDriver", 3)
    sent = Sent(dev.nameserver)
    sent.send("KilledDriver", 300)
    options: dict[str, str | int] = {"subscribe": "KilledDriver", "maxOffsetsPerTrigger": 40}
    for _ in range(KILLS):
        trigger: dict[str, str | bool] = {"processingTime": "0 seconds"}
        with stream_driver(tmp_path, dev.nameserver, trigger, **options) as driver:
            driver.finish_batches(dice.randint(1, 4))
            sent.send("KilledDriver", 150)
            driver.ends_within(dice.uniform(0, 1.5))
            driver.kill()
    run(source(spark, dev.nameserver, subscribe="KilledDriver"), tmp_path)
    assert arrived(spark, tmp_path) == sent.places


def test_stopped_query_neither_loses_nor_doubles_rows(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    print(f"TESTS_SEED={SEED}")
    dice = random.Random(SEED)
    make_topic(dev.nameserver, "StoppedQuery", 3)
    sent = Sent(dev.nameserver)
    options = {"subscribe": "StoppedQuery", "maxOffsetsPerTrigger": 30}
    for _ in range(STOPS):
        sent.send("StoppedQuery", 100)
        frame = source(spark, dev.nameserver, **options)
        query = start(frame, tmp_path, processingTime="0 seconds")
        for _ in range(dice.randrange(12)):
            query.awaitTermination(0.1)  # type: ignore[arg-type]  # seconds, as the JVM takes them
        query.stop()
    run(source(spark, dev.nameserver, **options), tmp_path)
    assert arrived(spark, tmp_path) == sent.places


def test_failed_first_batch_is_repeated_from_where_it_began(
    spark: SparkSession, dev: ServiceProcess, tmp_path: Path
) -> None:
    make_topic(dev.nameserver, "FailedFirst", 1)
    Sent(dev.nameserver).send("FailedFirst", 5)
    found: list[Any] = []

    def fail(_frame: DataFrame, _batch: int) -> None:
        raise RuntimeError("the sink fails")

    def keep(frame: DataFrame, _batch: int) -> None:
        found.extend(frame.select(*PLACE).collect())

    def run_into(sink: Any) -> None:
        frame = source(spark, dev.nameserver, subscribe="FailedFirst", startingOffsets="latest")
        writer = frame.writeStream.foreachBatch(sink).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()

    with pytest.raises(StreamingQueryException, match="the sink fails"):
        run_into(fail)
    sent = Sent(dev.nameserver)
    sent.send("FailedFirst", 3)
    run_into(keep)
    assert sorted(tuple(row) for row in found) == sorted(sent.places)
