"""What the tests of the sink look at: what a topic holds, and what waits at brokers."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.blocking_client import shared_loop_thread
from ternmq_consumer.pull.blocking_pull_consumer import BlockingPullConsumer
from ternmq_model.stored_message import StoredMessage
from ternmq_pipeline.jobs.driver.spark_session import set_active_session

_WITHIN_S: Final = 200.0
_PAUSE_S: Final = 0.05


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    """Return a frame with the body `0`, `1`, …, in as many partitions."""
    return spark.range(0, count, 1, partitions).select(F.col("id").cast("string").alias("body"))


def read_topic(nameserver: str, topic: str) -> list[StoredMessage]:
    """Return every message that a consumer of `topic` can read now, queue after queue."""
    found: list[StoredMessage] = []
    with BlockingPullConsumer(nameserver=nameserver) as consumer:
        queues = consumer.queues(topic)
        ends = consumer.end_offsets(queues)
        consumer.assign(queues)
        consumer.seek_to_begin()
        while any((consumer.position(queue) or 0) < end for queue, end in ends.items()):
            found += consumer.poll(timeout_s=5)
    return sorted(found, key=lambda message: (message.queue.queue_id, message.queue_offset))


def bodies(nameserver: str, topic: str) -> list[str]:
    """Return the bodies of all messages that can be read, sorted."""
    return sorted(message.body.decode() for message in read_topic(nameserver, topic))


class Halves(NamedTuple):
    """How the half messages of all brokers stand."""

    waiting: int
    rolled_back: int
    """Since the brokers started."""


def halves(nameserver: str) -> Halves:
    """Return how half messages stand."""

    async def ask() -> Halves:
        async with AdminClient(nameserver=nameserver) as admin:
            views = await admin.member_views(with_stores=True)
            told = [view.broker.transactions for view in views if view.broker]
            return Halves(sum(one.open for one in told), sum(one.rolled_back for one in told))

    return shared_loop_thread().run(ask())


def waiting_halves(nameserver: str) -> int:
    """Return how many half messages wait for their end."""
    return halves(nameserver).waiting


def write_beside(
    pool: Executor, frame: DataFrame, format_name: str, **options: str
) -> Future[None]:
    """Append a frame in a thread of `pool`."""

    def write() -> None:
        set_active_session(frame.sparkSession)
        frame.write.format(format_name).options(**options).mode("append").save()

    return pool.submit(write)


def eventually(holds: Callable[[], bool], what: str, *, beside: Future[None] | None = None) -> None:
    """Wait until `holds()`.

    Args:
        holds: Asked again and again.
        what: Said when it does not within that time.
        beside: A write that goes on meanwhile: if it fails, so does this.
    """
    pause = threading.Event()
    for _ in range(round(_WITHIN_S / _PAUSE_S)):
        if holds():
            return
        if beside is not None and beside.done():
            beside.result()
        pause.wait(_PAUSE_S)
    raise AssertionError(f"waited in vain: {what}")
