"""Batch reads: from brokers, or from a store's directory."""

import sys
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ternmq_pipeline.options.source_options import PushdownMode, ReadOptions
from ternmq_pipeline.short_errors import main_module, short_errors
from ternmq_pipeline.source.batch_plan import plan_batch
from ternmq_pipeline.source.pushdown import FilterPushdown, PushedFilters
from ternmq_pipeline.source.tasks.partition_reader import OffsetRangePartition, PartitionReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""Spark's program that plans if `spark.sql.python.filterPushdown.enabled` is true."""


def batch_reader(options: ReadOptions, schema: "StructType") -> DataSourceReader:
    """Return the reader of a batch.

    Raises:
        UsageError: The schema has an unknown column. The error names it.
    """
    pushes = options.pushdown is PushdownMode.ALWAYS or (
        options.pushdown is PushdownMode.AUTO and spark_pushes()
    )
    if options.store is not None:
        from ternmq_pipeline.source.offline.reader import OfflineReader, PushdownOfflineReader

        offline = PushdownOfflineReader if pushes else OfflineReader
        return offline(options, schema)
    return PushdownBatchReader(options, schema) if pushes else BatchReader(options, schema)


def spark_pushes() -> bool:
    """Return whether this process plans for a session with filter pushdown.

    Spark's planning processes have no session, but each runs one program only. Spark refuses a
    reader that accepts conditions while the setting is off.
    """
    return PUSHDOWN_WORKER in sys.modules or main_module() == PUSHDOWN_WORKER


@short_errors
class BatchReader(DataSourceReader):
    """Plans the offset ranges in the driver and reads them in tasks. Spark pickles it."""

    def __init__(self, options: ReadOptions, schema: "StructType") -> None:
        self._options = options
        self._pushed = PushedFilters()
        self._reader = PartitionReader(options, schema)

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each task. The offsets of each queue are read once.

        Raises:
            UsageError: An option names a topic, queue or offset that does not exist.
            DataLost: Messages that the options name are gone.
            TernError: The cluster does not answer.
        """
        found = plan_batch(self._options, self._pushed)
        return [OffsetRangePartition(offset_range) for offset_range in found]

    def read(
        self, partition: InputPartition
    ) -> "Iterator[pa.RecordBatch] | Iterator[tuple[Any, ...]]":
        """Return the rows of a partition. See `PartitionReader.read`."""
        return self._reader.read(partition, self._pushed.rows)


@short_errors
class PushdownBatchReader(FilterPushdown, BatchReader):
    """`BatchReader` for sessions with filter pushdown."""
