"""Archive of topics in Parquet: each message exactly once, in folders by topic and date.

    done = archive(["orders"], "/lake/orders", nameserver="127.0.0.1:9876")
    print(done.rows, done.files)

Only files in Spark's log of the folder, `_spark_metadata`, belong to the archive. Spark reads only
these files (`spark.read.parquet`), and `archived_files` lists them. Other files may be left over
from a killed run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from ternmq_client.retry_timeout import RETRY_TIMEOUT_S
from ternmq_model.clock import Clock
from ternmq_model.errors import UsageError
from ternmq_pipeline.jobs.cluster_queries import JobCluster, mean_record_bytes
from ternmq_pipeline.jobs.driver.spark_session import LOCAL, spark_session
from ternmq_pipeline.jobs.driver.streaming_query import Observe, run
from ternmq_pipeline.jobs.folders import file_sink_log
from ternmq_pipeline.jobs.folders.file_sink_log import CommittedFile
from ternmq_pipeline.jobs.folders.hadoop_folder import HadoopFolder, location_of
from ternmq_pipeline.jobs.folders.job_checkpoint import claim, exclusive_run
from ternmq_pipeline.jobs.job_options import batch_option, checkpoint_location, start_options
from ternmq_pipeline.planning.offset_ranges import PARTITIONS_MAX
from ternmq_runtime.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT: Final = "_checkpoint"
"""Default folder of the checkpoint, inside the archive."""

BATCH_ROWS: Final = 1_000_000
"""Most messages of a micro-batch: a killed run loses the work of one micro-batch."""

FILE_BYTES: Final = 128 << 20
"""Default target size of a file: many readers work best with 100 MB or more."""

FILE_BYTES_MAX: Final = 1 << 40

FILE_ROWS: Final = 500_000
"""Most messages of a file: `replay` sends a file in one batch, and a broker holds at most 1,000,000
half messages by default."""

PIECE_ROWS: Final = 50_000
"""Most messages of a reading task. A task writes its messages of a day to one file, so long queues
are cut: else a file would be as large as a queue's part of a micro-batch."""

PIECE_BYTES_MIN: Final = 4 << 20
"""Least bytes of a task that reads large messages. Other tasks read about half a file."""

DATE: Final = "date_from_unix_date(cast(unix_micros(storeTimestamp) div 86400000000 as int))"
"""Spark's expression for the day of a row in UTC, independent of the session's time zone."""


