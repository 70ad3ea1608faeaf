"""Streaming reader that Spark calls, over `MicroBatchStream` and `PartitionReader`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ternmq_model.errors import TernError
from ternmq_pipeline.cluster.blocking_reader import open_cluster_reader
from ternmq_pipeline.options.source_options import ReadOptions, TriggerLimits
from ternmq_pipeline.short_errors import short_errors
from ternmq_pipeline.source.streams.checkpoint_offsets import NEW
from ternmq_pipeline.source.streams.micro_batch_stream import BatchLimit, MicroBatchStream
from ternmq_pipeline.source.tasks.partition_reader import OffsetRangePartition, PartitionReader
from ternmq_runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType


@short_errors
class TernmqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream. Made by `TernmqDataSource`.

    Spark creates two readers for each run. The one in a process of the driver plans the batches and
    holds the state (`MicroBatchStream`). The other is pickled and reads in the workers.

    Args:
        options: Options of the source, with topics.

    Raises:
        UsageError: A column of the schema does not exist or has another type.
    """

    def __init__(self, options: ReadOptions, schema: "StructType") -> None:
        self._options = options
        self._reader = PartitionReader(options, schema)
        self._stream: MicroBatchStream | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the begin of a new query. The first `latestOffset` decides its offsets."""
        return dict(NEW)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the batch that begins at `start`; `start` = no batch now."""
        return self._opened().next_end(start, batch_limit(limit))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that Spark passes to `latestOffset`, except for AvailableNow."""
        return default_limit(self._options.limits)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the queues in the last snapshot, for the query's progress."""
        return self._opened().latest()

    def prepareForTriggerAvailableNow(self) -> None:
        """Set the present ends of the queues as the targets of the run."""
        self._opened().aim_at_present()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one partition for each task of the batch from `start` to `end`."""
        return [
            OffsetRangePartition(offset_range)
            for offset_range in self._opened().offset_ranges(start, end)
        ]

    def read(
        self, partition: InputPartition
    ) -> "Iterator[pa.RecordBatch] | Iterator[tuple[Any, ...]]":
        """Return the rows of a partition, in a worker. See `PartitionReader.read`."""
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the completed batches up to `end`. Spark omits the last batch of a run."""
        self._opened().done(end)

    def stop(self) -> None:
        """Close the connections. Spark calls it only after errors; else it ends the process."""
        if self._stream is not None:
            self._stream.close()

    def _opened(self) -> MicroBatchStream:
        if self._stream is None:
            cluster = open_cluster_reader(self._options)
            self._stream = MicroBatchStream(self._options, cluster, SystemClock())
        return self._stream


@short_errors
class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stands for a reader with refused options and fails at Spark's first call.

    PySpark 4.3 stops its reader after a failure of `streamReader`, before the reader exists. The
    user would see that second error only.
    """

    def __init__(self, why: TernError) -> None:
        self._why = why

    def initialOffset(self, *_: Any, **__: Any) -> Any:
        """Raise the error."""
        raise self._why

    latestOffset = getDefaultReadLimit = prepareForTriggerAvailableNow = initialOffset
    partitions = read = initialOffset


def default_limit(limits: TriggerLimits) -> ReadLimit:
    """Return the limit of Spark that covers most of the options.

    Spark passes it back to `latestOffset`, which applies all options: no limit of Spark combines
    several of them.
    """
    if limits.offsets_max is not None:
        return ReadMaxRows(limits.offsets_max)
    if limits.bytes_max is not None:
        return ReadMaxBytes(limits.bytes_max)
    if limits.offsets_min is not None:
        return ReadMinRows(limits.offsets_min)
    return ReadAllAvailable()


def batch_limit(limit: ReadLimit) -> BatchLimit:
    """Return the limits of Spark on a batch. Only options set a minimum and a delay."""
    if isinstance(limit, ReadAllAvailable):
        return BatchLimit(all_available=True)
    if isinstance(limit, ReadMaxRows):
        return BatchLimit(offsets_max=limit.max_rows)
    if isinstance(limit, ReadMaxBytes):
        return BatchLimit(bytes_max=limit.max_bytes)
    return BatchLimit()
