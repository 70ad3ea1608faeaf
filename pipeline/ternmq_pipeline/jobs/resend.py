"""Resend of rows to topics: by a stream with a checkpoint, in one batch, or as a dry run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ternmq_model.errors import UsageError
from ternmq_pipeline.jobs.driver.spark_errors import reason_of
from ternmq_pipeline.jobs.driver.streaming_query import Observe, RunTotals, run
from ternmq_pipeline.jobs.folders.hadoop_folder import HadoopFolder
from ternmq_pipeline.jobs.folders.job_checkpoint import claim, exclusive_run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_ROWS: Final = 200_000
"""Most messages of a micro-batch. They become visible together."""

ROWS: Final = "rows"
LEFT: Final = "left"
"""Rows without a topic, which are not sent."""


@dataclass(frozen=True, slots=True)
class ResendResult:
    """Counts of the messages that one run has sent or would send."""

    rows: int
    """Number of sent messages."""

    left: int
    """Rows without a topic, which are not sent."""

    batches: int
    """Number of sent micro-batches."""

    topics: Mapping[str, int]
    """Messages of each topic in a dry run, sorted by topic. Empty after other runs."""

    seconds: float
    """Duration of the run, s."""

    is_stopped: bool
    """The run was interrupted; the next run resumes from the checkpoint."""


def filter_rows(frame: "DataFrame", where: str) -> "DataFrame":
    """Return the rows for which a condition holds.

    Raises:
        UsageError: The text is no condition in Spark's SQL over these columns.
    """
    if not where:
        return frame
    from pyspark.errors import PySparkException

    try:
        return frame.where(where)
    except PySparkException as error:
        raise UsageError(f"where={where!r}: {reason_of(str(error))}") from None


def send_stream(
    frame: "DataFrame",
    *,
    cluster: Mapping[str, str],
    checkpoint: HadoopFolder,
    job: Mapping[str, object],
    observe: Observe | None,
) -> RunTotals:
    """Send all present rows of a stream. An interrupted run first finishes the present batch.

    Args:
        frame: Rows with the sink's columns. Rows without a topic are counted and not sent.
        cluster: Options of the sink that name its cluster.
        checkpoint: Folder of the job's progress.
        job: Options that identify the job in its checkpoint; see `claim`.
        observe: Callback for each completed micro-batch.

    Raises:
        UsageError: The checkpoint belongs to another job, or another run uses it.
        PySparkException: The query ended with an error. Committed batches stay.
    """

    def start() -> "StreamingQuery":
        writer = _counted(frame).where("topic IS NOT NULL").writeStream.format("ternmq")
        writer = writer.options(**cluster, checkpointLocation=checkpoint.location)
        return writer.trigger(availableNow=True).start()

    claim(checkpoint, job)
    with exclusive_run(checkpoint):
        return run(start, observe, ends_batches=True)


def send_batch(frame: "DataFrame", *, cluster: Mapping[str, str]) -> RunTotals:
    """Send all rows of a batch: all of them become visible, or none.

    Raises:
        PySparkException: No row is visible, except after an interruption of the commit itself.
    """
    from pyspark.sql import Observation

    counts = Observation()
    rows: Any = _counted(frame, counts).where("topic IS NOT NULL").write
    rows.format("ternmq").mode("append").options(**cluster).save()
    found: Mapping[str, int | None] = counts.get
    totals = RunTotals(batches=1)
    totals.observed = {name: count or 0 for name, count in found.items()}
    return totals


def count_rows(frame: "DataFrame") -> dict[str | None, int]:
    """Return the number of rows of a batch for each topic; the key None is for rows without one.

    Raises:
        PySparkException: The rows cannot be read.
    """
    found: list[Any] = frame.groupBy("topic").count().collect()
    return {row["topic"]: row["count"] for row in found}


def resend_result(totals: RunTotals, seconds: float) -> ResendResult:
    """Return the result of a run."""
    left = totals.observed.get(LEFT, 0)
    rows = totals.observed.get(ROWS, 0) - left
    return ResendResult(rows, left, totals.batches, {}, seconds, totals.is_stopped)


def dry_run_result(counts: Mapping[str | None, int], seconds: float) -> ResendResult:
    """Return the result of a dry run."""
    topics = {topic: counts[topic] for topic in sorted(filter(None, counts))}
    return ResendResult(
        sum(topics.values()), counts.get(None, 0), 0, topics, seconds, is_stopped=False
    )


def types_of(frame: "DataFrame") -> dict[str, str]:
    """Return the short type of each column, by name."""
    return dict(frame.dtypes)


def _counted(frame: "DataFrame", name: Any = "counts") -> "DataFrame":
    from pyspark.sql import functions

    counts = (f"count(*) AS {ROWS}", f"count_if(topic IS NULL) AS {LEFT}")
    return frame.observe(name, *map(functions.expr, counts))
