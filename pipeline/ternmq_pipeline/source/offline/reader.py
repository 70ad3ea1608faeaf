"""Readers of a store's directory, without a broker and without changes to the files.

A broker may use the directory meanwhile. The read covers the messages that the broker has
dispatched to its queues when the read is planned.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ternmq_model.errors import StoreError, UsageError
from ternmq_model.subscription import Subscription, parse_subscription
from ternmq_pipeline.options.source_options import ReadOptions
from ternmq_pipeline.short_errors import short_errors
from ternmq_pipeline.source.offline.plan import check_offline, plan_parts, times_ms
from ternmq_pipeline.source.pushdown import FilterPushdown, PushedFilters, RowFilter
from ternmq_pipeline.source.schema import required_columns
from ternmq_pipeline.source.tasks.partition_reader import rows_of_a_batch
from ternmq_pipeline.source.tasks.projection import BatchProjection, tuples_of
from ternmq_store.disk.filesystem import RealFileSystem
from ternmq_store.scan.directory import StoreDirectory
from ternmq_store.scan.partition_scan import LogFilePartition, scan_partition
from ternmq_store.scan.raw_scan import RawFilePartition, plan_raw, scan_raw
from ternmq_store.scan.scan_spec import ScanSpec, ScanStep

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogPartition(InputPartition):
    """Partition of Spark with a part of a store's log."""

    part: LogFilePartition | RawFilePartition


@short_errors
class OfflineReader(DataSourceReader):
    """Plans the parts of the log in the driver and reads them in tasks.

    Driver and tasks must find the directory under the same path.

    Raises:
        UsageError: The schema or an option does not fit a directory.
    """

    def __init__(self, options: ReadOptions, schema: "StructType") -> None:
        check_offline(options)
        self._options = options
        self._schema = schema
        self._names = required_columns(options, schema)
        self._pushed = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each task.

        Raises:
            UsageError: The directory is no store, or lacks a topic or queue of the options.
            DataLost: Messages at offsets that options name are gone.
        """
        directory = self._directory()
        if self._options.raw:
            return [LogPartition(part) for part in plan_raw(directory)]
        parts = plan_parts(directory, self._options, self._pushed)
        return [LogPartition(part) for part in parts]

    def read(
        self, partition: InputPartition
    ) -> Iterator[pa.RecordBatch] | Iterator[tuple[Any, ...]]:
        """Return the rows of a part, in the order of the log.

        Raises:
            StoreError: A record is damaged, or was deleted since the planning.
        """
        if not isinstance(partition, LogPartition):
            # Spark adds a partition of its own to an empty plan.
            return iter(())
        batches = self._batches(partition.part)
        return batches if self._options.arrow else tuples_of(batches)

    def _directory(self) -> StoreDirectory:
        path = self._options.store or ""
        try:
            return StoreDirectory(RealFileSystem(), Path(path), self._options.broker_name)
        except (OSError, StoreError) as error:
            raise UsageError(f"store: {path!r} cannot be read as a store: {error}") from None

    def _batches(self, part: LogFilePartition | RawFilePartition) -> Iterator[pa.RecordBatch]:
        projection = BatchProjection(self._options.view, self._names, self._schema)
        wanted = self._wanted(projection.sources)
        damaged = 0
        directory = self._directory()
        for scanned in self._scanned(directory, part, wanted):
            if scanned.damaged > damaged:
                logger.warning(
                    "damaged messages are skipped folder=%s before=%d count=%d",
                    self._options.store,
                    scanned.next_offset,
                    scanned.damaged - damaged,
                )
                damaged = scanned.damaged
            if scanned.batch is not None and scanned.batch.num_rows:
                yield projection.of(scanned.batch)

    def _scanned(
        self, directory: StoreDirectory, part: LogFilePartition | RawFilePartition, wanted: ScanSpec
    ) -> Iterator[ScanStep]:
        if isinstance(part, RawFilePartition):
            return scan_raw(directory, part, wanted)
        return scan_partition(directory, part, wanted)

    def _wanted(self, columns: tuple[str, ...]) -> ScanSpec:
        rows = self._pushed.rows
        from_ms, before_ms = times_ms(self._options)
        befores = [at_ms for at_ms in (before_ms, rows.stored_before_ms) if at_ms]
        return ScanSpec(
            subscription=self._subscription(rows),
            stored_from_ms=max(from_ms, rows.stored_from_ms),
            stored_before_ms=min(befores, default=0),
            keys=frozenset(rows.keys),
            columns=columns,
            batch_rows_max=rows_of_a_batch(self._options.batch_rows_max),
            skips_damaged=not self._options.fail_on_data_loss,
        )

    def _subscription(self, rows: RowFilter) -> Subscription | None:
        """Return the subscription that selects messages of all topics. Its own topic is ignored."""
        any_topic = "Topic"
        expression = self._options.filter
        if expression is None and not self._options.include_system_topics:
            expression = rows.tags_of(any_topic)
        return parse_subscription(any_topic, *expression) if expression else None


@short_errors
class PushdownOfflineReader(FilterPushdown, OfflineReader):
    """`OfflineReader` for sessions with filter pushdown."""
