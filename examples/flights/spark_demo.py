"""Summarize every flight with Spark, from topic to Parquet and topic: `make demo-spark`.

The flights go to a broker in the order of their hours while a stream reads them. It counts flights
and departure delays by carrier and hour, and writes each hour once it is over. A second stream
takes the summaries to a topic of their own. Both results are compared with what the file itself
says. The last line is the check; the exit code is 1 when it does not hold.
"""

import asyncio
import io
import json
import os
import shutil
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

from flights import FLIGHTS, TOPIC, data_file, message_of
from processes import dev, flight_board, ternmq
from summaries import (
    COLUMNS,
    SENTINEL,
    WATERMARK,
    Place,
    Summary,
    computed,
    differences,
    hour_of,
    in_order,
    sentinel_row,
)
from ternmq import Message, MessageQueue, run

QUEUES = 4
BATCH = 4096
OFFSETS_PER_TRIGGER = 50_000
SUMMARIES = "flight-summaries"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of the flights."""

    sent: int
    read: int
    late: int
    """Rows that came after their hour was closed."""

    parquet: dict[Place, Summary]
    topic: dict[Place, Summary]


def lines() -> Iterator[str]:
    """Yield the lines of the data set, without its header."""
    with zipfile.ZipFile(data_file()) as archive, archive.open("flights.csv") as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        yield from (line.rstrip("\r\n") for line in islice(text, 1, None))


def session(folder: Path) -> SparkSession:
    """Start Spark on two cores, reachable from this machine alone."""
    # Arrow's way of reading a result says so of any pandas from 3.0 on.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    os.environ.update(
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
    )
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "scratch"),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.Builder().master("local[2]").appName("flights")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def summarized(spark: SparkSession, nameserver: str) -> DataFrame:
    """Return flights and mean departure delay by carrier and hour, as the topic tells them."""
    flights = (
        spark.readStream.format("ternmq")
        .schema("body binary")
        .option("nameserver", nameserver)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER)
        .load()
    )
    fields = sql.split(sql.col("body").cast("string"), ",")

    def field(name: str) -> str:
        return f"fields[{COLUMNS.index(name)}]"

    return (
        flights.select(fields.alias("fields"))
        .select(
            sql.expr(field("carrier")).alias("carrier"),
            sql.expr(f"try_cast({field('dep_delay')} AS double)").alias("delay"),
            sql.expr(f"to_timestamp({field('time_hour')})").alias("time_hour"),
        )
        .withWatermark("time_hour", f"{WATERMARK.days} days")
        .groupBy(sql.window("time_hour", "1 hour"), "carrier")
        .agg(sql.count("*").alias("flights"), sql.avg("delay").alias("mean_delay"))
        .select("carrier", sql.col("window.start").alias("hour"), "flights", "mean_delay")
    )


def as_messages(summaries: DataFrame) -> DataFrame:
    """Return summaries as rows of the sink."""
    hour = sql.date_format("hour", "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("hour")
    told = sql.to_json(sql.struct("carrier", hour, "flights", "mean_delay"))
    return summaries.select(told.cast("binary").alias("body"), sql.col("carrier").alias("tags"))


async def send(nameserver: str) -> tuple[int, datetime]:
    """Send every flight in the order of hours; return how many, and the last hour."""
    sent, last = 0, datetime.min.replace(tzinfo=UTC)
    rows = in_order(lines())
    async with flight_board(nameserver) as producer:
        while batch := list(islice(rows, BATCH)):
            sent += len(await producer.send_many([message_of(row) for row in batch]))
            last = hour_of(batch[-1])
    return sent, last


async def close_hours(nameserver: str, broker_name: str, last: datetime) -> None:
    """Send a row to each queue that is later than all flights by more than the watermark."""
    body = ",".join(sentinel_row(last).values()).encode()
    async with flight_board(nameserver) as producer:
        for number in range(QUEUES):
            queue = MessageQueue(TOPIC, broker_name, number)
            await producer.send(Message(TOPIC, body, tags=SENTINEL), queue=queue)


async def watched(query: StreamingQuery, console: Console) -> None:
    """Print a line for each batch of a stream, until cancelled."""
    told = -1
    while True:
        for progress in query.recentProgress:
            if progress.batchId > told and progress.numInputRows:
                told = progress.batchId
                watermark = (progress.eventTime or {}).get("watermark", "")[:16]
                console.print(
                    f"batch {told}: {progress.numInputRows:,} rows in "
                    f"{progress.batchDuration / 1000:.1f} s, watermark {watermark}"
                )
        await asyncio.sleep(0.5)


async def broker_of(nameserver: str) -> str:
    """Return the name of the broker that has the flights."""
    answer = await ternmq("topic", "describe", TOPIC, "--nameserver", nameserver, "-o", "json")
    queues: list[dict[str, str]] = json.loads(answer)["queues"]
    return queues[0]["broker"]


async def streamed(spark: SparkSession, nameserver: str, folder: Path, console: Console) -> Outcome:
    """Run both streams over all flights and read what they have written."""
    parquet = str(folder / "summaries")
    query = (
        summarized(spark, nameserver)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint-parquet"))
        .start(parquet)
    )
    watching = asyncio.create_task(watched(query, console))
    try:
        began_s = time.perf_counter()
        sent, last = await send(nameserver)
        console.print(f"sent {sent:,} flights in {time.perf_counter() - began_s:.1f} s")
        await asyncio.to_thread(query.processAllAvailable)
        await close_hours(nameserver, await broker_of(nameserver), last)
        await asyncio.to_thread(query.processAllAvailable)
    finally:
        watching.cancel()
    read = sum(progress.numInputRows for progress in query.recentProgress) - QUEUES
    late = sum(
        operator.numRowsDroppedByWatermark
        for progress in query.recentProgress
        for operator in progress.stateOperators
    )
    await asyncio.to_thread(query.stop)
    console.print("hours are closed; their summaries go to a topic")
    await asyncio.to_thread(publish, spark, nameserver, folder)
    return Outcome(sent, read, late, from_parquet(spark, parquet), from_topic(spark, nameserver))


def publish(spark: SparkSession, nameserver: str, folder: Path) -> None:
    """Take the summaries that lie in Parquet to their topic: a stream over what is there."""
    schema = "carrier string, hour timestamp, flights bigint, mean_delay double"
    summaries = spark.readStream.schema(schema).parquet(str(folder / "summaries"))
    query = (
        as_messages(summaries)
        .writeStream.format("ternmq")
        .option("nameserver", nameserver)
        .option("topic", SUMMARIES)
        .option("checkpointLocation", str(folder / "checkpoint-topic"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def from_parquet(spark: SparkSession, path: str) -> dict[Place, Summary]:
    """Return the summaries that the stream wrote."""
    return summaries_of(spark.read.parquet(path).toArrow().to_pylist())


def from_topic(spark: SparkSession, nameserver: str) -> dict[Place, Summary]:
    """Return the summaries that lie in their topic, read as a batch."""
    bodies = (
        spark.read.format("ternmq")
        .schema("body binary")
        .option("nameserver", nameserver)
        .option("subscribe", SUMMARIES)
        .load()
    )
    rows = [json.loads(row.body) for row in bodies.collect()]
    for row in rows:
        row["hour"] = datetime.fromisoformat(row["hour"])
    return summaries_of(rows)


def summaries_of(rows: list[dict[str, object]]) -> dict[Place, Summary]:
    """Return rows by carrier and hour.

    Raises:
        SystemExit: One is there twice.
    """
    found: dict[Place, Summary] = {}
    for row in rows:
        carrier, hour, flights = row["carrier"], row["hour"], row["flights"]
        mean = row.get("mean_delay")
        assert isinstance(carrier, str)
        assert isinstance(hour, datetime)
        assert isinstance(flights, int)
        assert mean is None or isinstance(mean, float)
        place = Place(carrier, hour.replace(tzinfo=UTC))
        if place in found:
            raise SystemExit(f"{carrier} at {hour} was summarized twice")
        found[place] = Summary(flights, mean)
    return found


def verdict(outcome: Outcome) -> tuple[str, bool]:
    """Return the line that the demo ends with, and whether the check holds."""
    expected = computed(in_order(lines()))
    in_parquet = len(differences(expected, outcome.parquet))
    in_topic = len(differences(expected, outcome.topic))
    numbers = (outcome.sent, outcome.read, outcome.late, in_parquet, in_topic)
    holds = numbers == (FLIGHTS, FLIGHTS, 0, 0, 0)
    line = (
        f"sent={outcome.sent} read={outcome.read} late={outcome.late} summaries={len(expected)} "
        f"differences_parquet={in_parquet} differences_topic={in_topic} ok={str(holds).lower()}"
    )
    return line, holds


def print_worst(console: Console, outcome: Outcome) -> None:
    """Print the hours in which most flights of a carrier were late together."""
    worst = sorted(
        (summary.mean_delay, place, summary.flights)
        for place, summary in outcome.parquet.items()
        if summary.mean_delay is not None and summary.flights >= 10
    )[-3:]
    for mean, place, flights in reversed(worst):
        console.print(
            f"{place.carrier} on {place.hour:%Y-%m-%d %H:%M} UTC: {flights} flights, "
            f"{mean:.0f} min late on average"
        )


async def main() -> bool:
    """Run the demo; return whether the check holds."""
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise SystemExit("Spark needs Java 17 or later: install it, or set JAVA_HOME")
    console = Console()
    began_s = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ternmq-demo-") as temporary:
        folder = Path(temporary)
        async with dev(folder / "data") as nameserver:
            for topic in (TOPIC, SUMMARIES):
                await ternmq(
                    "topic",
                    "create",
                    topic,
                    "--queues",
                    str(QUEUES),
                    "--nameserver",
                    nameserver,
                )
            spark = await asyncio.to_thread(session, folder)
            try:
                outcome = await streamed(spark, nameserver, folder, console)
            finally:
                spark.stop()
    print_worst(console, outcome)
    line, holds = verdict(outcome)
    console.print(f"took {time.perf_counter() - began_s:.0f} s")
    print(line)
    return holds


if __name__ == "__main__":
    sys.exit(0 if run(main()) else 1)
