"""Plan of a read of a store's directory: parts of the log with ranges of queues.

Positions of the options are resolved as for a cluster, by the queues of the directory. Times are
compared with each record instead, since the log of a broker is in the order of its clock.
"""

import logging
from collections.abc import Mapping, Sequence

from ternmq_consumer.offsets.offset_lookup import QueueRange
from ternmq_model.errors import ConfigError
from ternmq_model.names import is_system_topic
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import OffsetRange
from ternmq_pipeline.options.positions import AtTime, AtTimes, Position, QueueEnd
from ternmq_pipeline.options.source_options import ReadOptions
from ternmq_pipeline.options.topics import Assign, SubscribePattern, TopicChoice, chosen_topics
from ternmq_pipeline.planning.apportionment import apportion
from ternmq_pipeline.planning.offset_ranges import offset_ranges
from ternmq_pipeline.planning.offset_resolution import ending_offsets, starting_offsets
from ternmq_pipeline.planning.snapshot import ClusterSnapshot
from ternmq_pipeline.source.pushdown import PushedFilters
from ternmq_store.disk.layout import consume_queue_folder
from ternmq_store.scan.directory import StoreDirectory
from ternmq_store.scan.partition_scan import LogFilePartition, plan_directory
from ternmq_store.scan.scan_spec import ScanRange
from ternmq_store.scan.user_topics import is_light, is_user_topic

logger = logging.getLogger(__name__)


def check_offline(options: ReadOptions) -> None:
    """Refuse positions that a directory does not support.

    Raises:
        ConfigError: Options name times of single queues, or queues of another broker.
    """
    for kind, position in (("starting", options.starting), ("ending", options.ending)):
        if isinstance(position, AtTimes):
            rule = f"is for reading from brokers: with the option store use {kind}Timestamp"
            raise ConfigError(f"{kind}OffsetsByTimestamp", "…", rule)
    if isinstance(options.topics, Assign):
        for queue in options.topics.queues:
            if queue.broker_name != options.broker_name:
                rule = f"the rows' broker name is {options.broker_name!r}: see option brokerName"
                raise ConfigError("assign", str(queue), rule)


def plan_parts(
    directory: StoreDirectory, options: ReadOptions, pushed: PushedFilters
) -> list[LogFilePartition]:
    """Return the parts of the log, one for each task.

    Raises:
        UsageError: An option names a topic, queue or offset that the directory does not have.
        DataLost: Messages at offsets that options name are gone.
        StoreError: The directory is no readable store.
    """
    snapshot = _snapshot(directory, options)
    starting, ending = _without_times(options.starting), _without_times(options.ending)
    start = starting_offsets(starting, snapshot, {}, fail_on_data_loss=options.fail_on_data_loss)
    end = ending_offsets(
        QueueEnd.LATEST if isinstance(options.ending, AtTime) else ending,
        snapshot,
        {},
        fail_on_data_loss=options.fail_on_data_loss,
    )
    planned = offset_ranges(
        start.offsets, end.offsets, snapshot, fail_on_data_loss=options.fail_on_data_loss
    )
    for warning in (*start.warnings, *end.warnings, *planned.warnings):
        logger.warning("messages are gone reason=%r", warning)
    wanted = {
        (offset_range.queue.topic, offset_range.queue.queue_id): offset_range
        for offset_range in pushed.of(planned.offset_ranges)
    }
    topics = sorted({topic for topic, _ in wanted})
    parts = plan_directory(directory, topics=topics) if topics else ()
    return split_parts(clipped(parts, wanted), options.partitions_min or 1)


def _without_times(position: Position) -> Position:
    return QueueEnd.EARLIEST if isinstance(position, AtTime) else position


def times_ms(options: ReadOptions) -> tuple[int, int]:
    """Return the least store time (inclusive) and the greatest (exclusive), ms; 0 = any."""
    starting, ending = options.starting, options.ending
    return (
        starting.at_ms if isinstance(starting, AtTime) else 0,
        max(ending.at_ms, 1) if isinstance(ending, AtTime) else 0,
    )


