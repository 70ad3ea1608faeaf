"""Replay of messages from an archive, other Parquet files or a topic, into a topic.

    replay("orders-again", folder="/lake/orders", nameserver="127.0.0.1:9876",
           where="tags = 'eu'", checkpoint="/lake/replayed")

A replayed message has the tags, keys, sharding key and application properties of the original.
Properties that brokers and clients wrote at the first sending are omitted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ternmq_client.retry_timeout import RETRY_TIMEOUT_S
from ternmq_model.clock import Clock
from ternmq_model.errors import UsageError
from ternmq_pipeline.jobs.cluster_queries import JobCluster
from ternmq_pipeline.jobs.driver.spark_errors import reason_of
from ternmq_pipeline.jobs.driver.spark_session import LOCAL, spark_session
from ternmq_pipeline.jobs.driver.streaming_query import Observe
from ternmq_pipeline.jobs.folders.hadoop_folder import HadoopFolder, location_of
from ternmq_pipeline.jobs.folders.job_checkpoint import committed_offsets
from ternmq_pipeline.jobs.job_options import batch_option, checkpoint_location, start_options
from ternmq_pipeline.jobs.message_columns import all_of, between, message_columns, text
from ternmq_pipeline.jobs.resend import (
    BATCH_ROWS,
    ResendResult,
    count_rows,
    dry_run_result,
    filter_rows,
    resend_result,
    send_batch,
    send_stream,
    types_of,
)
from ternmq_pipeline.options.sink_options import written_topic
from ternmq_runtime.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ANY_AGE: Final = "36500d"
"""Age limit of files. Spark's own skips files a week older than the newest one, and copies may have
an old time."""

_QUEUE_ORDER: Final = ("topic", "brokerName", "queueId", "queueOffset")


@dataclass(frozen=True, slots=True)
class ReplaySource:
    """Source of a replay: Parquet files or a topic."""

    folder: str
    """Folder of Parquet files; empty = a topic is read."""

    topic: str
    cluster: JobCluster
    """Cluster of the topic."""

    start_ms: int | None
    end_ms: int | None
    where: str

    @property
    def mark(self) -> dict[str, object]:
        """Options that identify the job in its checkpoint."""
        which: dict[str, object] = (
            {"parquet": self.folder} if self.folder else {"topic": self.topic}
        )
        return which | {"start": self.start_ms, "end": self.end_ms, "where": self.where or None}


def replay(
    to_topic: str,
    *,
    nameserver: str,
    folder: str | Path = "",
    topic: str = "",
    from_nameserver: str = "",
    start_ms: int | None = None,
    end_ms: int | None = None,
    where: str = "",
    checkpoint: str | Path = "",
    dry_run: bool = False,
    batch_rows: int = BATCH_ROWS,
    retry_timeout_s: float = RETRY_TIMEOUT_S,
    observe: Observe | None = None,
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    spark: "SparkSession | None" = None,
    clock: Clock | None = None,
) -> ResendResult:
    """Send all present messages of a source to a topic.

    With a checkpoint each message is sent once over all runs, and each micro-batch becomes visible
    atomically. Without a checkpoint each call sends all messages in one batch. Messages of a queue
    keep their order when the source is a topic, and when they are sent in one batch.

    Args:
        to_topic: Existing topic that gets the messages.
        nameserver: NameServers of that topic's cluster, `HOST:PORT`.
        folder: Parquet files with a column `body`, or an archive. Excludes `topic`.
        topic: Topic to read. Excludes `folder`.
        from_nameserver: NameServers of the source's cluster, if it is another one.
        start_ms: Least store time of the messages, Unix ms.
        end_ms: Store time behind the last message, Unix ms. A replay of a topic into itself needs a
            time in the past.
        where: Condition in Spark's SQL over the columns of the source.
        checkpoint: Folder of the job's progress. A run with that folder continues.
        dry_run: True = messages are counted and not sent. Messages of a topic that the checkpoint
            has as sent are not counted.
        batch_rows: Most messages of a micro-batch. A micro-batch of Parquet has as many whole files
            as fit, at least one.
        retry_timeout_s: Time without an answer after which the job fails, s: before Spark
            starts and in each of its plans, tasks and commits. 1 s to 1 day.
        observe: Callback for each completed micro-batch.
        master: Spark's master.
        settings: More settings of Spark.
        spark: Existing session to use; it is not stopped. None = a new one.
        clock: Clock for the duration; None = the system's.

    Raises:
        UsageError: An argument is illegal. No message was sent.
        TopicNotFound: A topic is on no broker.
        MissingPackage: The extra `spark` or Java is not installed.
        TransportError: No NameServer answers for `retry_timeout_s`, or none knows a broker.
        JobFailed: The run ended with an error. The messages of committed batches are sent.
    """
    clock = clock or SystemClock()
    began_ms = clock.monotonic_ms()
    cluster = JobCluster(nameserver, retry_timeout_s)
    read_from = JobCluster(from_nameserver or nameserver, retry_timeout_s)
    source = _checked_source(folder, topic, read_from, start_ms, end_ms, where)
    kept = checkpoint_location(checkpoint)
    if dry_run and kept and source.folder:
        raise UsageError("a dry run over Parquet counts all rows: leave checkpoint out")
    limit = batch_option(batch_rows)
    _check_topics(source, to_topic, cluster, now_ms=clock.wall_ms())
    with spark_session("replay", master=master, settings=settings, spark=spark) as session:
        if dry_run:
            after = committed_offsets(HadoopFolder(session, kept)) if kept else ""
            counts = count_rows(_messages(_batch(session, source, after), source, to_topic))
            return dry_run_result(counts, (clock.monotonic_ms() - began_ms) / 1000)
        if kept:
            totals = send_stream(
                _messages(_stream(session, source, limit, batch_rows), source, to_topic),
                cluster=cluster.options,
                checkpoint=HadoopFolder(session, kept),
                job={"job": "replay", "to": to_topic} | source.mark,
                observe=observe,
            )
        else:
            frame = _messages(_in_order(_batch(session, source, "")), source, to_topic)
            totals = send_batch(frame, cluster=cluster.options)
    return resend_result(totals, (clock.monotonic_ms() - began_ms) / 1000)


def _checked_source(
    folder: str | Path,
    topic: str,
    cluster: JobCluster,
    start_ms: int | None,
    end_ms: int | None,
    where: str,
) -> ReplaySource:
    if bool(str(folder)) == bool(topic):
        raise UsageError("give either Parquet files or a topic to send")
    if start_ms is not None and end_ms is not None and start_ms >= end_ms:
        raise UsageError(f"start_ms={start_ms}: must be before end_ms={end_ms}")
    location = location_of(str(folder), option="folder") if str(folder) else ""
    return ReplaySource(location, topic, cluster, start_ms, end_ms, where)


def _check_topics(source: ReplaySource, to_topic: str, cluster: JobCluster, *, now_ms: int) -> None:
    """Refuse illegal topics and times before Spark starts."""
    written_topic("to_topic", to_topic)
    same = source.topic == to_topic and source.cluster == cluster
    if same and (source.end_ms is None or source.end_ms > now_ms):
        # A later run would read the messages that this run has sent.
        raise UsageError(f"topic {to_topic!r} would be read into itself: give a past end_ms")
    cluster.check_topics([to_topic])
    if source.topic:
        source.cluster.check_topics([source.topic])


def _stream(
    session: "SparkSession", source: ReplaySource, limit: dict[str, str], batch_rows: int
) -> "DataFrame":
    if source.folder:
        files = _batch(session, source, "")
        together = max(1, batch_rows // max(1, _largest(files)))
        reader = session.readStream.schema(files.schema).option("maxFilesPerTrigger", together)
        return reader.option("maxFileAge", _ANY_AGE).parquet(source.folder)
    options = _source_options(source) | limit
    return session.readStream.format("ternmq").options(**options).load()


def _largest(files: "DataFrame") -> int:
    """Return the number of rows in the largest file, without reading a column."""
    from pyspark.sql import functions

    counts = files.groupBy(functions.input_file_name()).count()
    (row,) = counts.agg(functions.max("count")).collect()
    return row[0] or 0


def _batch(session: "SparkSession", source: ReplaySource, after: str) -> "DataFrame":
    if source.folder:
        return _parquet(session, source.folder)
    options = _source_options(source)
    if after:
        options = {name: value for name, value in options.items() if "starting" not in name}
        options["startingOffsets"] = source.cluster.resume_offsets(source.topic, after)
    if source.end_ms is not None:
        options["endingTimestamp"] = str(source.end_ms)
    return session.read.format("ternmq").options(**options).load()


def _parquet(session: "SparkSession", folder: str) -> "DataFrame":
    """Return the rows of files. Topics with digits only stay texts."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StringType, StructField, StructType

    try:
        found = session.read.parquet(folder).schema
        as_text = ("topic", "date")
        fields: list[Any] = [
            StructField(field.name, StringType()) if field.name in as_text else field
            for field in found.fields
        ]
        return session.read.schema(StructType(fields)).parquet(folder)
    except PySparkException as error:
        raise UsageError(f"folder={folder}: {reason_of(str(error))}") from None


def _source_options(source: ReplaySource) -> dict[str, str]:
    start = "earliest" if source.start_ms is None else str(source.start_ms)
    found = source.cluster.options | {"subscribe": source.topic}
    return found | start_options(start, option="start_ms")


def _in_order(frame: "DataFrame") -> "DataFrame":
    """Return the rows sorted by queue and offset, if they have these columns."""
    if not all(name in frame.columns for name in _QUEUE_ORDER):
        return frame
    return frame.repartition(*_QUEUE_ORDER[:-1]).sortWithinPartitions(*_QUEUE_ORDER)


def _messages(frame: "DataFrame", source: ReplaySource, to_topic: str) -> "DataFrame":
    fields = types_of(frame)
    conditions = between(source.start_ms, source.end_ms)
    if conditions and "storeTimestamp" not in fields:
        raise UsageError("start_ms and end_ms need a column 'storeTimestamp'")
    columns = message_columns(fields)
    chosen = filter_rows(frame.where(all_of(conditions)), source.where)
    return chosen.selectExpr(*columns, f"{text(to_topic)} AS topic")
