"""Writers that Spark calls.

Spark creates a new writer in a new process for the commit of a micro-batch, so the commit messages
hold all that a commit needs.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ternmq_model.errors import UsageError
from ternmq_pipeline.options.sink_options import WriteOptions, write_options
from ternmq_pipeline.short_errors import short_errors
from ternmq_pipeline.sink.columns import ColumnLayout, column_layout
from ternmq_pipeline.sink.identity import BatchIdentity, PartitionAttempt
from ternmq_runtime.unique_name import unique_name

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ternmq_client.telemetry.telemetry import Telemetry
    from ternmq_pipeline.sink.commit_message import StagedPartition
    from ternmq_pipeline.sink.staging import OpenStager
    from ternmq_producer.staging import BlockingStagingProducer

logger = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
"""Local properties of a task by which Spark names its query and batch."""


@dataclass(frozen=True, slots=True)
class PartCommitMessage(WriterCommitMessage):
    """Commit message of a task, in the format of `ternmq_pipeline.sink.commit_message`."""

    data: bytes


@dataclass(frozen=True, slots=True)
class TopicSink:
    """Sink of both kinds of writers. It has plain values, since Spark pickles it for the tasks."""

    options: WriteOptions
    layout: ColumnLayout

    def write(self, batches: "Iterator[pa.RecordBatch]", batch: BatchIdentity) -> PartCommitMessage:
        """Stage one partition and return its commit message."""
        from ternmq_pipeline.sink.commit_message import encode_part
        from ternmq_pipeline.sink.rows import RowReader
        from ternmq_pipeline.sink.staging import stage_partition
        from ternmq_runtime.clock import SystemClock

        part = PartitionAttempt(batch, _task().partitionId(), unique_name(4))
        with self.telemetry() as telemetry:
            staged = stage_partition(
                batches,
                RowReader(self.layout, part),
                self.options,
                open_stager=self.stagers(self.options.producer_group, telemetry),
                clock=SystemClock(),
            )
        return PartCommitMessage(encode_part(staged))

    def commit(self, messages: "Sequence[WriterCommitMessage | None]", batch_id: int) -> None:
        """Commit every row of a batch."""
        from ternmq_pipeline.sink.batch_commit import check_parts, commit_parts
        from ternmq_runtime.clock import SystemClock

        parts = check_parts(batch_id, _parts(messages))
        if parts:
            with self.telemetry() as telemetry:
                commit_parts(
                    parts,
                    open_stager=self.stagers(parts[0].group, telemetry),
                    clock=SystemClock(),
                    timeout_s=self.options.retry_timeout_s,
                )

    def abort(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        """Roll back the messages in the tasks' commit messages."""
        if any(message is not None for message in messages):
            from ternmq_pipeline.sink.batch_commit import abort_parts

            parts = _parts(messages)
            group = next(part.group for part in parts if part is not None)
            abort_parts(parts, open_stager=self.stagers(group))

    def telemetry(self) -> "AbstractContextManager[Telemetry | None]":
        """Return the block of a task or commit with its telemetry, if the options demand one."""
        from ternmq_pipeline.sink.task_telemetry import task_telemetry

        return task_telemetry(self.options.telemetry, unique_name())

    def stagers(self, group: str, telemetry: "Telemetry | None" = None) -> "OpenStager":
        """Return a function that opens a producer of `group`."""

        def open_stager() -> "BlockingStagingProducer":
            from ternmq_client.config import ClientConfig
            from ternmq_producer.staging import BlockingStagingProducer

            client = ClientConfig(
                nameservers=self.options.nameservers,
                request_timeout_s=self.options.request_timeout_s,
                telemetry=telemetry,
            )
            return BlockingStagingProducer(group, client=client)

        return open_stager


@short_errors
class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame: all of its rows become visible, or none."""

    def __init__(self, sink: TopicSink, query: str) -> None:
        self.sink = sink
        self.batch = BatchIdentity(query, 0)
        logger.info("batch write query=%s", query)

    def write(  # type: ignore[override]  # PySpark's Arrow writers do so themselves
        self, iterator: "Iterator[pa.RecordBatch]"
    ) -> WriterCommitMessage:
        """Stage a partition, in a task."""
        return self.sink.write(iterator, self.batch)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the messages of all tasks, in the driver."""
        self.sink.commit(messages, self.batch.batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Roll back the messages of all tasks, in the driver."""
        self.sink.abort(messages)


@short_errors
class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of a streaming query. All rows of a micro-batch become visible, or none."""

    def __init__(self, sink: TopicSink) -> None:
        self.sink = sink

    def write(  # type: ignore[override]  # PySpark's Arrow writers do so themselves
        self, iterator: "Iterator[pa.RecordBatch]"
    ) -> WriterCommitMessage:
        """Stage a partition of a micro-batch, in a task."""
        task = _task()
        query, batch = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
        if not query or not batch:
            raise UsageError("Spark does not report the query and batch of this task")
        return self.sink.write(iterator, BatchIdentity(query, int(batch)))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the messages of all tasks of a micro-batch, in the driver."""
        self.sink.commit(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Roll back the messages of all tasks of a micro-batch, in the driver."""
        self.sink.abort(messages)


def batch_writer(options: Mapping[str, str], schema: "StructType", overwrite: bool) -> BatchWriter:
    """Return the writer for a DataFrame.

    Raises:
        UsageError: An option or a column is illegal, or the mode is `overwrite`.
    """
    return BatchWriter(_sink(options, schema, overwrite, streaming=False), unique_name())


def stream_writer(
    options: Mapping[str, str], schema: "StructType", overwrite: bool
) -> StreamWriter:
    """Return the writer for the micro-batches of a query.

    Raises:
        UsageError: An option or a column is illegal, or the mode is `complete`.
    """
    return StreamWriter(_sink(options, schema, overwrite, streaming=True))


def _sink(
    options: Mapping[str, str], schema: "StructType", overwrite: bool, *, streaming: bool
) -> TopicSink:
    if overwrite:
        mode = "output mode 'complete'" if streaming else "mode 'overwrite'"
        raise UsageError(f"{mode}: messages cannot be overwritten; use 'append'")
    chosen = write_options(options)
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return TopicSink(chosen, column_layout(fields, topic=chosen.topic))


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise UsageError("the sink writes inside Spark's tasks alone")
    return task


def _parts(messages: Sequence[WriterCommitMessage | None]) -> "list[StagedPartition | None]":
    from ternmq_pipeline.sink.commit_message import decode_part

    return [
        decode_part(message.data) if isinstance(message, PartCommitMessage) else None
        for message in messages
    ]
