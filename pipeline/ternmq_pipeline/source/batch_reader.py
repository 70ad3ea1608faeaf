"""Batch reads: from brokers, or from a store's directory."""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ternmq_pipeline.options.source_options import PushdownMode, ReadOptions
from ternmq_pipeline.short_errors import main_module, short_errors
from ternmq_pipeline.source.batch_plan import plan_batch
from ternmq_pipeline.source.pushdown import PushedFilters, push_filters
from ternmq_pipeline.source.tasks.partition_reader import OffsetRangePartition, PartitionReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""The program of Spark's that plans when `spark.sql.python.filterPushdown.enabled` is true."""


def batch_reader(options: ReadOptions, schema: "StructType") -> DataSourceReader:
    """Return the reader of a batch.

    Raises:
        UsageError: The schema asks for a column that does not exist; it is named.
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

    There is no session in Spark's planning processes, but each runs one program only. A reader that
    takes conditions while the setting is off would be refused.
    """
    return PUSHDOWN_WORKER in sys.modules or main_module() == PUSHDOWN_WORKER


@short_errors
class BatchReader(DataSourceReader):
    """Plans in the driver which ranges are read, and reads them in tasks. Spark pickles it.

    Args:
        options: Of the source.
        schema: The columns that the query asks for.
    """

    def __init__(self, options: ReadOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._pushed = PushedFilters()
        self._reader = PartitionReader(options, schema)

    def partitions(self) -> list[InputPartition]:
        """Return what each task reads; every queue is asked what it has, once.

        Raises:
            UsageError: An option names a topic, queue or offset that does not exist.
            DataLost: What the options name is no longer there.
            TernError: The cluster does not answer.
        """
        found = plan_batch(self._options, self._pushed)
        return [OffsetRangePartition(offset_range) for offset_range in found]

    def read(
        self, partition: InputPartition
    ) -> "Iterator[pa.RecordBatch] | Iterator[tuple[Any, ...]]":
        """Return the rows of a partition. See `PartitionReader.read`."""
        return self._reader.read(partition)


@short_errors
class PushdownBatchReader(BatchReader):
    """A `BatchReader` for sessions that let a source apply conditions."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Apply the conditions that the read can, and return those that Spark must test."""
        has_own = self._options.filter is not None
        self._pushed, left = push_filters(filters, self._options.view, has_own_filter=has_own)
        self._reader = PartitionReader(self._options, self._schema, self._pushed.rows)
        return left
