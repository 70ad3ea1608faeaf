"""Streams into Parquet for the tests: what was sent, what arrived, and runs of a query."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.blocking_client import shared_loop_thread
from ternmq_model.message import Message
from ternmq_model.queue import MessageQueue
from ternmq_model.route import TopicConfig
from ternmq_producer.blocking_producer import BlockingProducer

Place: TypeAlias = tuple[str, str, int, int]
"""Topic, broker, queue, offset: what a row is known by."""

PLACE = ("topic", "brokerName", "queueId", "queueOffset")

RUN_WITHIN_S = 300


class Sent:
    """Sends to topics of one cluster, and remembers where every message was stored."""

    def __init__(self, nameserver: str) -> None:
        self.nameserver = nameserver
        self.places: Counter[Place] = Counter()

    def send(
        self, topic: str, count: int, *, queue: MessageQueue | None = None, body: bytes = b"x" * 100
    ) -> None:
        """Send `count` messages to `topic`, in turn over its queues unless `queue` is given."""
        with BlockingProducer("loaders", nameserver=self.nameserver) as producer:
            if queue is None:
                results = list(producer.send_many([Message(topic, body)] * count))
            else:
                results = [producer.send(Message(topic, body), queue=queue) for _ in range(count)]
        for result in results:
            at = result.queue
            self.places[at.topic, at.broker_name, at.queue_id, result.queue_offset] += 1


def source(spark: SparkSession, nameserver: str, **options: Any) -> DataFrame:
    """Return a stream; without other options of its beginning it begins at the earliest."""
    given = {"startingOffsets": "earliest", **options}
    if any(name.startswith("starting") for name in options):
        given = options
    reader = spark.readStream.format("ternmq").option("nameserver", nameserver)
    return reader.options(**given).load()


def start(frame: DataFrame, folder: Path, *, name: str = "", **trigger: Any) -> StreamingQuery:
    """Start a query into `folder/rows`, its checkpoint beside it.

    Args:
        frame: What to write.
        folder: Where; two runs of one folder are two runs of one query.
        name: The query's name.
        trigger: As `DataStreamWriter.trigger` takes it; available-now when none is given.
    """
    writer = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**(trigger or {"availableNow": True}))
    )
    return (writer.queryName(name) if name else writer).start()


def run(frame: DataFrame, folder: Path, **trigger: Any) -> list[Any]:
    """Run a query to its end and return the progress of its batches."""
    query = start(frame, folder, **trigger)
    try:
        assert query.awaitTermination(RUN_WITHIN_S), f"the query does not end: {query.status}"
    finally:
        query.stop()
    return batches(query)


def batches(query: StreamingQuery) -> list[Any]:
    """Return the progress of the batches of a query that had rows, oldest first."""
    return [progress for progress in query.recentProgress if progress.numInputRows]


def rows_of(query: StreamingQuery) -> list[int]:
    """Return how many rows each batch had that had any."""
    return [progress.numInputRows for progress in batches(query)]


def arrived(spark: SparkSession, folder: Path) -> Counter[Place]:
    """Return how often each place is among the rows of `folder/rows`."""
    if not (folder / "rows" / "_spark_metadata").exists():
        return Counter()
    rows = spark.read.parquet(str(folder / "rows")).select(*PLACE).collect()
    return Counter((row[0], row[1], row[2], row[3]) for row in rows)


def alter_topic(nameserver: str, topic: str, *, queues: int, retention_ms: int = 0) -> None:
    """Give `topic` another number of queues or another retention, on every broker that has it."""

    async def alter() -> None:
        async with AdminClient(nameserver=nameserver) as admin:
            await admin.create_topic(
                TopicConfig(
                    topic, read_queues=queues, write_queues=queues, retention_ms=retention_ms
                ),
                brokers=(),
            )

    shared_loop_thread().run(alter())


def clean(nameserver: str, brokers: Sequence[str]) -> None:
    """Let brokers delete what has expired now."""

    async def each() -> None:
        async with AdminClient(nameserver=nameserver) as admin:
            for broker in brokers:
                await admin.clean_store(broker)

    shared_loop_thread().run(each())