def piece_rows(file_bytes: int, message_bytes: int, batch_rows: int) -> int:
    """Return the most messages of a reading task.

    Args:
        file_bytes: Target size of a file, bytes.
        message_bytes: Mean length of a record, bytes; 0 = unknown.
        batch_rows: Most messages of a micro-batch. It bounds the number of tasks: half of the
            allowed tasks are reserved for the last pieces of queues.
    """
    piece_bytes = max(file_bytes // 2, PIECE_BYTES_MIN)
    least = -(-batch_rows // (PARTITIONS_MAX // 2))
    return max(least, min(PIECE_ROWS, piece_bytes // max(1, message_bytes)))


@dataclass(frozen=True, slots=True)
class Archived:
    """Messages and files that one run has added to an archive."""

    folder: str
    """Location of the archive."""

    rows: int
    """Number of added messages."""

    batches: int
    """Number of written micro-batches."""

    files: int
    """Number of added files."""

    bytes: int
    """Size of the added files, bytes."""

    topics: tuple[str, ...]
    """Topics of the added messages, sorted."""

    seconds: float
    """Duration of the run, s."""

    is_stopped: bool
    """The run was interrupted; the next run resumes from the checkpoint."""


def archive(
    topics: Sequence[str],
    folder: str | Path,
    *,
    nameserver: str,
    pattern: str = "",
    start: str = "earliest",
    interval_s: float | None = None,
    batch_rows: int = BATCH_ROWS,
    file_bytes: int = FILE_BYTES,
    checkpoint: str | Path = "",
    retry_timeout_s: float = RETRY_TIMEOUT_S,
    observe: Observe | None = None,
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    spark: "SparkSession | None" = None,
    clock: Clock | None = None,
) -> Archived:
    """Add to an archive the messages of its topics since the last run.

    Each run continues at the last commit of the run before, so every message is in the archive
    exactly once. Ctrl-C or SIGTERM end a run; the next run repeats the interrupted micro-batch.

    Args:
        topics: Names of topics; empty with `pattern`.
        folder: Path or URI that Spark can write to: a new or empty folder, or this archive.
        nameserver: `HOST:PORT`; several separated by commas.
        pattern: Regular expression that matches full names of topics, including later topics.
        start: Begin of the first run: `earliest`, `latest` or Unix milliseconds.
        interval_s: Interval between micro-batches of an endless run, s; 0 = without pauses. None =
            the run ends when all present messages are archived.
        batch_rows: Most messages of a micro-batch.
        file_bytes: Target size of a file, estimated before the encoding of Parquet, 1 to 1 TiB. The
            messages of a micro-batch, topic and day go to one file, or to several of about this
            size. A file has at most 500,000 messages, so that `replay` can send it at once. Files
            of a topic with much larger messages than the other topics are larger.
        checkpoint: Folder of the progress; `_checkpoint` in the archive when empty.
        retry_timeout_s: Time without an answer after which the job fails, s: before Spark
            starts and in each of its plans, tasks and commits. 1 s to 1 day.
        observe: Callback for each completed micro-batch.
        master: Spark's master.
        settings: More settings of Spark.
        spark: Existing session to use; it is not stopped. None = a new one.
        clock: Clock for the duration; None = the system's.

    Raises:
        UsageError: The folder or the checkpoint has other content, or an option is illegal.
        TopicNotFound: A topic is on no broker.
        MissingPackage: The extra `spark` or Java is not installed.
        TransportError: No NameServer answers for `retry_timeout_s`, or none knows a broker.
        JobFailed: The run ended with an error. Committed micro-batches stay.
    """
    clock = clock or SystemClock()
    began_ms = clock.monotonic_ms()
    cluster = JobCluster(nameserver, retry_timeout_s)
    source = cluster.options | _source(topics, pattern, batch_rows)
    source |= start_options(start, option="start")
    if not 1 <= file_bytes <= FILE_BYTES_MAX:
        raise UsageError(f"file_bytes={file_bytes}: must be 1 to {FILE_BYTES_MAX}")
    where = location_of(str(folder), option="folder")
    kept = checkpoint_location(checkpoint) or f"{where}/{CHECKPOINT}"
    cluster.check_topics(topics)
    pieces = piece_rows(file_bytes, mean_record_bytes(source), batch_rows)
    source["maxRecordsPerPartition"] = str(pieces)
    with spark_session("archive", master=master, settings=settings, spark=spark) as session:
        to, progress = HadoopFolder(session, where), HadoopFolder(session, kept)
        _claim(to, progress, topics, pattern)
        reader = _few_files(session, file_bytes).readStream.format("ternmq")
        rows = reader.options(**source).load()
        with exclusive_run(progress):
            before, batch_before = set(to.committed()), to.last_batch()
            totals = run(lambda: _query(rows, where, kept, interval_s), observe)
            added = [file for file in to.committed() if file not in before]
        if to.last_batch() > max(totals.last_batch, batch_before):
            # Spark does not report a batch that it committed at the moment of the stop.
            totals.batches += 1
            totals.rows_in = session.read.parquet(*(file.path for file in added)).count()
    seconds = (clock.monotonic_ms() - began_ms) / 1000
    return Archived(
        where,
        totals.rows_in,
        totals.batches,
        len(added),
        sum(file.bytes for file in added),
        tuple(sorted({file.partition("topic") or "" for file in added})),
        seconds,
        totals.is_stopped,
    )


def archived_files(folder: str | Path) -> list[CommittedFile]:
    """Return the files of an archive on the local disk, without Spark. Other files do not count.

    Raises:
        UsageError: The folder is no archive.
        JobFailed: The log of the archive cannot be read.
    """
    log = Path(folder, file_sink_log.FOLDER)
    names = [path.name for path in log.iterdir()] if log.is_dir() else []
    if not names:
        raise UsageError(
            f"folder={folder}: has no archive: there is no {file_sink_log.FOLDER} in it"
        )
    return file_sink_log.committed_files(
        names, lambda name: (log / name).read_text("utf-8"), location=str(log)
    )


def _few_files(spark: "SparkSession", file_bytes: int) -> "SparkSession":
    """Return a copy of a session with settings for few tasks after a shuffle.

    The copy has settings of its own, invisible to other users of the session. The session's
    listeners receive the events of the copy's queries.
    """
    from pyspark.sql import SparkSession

    inner = cast("Any", spark)._jsparkSession
    copied = inner.cloneSession()
    # The copy has the listeners of Spark's settings already; a second registration would double
    # their events.
    for listener in copied.streams().listListeners():
        copied.streams().removeListener(listener)
    for listener in inner.streams().listListeners():
        copied.streams().addListener(listener)
    copy = SparkSession(spark.sparkContext, copied)
    for name, value in {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.streaming.stateless.enabled": "true",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": f"{file_bytes}b",
        # Without this, rows of past micro-batches fill the disk until a collection of the JVM.
        "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
    }.items():
        copy.conf.set(name, value)
    return copy


def _source(topics: Sequence[str], pattern: str, batch_rows: int) -> dict[str, str]:
    if bool(topics) == bool(pattern):
        raise UsageError("topics: give either names or a pattern")
    which = {"subscribePattern": pattern} if pattern else {"subscribe": ",".join(topics)}
    return which | batch_option(batch_rows)


def _claim(to: HadoopFolder, checkpoint: HadoopFolder, topics: Sequence[str], pattern: str) -> None:
    """Check that the folder and the checkpoint belong together, or that both are new.

    With the log of another checkpoint, Spark would skip batches as done and lose their messages.
    """
    has_log = to.last_batch() >= 0
    others = [name for name in to.names() if name not in (file_sink_log.FOLDER, CHECKPOINT)]
    if others and not has_log and not checkpoint.names():
        raise UsageError(f"folder {to} is not empty and has no archive: give a new folder")
    if has_log and not checkpoint.names():
        raise UsageError(
            f"folder {to} has an archive whose checkpoint is not {checkpoint}: give its checkpoint"
        )
    job: dict[str, object] = {"job": "archive", "folder": to.location}
    job |= {"pattern": pattern} if pattern else {"topics": sorted(set(topics))}
    if claim(checkpoint, job) and not has_log:
        raise UsageError(f"checkpoint {checkpoint} belongs to an archive that is no longer in {to}")


def _query(
    rows: "DataFrame", folder: str, checkpoint: str, interval_s: float | None
) -> "StreamingQuery":
    writer = (
        rows.selectExpr("*", f"{DATE} AS date")
        .hint("rebalance", "topic", "date")
        .writeStream.format("parquet")
        .partitionBy("topic", "date")
        .option("path", folder)
        .option("maxRecordsPerFile", FILE_ROWS)
        .option("checkpointLocation", checkpoint)
    )
    if interval_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(interval_s * 1000)} milliseconds").start()
