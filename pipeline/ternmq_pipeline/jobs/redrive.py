"""Redrive of a group's dead letters to their original topics.

    redrive("billing", nameserver="127.0.0.1:9876", where="reconsumeTimes > 3",
            checkpoint="/var/lib/redriven/billing")

A dead letter becomes a new message with the body, tags, keys, sharding key and application
properties of the original. This job is for many letters that meet a condition. The command `ternmq
dlq redrive` (`ternmq_client.admin.redrive`) is for a few letters by hand, and restores more of
their properties.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ternmq_client.admin.admin_client import AdminClient
from ternmq_client.admin.descriptions import require_all
from ternmq_client.retry_timeout import RETRY_TIMEOUT_S
from ternmq_model.clock import Clock
from ternmq_model.errors import GroupNotFound, UsageError
from ternmq_model.names import DEAD_LETTER_PREFIX, DEAD_LETTER_TOOLS, check_stored_group
from ternmq_pipeline.jobs.cluster_queries import JobCluster
from ternmq_pipeline.jobs.driver.spark_session import LOCAL, spark_session
from ternmq_pipeline.jobs.driver.streaming_query import Observe
from ternmq_pipeline.jobs.folders.hadoop_folder import HadoopFolder
from ternmq_pipeline.jobs.folders.job_checkpoint import committed_offsets
from ternmq_pipeline.jobs.job_options import batch_option, checkpoint_location
from ternmq_pipeline.jobs.message_columns import message_columns, origin_topic
from ternmq_pipeline.jobs.resend import (
    BATCH_ROWS,
    ResendResult,
    count_rows,
    dry_run_result,
    filter_rows,
    resend_result,
    send_stream,
    types_of,
)
from ternmq_pipeline.offsets import offsets_text
from ternmq_runtime.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ternmq_model.queue import MessageQueue


def redrive(
    group: str,
    *,
    nameserver: str,
    checkpoint: str | Path = "",
    where: str = "",
    dry_run: bool = False,
    batch_rows: int = BATCH_ROWS,
    retry_timeout_s: float = RETRY_TIMEOUT_S,
    observe: Observe | None = None,
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    spark: "SparkSession | None" = None,
    clock: Clock | None = None,
) -> ResendResult:
    """Send a group's dead letters to their original topics, each exactly once.

    The first run begins with the first letter that `ternmq dlq` has neither redriven nor dropped.
    Later runs with that checkpoint continue behind. The letters stay in their topic. Letters
    without an original topic are counted and not sent.

    Args:
        group: Consumer group of the dead letters.
        nameserver: `HOST:PORT`; several separated by commas.
        checkpoint: Folder of the job's progress. A run with that folder continues.
        where: Condition in Spark's SQL over the source's columns. Only matching letters are sent.
        dry_run: True = letters are counted and not sent.
        batch_rows: Most letters of a micro-batch.
        retry_timeout_s: Time without an answer after which the job fails, s: before Spark
            starts and in each of its plans, tasks and commits. 1 s to 1 day.
        observe: Callback for each completed micro-batch.
        master: Spark's master.
        settings: More settings of Spark.
        spark: Existing session to use; it is not stopped. None = a new one.
        clock: Clock for the duration; None = the system's.

    Raises:
        UsageError: An argument is illegal. No letter was sent.
        TopicNotFound: The group has no dead letters.
        MissingPackage: The extra `spark` or Java is not installed.
        TransportError: No NameServer answers for `retry_timeout_s`, or none knows a broker.
        JobFailed: The run ended with an error. The letters of committed batches are sent.
    """
    clock = clock or SystemClock()
    began_ms = clock.monotonic_ms()
    letters = DEAD_LETTER_PREFIX + check_stored_group(group)
    limit = batch_option(batch_rows)
    if not checkpoint and not dry_run:
        raise UsageError("checkpoint: give a folder that stores the progress")
    kept = checkpoint_location(checkpoint)
    cluster = JobCluster(nameserver, retry_timeout_s)
    cluster.check_topics([letters])
    source = cluster.options | {"subscribe": letters}
    with spark_session("redrive", master=master, settings=settings, spark=spark) as session:
        done = committed_offsets(HadoopFolder(session, kept)) if kept else ""
        source["startingOffsets"] = (
            cluster.resume_offsets(letters, done)
            if done
            else cluster.ask(lambda admin: _waiting(admin, letters))
        )
        if dry_run:
            rows = session.read.format("ternmq").options(**source).load()
            counts = count_rows(_messages(rows, where))
            return dry_run_result(counts, (clock.monotonic_ms() - began_ms) / 1000)
        rows = session.readStream.format("ternmq").options(**source, **limit).load()
        totals = send_stream(
            _messages(rows, where),
            cluster=cluster.options,
            checkpoint=HadoopFolder(session, kept),
            job={"job": "redrive", "group": group, "where": where or None},
            observe=observe,
        )
    return resend_result(totals, (clock.monotonic_ms() - began_ms) / 1000)


async def _waiting(admin: AdminClient, topic: str) -> str:
    """Return the offsets of the first unhandled letters, as the source's startingOffsets."""
    described = await admin.describe_topic(topic)
    require_all(described.unreachable)
    handled: dict[MessageQueue, int] = {}
    try:
        tools = await admin.describe_group(DEAD_LETTER_TOOLS)
        require_all(tools.unreachable)
        for one in tools.progress:
            handled[one.queue] = one.committed_offset
    except GroupNotFound:
        pass
    starts = {
        one.queue: min(max(handled.get(one.queue, 0), one.min_offset), one.max_offset)
        for one in described.queues
    }
    return offsets_text(starts)


def _messages(letters: "DataFrame", where: str) -> "DataFrame":
    columns = message_columns(types_of(letters))
    return filter_rows(letters, where).selectExpr(*columns, f"{origin_topic()} AS topic")