def _snapshot(directory: StoreDirectory, options: ReadOptions) -> ClusterSnapshot:
    there = directory.queues()
    known = {queue.topic for queue in there if not is_light(queue.topic)}
    choice = options.topics
    if choice is None:
        with_system = options.include_system_topics
        topics = {
            topic
            for topic in known
            if is_user_topic(topic) or (with_system and is_system_topic(topic))
        }
    else:
        _refuse_missing(directory, choice)
        topics = set(chosen_topics(choice, known, include_system=options.include_system_topics))
    ranges = {
        MessageQueue(queue.topic, options.broker_name, queue.queue_id): QueueRange(
            QueueOffset(queue.begin), QueueOffset(queue.end)
        )
        for queue in there
        if queue.topic in topics
    }
    if isinstance(choice, Assign):
        ranges = {queue: ranges[queue] for queue in choice.queues if queue in ranges}
    return ClusterSnapshot(ranges, brokers=frozenset({options.broker_name}))


def _refuse_missing(directory: StoreDirectory, choice: TopicChoice) -> None:
    """Refuse topics and queues that options name and that have no message in the directory.

    Raises:
        ConfigError: A topic or queue is missing or has no messages of its own. The error names it.
    """
    option = "assign" if isinstance(choice, Assign) else "subscribe"
    named = () if isinstance(choice, SubscribePattern) else choice.topics
    folder = consume_queue_folder(directory.root)
    rule = f"is not in the directory {str(directory.root)!r}"
    for topic in named:
        if is_light(topic):
            why = "is a light queue: its messages are read with the topic that they were sent to"
            raise ConfigError(option, topic, why)
        if not directory.files.folders(folder / topic):
            raise ConfigError(option, topic, rule)
    for topic, broker_name, queue_id in choice.queues if isinstance(choice, Assign) else ():
        if str(queue_id) not in directory.files.folders(folder / topic):
            raise ConfigError(option, f"{topic} {broker_name}:{queue_id}", rule)


def clipped(
    parts: Sequence[LogFilePartition], wanted: Mapping[tuple[str, int], OffsetRange]
) -> list[LogFilePartition]:
    """Return parts with their ranges cut to `wanted`. Empty parts are dropped."""
    found: list[LogFilePartition] = []
    for part in parts:
        kept: list[ScanRange] = []
        for topic, queue_id, begin, end in part.ranges:
            offset_range = wanted.get((topic, queue_id))
            if offset_range is None:
                continue
            first, last = max(begin, offset_range.begin), min(end, offset_range.end)
            if first < last:
                kept.append(ScanRange(topic, queue_id, first, last))
        if kept:
            found.append(part._replace(ranges=tuple(kept)))
    return found


def split_parts(parts: Sequence[LogFilePartition], partitions_min: int) -> list[LogFilePartition]:
    """Cut parts into at least `partitions_min` pieces with equal shares of every queue.

    The records of a piece lie together in the log. Pieces without messages are dropped.

    Args:
        parts: Non-empty parts.
        partitions_min: Number of pieces. Short queues give fewer.
    """
    sizes = {
        place: sum(scan_range.end - scan_range.begin for scan_range in part.ranges)
        for place, part in enumerate(parts)
    }
    pieces = apportion(sizes, max(partitions_min, len(parts)))
    return [piece for place, part in enumerate(parts) for piece in _cut(part, pieces[place])]


def _cut(part: LogFilePartition, pieces: int) -> list[LogFilePartition]:
    found: list[LogFilePartition] = []
    for place in range(pieces):
        kept = [
            ScanRange(topic, queue_id, first, last)
            for topic, queue_id, begin, end in part.ranges
            if (first := begin + (end - begin) * place // pieces)
            < (last := begin + (end - begin) * (place + 1) // pieces)
        ]
        if kept:
            found.append(part._replace(ranges=tuple(kept)))
    return found
