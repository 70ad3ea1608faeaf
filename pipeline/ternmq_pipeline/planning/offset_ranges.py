"""Offset ranges of a batch and their partitions. Pure."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ternmq_model.errors import ConfigError
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import OffsetRange, Offsets
from ternmq_pipeline.planning.apportionment import apportion
from ternmq_pipeline.planning.data_loss import DataLossCheck, beyond_end, gone, no_longer_kept
from ternmq_pipeline.planning.snapshot import ClusterSnapshot

PARTITIONS_MAX: Final = 100_000
"""Most partitions of one batch. Spark's driver holds all of them in memory."""


class PlannedRanges(NamedTuple):
    """Offset ranges of a batch, and warnings."""

    offset_ranges: list[OffsetRange]
    """Non-empty ranges, sorted by queue, at most one of each queue."""

    warnings: list[str]


def offset_ranges(
    start: Offsets, end: Offsets, snapshot: ClusterSnapshot, *, fail_on_data_loss: bool = True
) -> PlannedRanges:
    """Return the offset ranges from `start` (inclusive) to `end` (exclusive).

    Args:
        start: Begin of the batch. A missing queue is read from its first message.
        end: End of the batch. A missing queue is not read.
        snapshot: Present state of the cluster. Queues may have lost messages meanwhile.
        fail_on_data_loss: True = lost messages are an error; False = the others are read.

    Raises:
        DataLost: Messages of the batch are gone, and `fail_on_data_loss` is true.
    """
    losses = DataLossCheck(fail=fail_on_data_loss)
    found: list[OffsetRange] = []
    for queue in sorted(end):
        offset_range = _offset_range(queue, start.get(queue), end[queue], snapshot, losses)
        if offset_range is not None and offset_range.messages > 0:
            found.append(offset_range._replace(created_log_offset=_created(queue, snapshot)))
    return PlannedRanges(found, losses.warnings())


def _created(queue: MessageQueue, snapshot: ClusterSnapshot) -> int | None:
    """Return the creation of the topic; None for a slave, which may lag behind."""
    if queue.broker_name in snapshot.answered_by_slave:
        return None
    return snapshot.created.get((queue.topic, queue.broker_name))


def _offset_range(
    queue: MessageQueue,
    begin: QueueOffset | None,
    end: QueueOffset,
    snapshot: ClusterSnapshot,
    losses: DataLossCheck,
) -> OffsetRange | None:
    there = snapshot.ranges.get(queue)
    if begin == end:
        return None
    if there is None:
        is_registered = queue.broker_name in snapshot.brokers
        losses.add(queue, gone(begin or 0, broker_is_registered=is_registered))
        return None
    if begin is None:
        if end <= there.begin:
            return None
        begin = there.begin
    if begin > end:
        # The queue ended before `begin` already when `end` was decided.
        losses.add(queue, beyond_end(begin, end))
        begin = QueueOffset(0) if there.begin == 0 else end
    if queue.broker_name in snapshot.answered_by_slave:
        return OffsetRange(queue, begin, end)
    if begin < there.begin:
        losses.add(queue, no_longer_kept(begin, min(end, there.begin), there.begin))
        begin = there.begin
    if end > there.end:
        losses.add(queue, beyond_end(end, there.end))
        end = there.end
    return OffsetRange(queue, begin, end)


def split(
    whole: Sequence[OffsetRange], *, partitions_min: int | None, records_max: int | None
) -> list[OffsetRange]:
    """Split ranges into partitions, one for each task.

    Args:
        whole: Non-empty ranges.
        partitions_min: Least partitions; longer ranges are cut into more. Fewer messages give fewer
            partitions. None = one for each range.
        records_max: Most messages of one partition. None = no limit.

    Returns:
        Ranges with the same messages in the same order.

    Raises:
        ConfigError: There would be more than 100,000 partitions.
    """
    sizes = dict(enumerate(offset_range.messages for offset_range in whole))
    pieces = apportion(sizes, max(partitions_min or 0, len(whole)))
    if records_max is not None:
        pieces = {
            place: max(count, -(-sizes[place] // records_max)) for place, count in pieces.items()
        }
    if sum(pieces.values()) > PARTITIONS_MAX:
        rule = f"makes {sum(pieces.values())} partitions of this batch, at most {PARTITIONS_MAX}"
        raise ConfigError("maxRecordsPerPartition", records_max, rule)
    return [
        piece
        for place, offset_range in enumerate(whole)
        for piece in _cut(offset_range, pieces[place])
    ]


def _cut(offset_range: OffsetRange, count: int) -> list[OffsetRange]:
    """Cut a range into `count` pieces whose lengths differ by one at most."""
    cuts = [
        QueueOffset(offset_range.begin + offset_range.messages * place // count)
        for place in range(count + 1)
    ]
    return [offset_range._replace(begin=begin, end=end) for begin, end in pairwise(cuts)]
