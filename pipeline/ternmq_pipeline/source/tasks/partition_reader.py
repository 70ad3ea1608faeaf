"""Reader of a partition in a task of Spark: Arrow batches of a queue's offset range."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from ternmq_pipeline.offsets import OffsetRange
from ternmq_pipeline.options.source_options import ReadOptions
from ternmq_pipeline.source.pushdown import ALL_ROWS, RowFilter
from ternmq_pipeline.source.schema import required_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

ROWS_SETTING: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
ROWS_DEFAULT: Final = 10_000
"""Spark's default of that setting, and the most rows of a broker's batch."""


@dataclass(frozen=True)
class OffsetRangePartition(InputPartition):
    """Partition of Spark with an offset range."""

    offset_range: OffsetRange


class PartitionReader:
    """Reads the partitions of a query in its tasks. Spark pickles it; only `read` opens anything.

    Raises:
        UsageError: The schema has an unknown column. The error names it.
    """

    def __init__(self, options: ReadOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._names = required_columns(options, schema)

    def read(
        self, partition: InputPartition, row_filter: RowFilter = ALL_ROWS
    ) -> "Iterator[pa.RecordBatch] | Iterator[tuple[Any, ...]]":
        """Return the rows of a partition: Arrow batches, or tuples if `arrow` is false.

        Connections belong to the process, so its next task finds them open. Closing the iterator
        ends the reading.

        Raises:
            DataLost: Retention deleted planned messages, or the queue ends before them.
            TernError: Another failure lasted longer than the option `retryTimeout`.
        """
        if not isinstance(partition, OffsetRangePartition):
            # Spark adds a partition of its own to an empty plan.
            return iter(())
        from ternmq_pipeline.source.tasks.projection import tuples_of

        batches = self._batches(partition.offset_range, row_filter)
        return batches if self._options.arrow else tuples_of(batches)

    def _batches(
        self, offset_range: OffsetRange, row_filter: RowFilter
    ) -> "Iterator[pa.RecordBatch]":
        from ternmq_pipeline.source.tasks.fetcher import fetch_range, fetch_request
        from ternmq_pipeline.source.tasks.projection import BatchProjection

        projection = BatchProjection(self._options.view, self._names, self._schema)
        rows_max = rows_of_a_batch(self._options.batch_rows_max)
        request = fetch_request(
            self._options, row_filter, offset_range.queue.topic, projection.sources, rows_max
        )
        for batch in fetch_range(offset_range, request):
            yield projection.of(batch)


def rows_of_a_batch(rows_max: int) -> int:
    """Return the most rows of a batch: Spark's setting, at most `rows_max`."""
    from pyspark import TaskContext

    task = TaskContext.get()
    text = task.getLocalProperty(ROWS_SETTING) if task is not None else None
    set_rows = int(text) if text is not None else ROWS_DEFAULT
    return min(rows_max, ROWS_DEFAULT, set_rows if set_rows > 0 else ROWS_DEFAULT)
