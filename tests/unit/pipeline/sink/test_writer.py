"""What Spark calls, without a session."""

import copy
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, IntegerType, StructType

from ternmq_model.errors import UsageError
from ternmq_pipeline.sink.batch_commit import BatchNotCommitted
from ternmq_pipeline.sink.commit_message import StagedPartition, encode_part
from ternmq_pipeline.sink.identity import BatchIdentity, PartitionAttempt
from ternmq_pipeline.sink.writer import PartCommitMessage, batch_writer, stream_writer
from ternmq_producer.staging import StagedMessages

OPTIONS = {"nameserver": "127.0.0.1:1", "topic": "t", "checkpointLocation": "/tmp/x"}
SCHEMA = StructType().add("body", BinaryType())


def empty_part(batch: int) -> WriterCommitMessage:
    """Return what a task without rows tells."""
    part = PartitionAttempt(BatchIdentity("query", batch), 0, "a1")
    return PartCommitMessage(encode_part(StagedPartition(part, "group", 10, 0, StagedMessages())))


def test_each_batch_write_has_a_name_its_tasks_share() -> None:
    first, second = (batch_writer(OPTIONS, SCHEMA, overwrite=False) for _ in range(2))
    assert first.batch.query != second.batch.query
    in_a_task = copy.deepcopy(first)  # by what pickling uses, too
    assert in_a_task.batch == first.batch
    assert in_a_task.sink == first.sink


def test_overwriting_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="mode 'overwrite'"):
        batch_writer(OPTIONS, SCHEMA, overwrite=True)
    with pytest.raises(UsageError, match="output mode 'complete'"):
        stream_writer(OPTIONS, SCHEMA, overwrite=True)


def test_columns_are_checked_when_the_write_is_planned() -> None:
    with pytest.raises(UsageError, match="column 'body' has the type int"):
        stream_writer(OPTIONS, StructType().add("body", IntegerType()), overwrite=False)


def test_batches_without_rows_are_committed_and_aborted_without_a_broker() -> None:
    batch = batch_writer(OPTIONS, SCHEMA, overwrite=False)
    batch.commit([])
    batch.abort([None, None])
    stream = stream_writer(OPTIONS, SCHEMA, overwrite=False)
    stream.commit([empty_part(7)], 7)
    stream.abort([None, empty_part(7)], 7)


def test_commit_of_another_batch_is_refused() -> None:
    stream = stream_writer(OPTIONS, SCHEMA, overwrite=False)
    with pytest.raises(BatchNotCommitted, match="batch 8 of query"):
        stream.commit([empty_part(7)], 8)
    with pytest.raises(BatchNotCommitted, match="1 tasks did not report"):
        stream.commit([None], 8)


def test_planning_loads_no_producer() -> None:
    look = (
        "import sys, ternmq_pipeline.sink.writer; "
        "print([name for name in ('ternmq_producer', 'pandas') if name in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", look], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "[]"
