"""Plan of a batch: the offset ranges that its options name in the cluster."""

import logging

from ternmq_pipeline.cluster.blocking_reader import BlockingClusterReader, open_cluster_reader
from ternmq_pipeline.offsets import OffsetRange, Offsets
from ternmq_pipeline.options.source_options import ReadOptions, View
from ternmq_pipeline.planning.offset_ranges import offset_ranges, split
from ternmq_pipeline.planning.offset_resolution import (
    ending_offsets,
    refuse_backwards,
    starting_offsets,
    times_of,
)
from ternmq_pipeline.planning.partition_numbers import check_partition_numbers
from ternmq_pipeline.planning.snapshot import ClusterSnapshot
from ternmq_pipeline.source.pushdown import PushedFilters

logger = logging.getLogger(__name__)


def plan_batch(options: ReadOptions, pushed: PushedFilters) -> list[OffsetRange]:
    """Return the offset ranges of a batch, one for each task, sorted by queue.

    Raises:
        UsageError: An option names a topic, queue or offset that does not exist.
        DataLost: Messages that the options name are gone.
        TernError: The cluster does not answer.
    """
    assert options.topics is not None, "a read of brokers has topics: read_options sees to it"
    with open_cluster_reader(options) as cluster:
        snapshot = cluster.snapshot(options.topics, include_system=options.include_system_topics)
        if options.view is View.KAFKA:
            check_partition_numbers(queue.broker_name for queue in snapshot.ranges)
        start, end = _begin_and_end(options, cluster, snapshot)
    planned = offset_ranges(start, end, snapshot, fail_on_data_loss=options.fail_on_data_loss)
    _warn(planned.warnings)
    wanted = pushed.of(planned.offset_ranges)
    return split(
        wanted,
        partitions_min=options.partitions_min,
        records_max=options.partition_records_max,
    )


def _begin_and_end(
    options: ReadOptions, cluster: BlockingClusterReader, snapshot: ClusterSnapshot
) -> tuple[Offsets, Offsets]:
    start = starting_offsets(
        options.starting,
        snapshot,
        cluster.offsets_at(times_of(options.starting, snapshot)),
        strategy=options.starting_strategy,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    end = ending_offsets(
        options.ending,
        snapshot,
        cluster.offsets_at(times_of(options.ending, snapshot)),
        fail_on_data_loss=options.fail_on_data_loss,
    )
    _warn([*start.warnings, *end.warnings])
    refuse_backwards(start.offsets, end.offsets)
    return start.offsets, end.offsets


def _warn(warnings: list[str]) -> None:
    for warning in warnings:
        logger.warning("messages are gone reason=%r", warning)
