"""From offsets to the ranges that tasks read. Pure."""

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
"""Most partitions of one batch: Spark's driver keeps all of them."""


class PlannedRanges(NamedTuple):
    """Offset ranges of a batch, and what to warn of."""

    offset_ranges: list[OffsetRange]
    """Sorted by queue, none empty, one of each queue at most."""

    warnings: list[str]


def offset_ranges(
    start: Offsets, end: Offsets, snapshot: ClusterSnapshot, *, fail_on_data_loss: bool = True
) -> PlannedRanges:
    """Return the messages from `start` up to, without, `end`.

    Args:
        start: Where the batch begins. A queue that has none there is read from its first message.
        end: Where it ends. A queue that is not there is not read.
        snapshot: What there is now: queues may have lost messages since the offsets were decided.
        fail_on_data_loss: Whether such a loss is an error; else what is left is read.

    Raises:
        DataLost: Messages between both are gone, and that is an error.
    """
    losses = DataLossCheck(fail=fail_on_data_loss)
    found: list[OffsetRange] = []
    for queue in sorted(end):
        offset_range = _offset_range(queue, start.get(queue), end[queue], snapshot, losses)
        if offset_range is not None and offset_range.messages > 0:
            found.append(offset_range._replace(created_log_offset=_created(queue, snapshot)))
    return PlannedRanges(found, losses.warnings())


def _created(queue: MessageQueue, snapshot: ClusterSnapshot) -> int | None:
    """Return when the topic was created; None of what a slave says, who may lag behind."""
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
        # The queue was found to end before `begin` when `end` was decided.
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
    """Return ranges as partitions: each is one task's.

    Args:
        whole: Not empty ones.
        partitions_min: So many at least, longer ranges cut into more; fewer when there are
            not so many messages. None = one for each range.
        records_max: Most messages of one partition. None = no limit.

    Returns:
        The same messages in the same order.

    Raises:
        ConfigError: There would be more than 100,000.
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
