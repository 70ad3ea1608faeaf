"""Topics into Parquet, each message exactly once, in a folder parted by topic and date.

    done = archive(["orders"], "/lake/orders", nameserver="127.0.0.1:9876")
    print(done.rows, done.files)

The archive is what Spark's log in the folder says, `_spark_metadata`: Spark reads just those files
(`spark.read.parquet`), and so does whoever asks `archived_files`. Others may be there as well, left
over from a run that was killed.
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
"""Default folder of an archive's checkpoint, below its own."""

BATCH_ROWS: Final = 1_000_000
"""The most messages of one micro-batch: a run that is killed loses the work on no more."""

FILE_BYTES: Final = 128 << 20
"""Default target size of a file: many readers want 100 MB or more."""

FILE_BYTES_MAX: Final = 1 << 40

FILE_ROWS: Final = 500_000
"""Most messages of a file: `replay` sends a file in one batch, and brokers hold 1,000,000 half
messages by default."""

PIECE_ROWS: Final = 50_000
"""Most messages of one task that reads. All that a task has read of a day lies in one file, so long
queues are cut, or a file would be as large as what a queue has in a micro-batch."""

PIECE_BYTES_MIN: Final = 4 << 20
"""Least bytes of one task that reads large messages; else it reads about half a file."""

DATE: Final = "date_from_unix_date(cast(unix_micros(storeTimestamp) div 86400000000 as int))"
"""The day of a row in UTC, whatever the session's time zone is: Spark's expression."""


def piece_rows(file_bytes: int, message_bytes: int, batch_rows: int) -> int:
    """Return the most messages of one task that reads.

    Args:
        file_bytes: The size that files are to have.
        message_bytes: Of a record on average; 0 = not known.
        batch_rows: The most messages of a micro-batch, which has no more tasks than may be. Half of
            them are left for the last pieces of queues.
    """
    piece_bytes = max(file_bytes // 2, PIECE_BYTES_MIN)
    least = -(-batch_rows // (PARTITIONS_MAX // 2))
    return max(least, min(PIECE_ROWS, piece_bytes // max(1, message_bytes)))


@dataclass(frozen=True, slots=True)
class Archived:
    """Messages and files that one run has added to an archive."""

    folder: str
    """The archive."""

    rows: int
    """Messages that were added."""

    batches: int
    """Micro-batches that were written."""

    files: int
    """Files that were added."""

    bytes: int
    """Size of the added files."""

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
    """Add to an archive what its topics have got since the last run.

    Each run goes on where the one before was committed, whatever ended that: every message is in
    the archive once. Ctrl-C or SIGTERM end a run, the micro-batch under way is done anew then.

    Args:
        topics: Names; empty with `pattern`.
        folder: A path or a URI that Spark can write to. A new or empty folder, or this archive.
        nameserver: `HOST:PORT`; several separated by commas.
        pattern: A regular expression that whole names of topics match, new ones in mid-run too.
        start: Where the first run begins: `earliest`, `latest` or Unix milliseconds.
        interval_s: Go on until somebody ends it, with a micro-batch so often; 0 = one after the
            other. None = end when all is archived that is there now.
        batch_rows: The most messages of a micro-batch.
        file_bytes: What a micro-batch has of a topic and a day goes into one file, or into files of
            about so many bytes, estimated before Parquet has encoded them. 1 to 1 TiB. No file has
            more than 500,000 messages, which `replay` can send at once. Files are larger where
            a topic has much larger messages than the others.
        checkpoint: Where progress is kept; `_checkpoint` in the folder when empty.
        retry_timeout_s: Time without an answer after which the job fails, s: before Spark
            starts and in each of its plans, tasks and commits. 1 s to 1 day.
        observe: Callback for each completed micro-batch.
        master: Spark's master.
        settings: More settings of Spark.
        spark: Existing session to use; it is not stopped. None = a new one.
        clock: Clock for the duration; None = the system's.

    Raises:
        UsageError: Folder or checkpoint hold something else, or an option cannot be.
        TopicNotFound: A topic is on no broker.
        MissingPackage: The extra `spark` or Java is not installed.
        TransportError: No NameServer answers for `retry_timeout_s`, or none knows any broker.
        JobFailed: The run ended with an error; what it had committed stays.
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
            # Spark does not tell of a batch that it committed in the moment of the stop.
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
    """Return the files of an archive on the local disk, without Spark. Read just these.

    Raises:
        UsageError: There is no archive.
        JobFailed: Its log cannot be read.
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
    """Return a copy of a session whose queries put rows that are to lie together into few tasks.

    Its settings are its own, so that other users of the session neither see nor change them. The
    session's listeners are told of the copy's queries.
    """
    from pyspark.sql import SparkSession

    inner = cast("Any", spark)._jsparkSession
    copied = inner.cloneSession()
    # It has those of Spark's settings already, of its own: they would be told twice.
    for listener in copied.streams().listListeners():
        copied.streams().removeListener(listener)
    for listener in inner.streams().listListeners():
        copied.streams().addListener(listener)
    copy = SparkSession(spark.sparkContext, copied)
    for name, value in {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.streaming.stateless.enabled": "true",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": f"{file_bytes}b",
        # Else rows of past micro-batches fill the disk until the JVM happens to collect them.
        "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
    }.items():
        copy.conf.set(name, value)
    return copy


def _source(topics: Sequence[str], pattern: str, batch_rows: int) -> dict[str, str]:
    if bool(topics) == bool(pattern):
        raise UsageError("tell which topics: their names, or a pattern")
    which = {"subscribePattern": pattern} if pattern else {"subscribe": ",".join(topics)}
    return which | batch_option(batch_rows)


def _claim(to: HadoopFolder, checkpoint: HadoopFolder, topics: Sequence[str], pattern: str) -> None:
    """Check that folder and checkpoint belong together, or that both are new.

    Spark itself would take a log without its checkpoint for batches that it has done, and lose
    what it reads.
    """
    has_log = to.last_batch() >= 0
    others = [name for name in to.names() if name not in (file_sink_log.FOLDER, CHECKPOINT)]
    if others and not has_log and not checkpoint.names():
        raise UsageError(f"folder {to} is not empty and holds no archive: give a new one")
    if has_log and not checkpoint.names():
        raise UsageError(
            f"folder {to} holds an archive whose checkpoint is not at {checkpoint}: name that"
        )
    job: dict[str, object] = {"job": "archive", "folder": to.location}
    job |= {"pattern": pattern} if pattern else {"topics": sorted(set(topics))}
    if claim(checkpoint, job) and not has_log:
        raise UsageError(f"checkpoint {checkpoint} is of an archive that is not in {to} any more")


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
