"""Clusters as planning sees them, written down."""

from collections.abc import Mapping, Sequence

from ternmq_consumer.offsets.offset_lookup import QueueRange
from ternmq_model.offsets import QueueOffset
from ternmq_model.queue import MessageQueue
from ternmq_pipeline.offsets import OffsetRange
from ternmq_pipeline.planning.admission import RangeSize
from ternmq_pipeline.planning.snapshot import ClusterSnapshot

A0 = MessageQueue("TopicA", "broker-a", 0)
A1 = MessageQueue("TopicA", "broker-a", 1)
B0 = MessageQueue("TopicA", "broker-b", 0)


def snapshot(
    ranges: Mapping[MessageQueue, tuple[int, int]],
    *,
    brokers: Sequence[str] = ("broker-a", "broker-b"),
    answered_by_slave: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> ClusterSnapshot:
    """Return what brokers would tell: first offset and end of each queue."""
    return ClusterSnapshot(
        {
            queue: QueueRange(QueueOffset(begin), QueueOffset(end))
            for queue, (begin, end) in ranges.items()
        },
        missing=frozenset(missing),
        brokers=frozenset(brokers),
        answered_by_slave=frozenset(answered_by_slave),
    )


def offsets(numbers: Mapping[MessageQueue, int]) -> dict[MessageQueue, QueueOffset]:
    """Return plain numbers as offsets."""
    return {queue: QueueOffset(number) for queue, number in numbers.items()}


def unasked(asked: Sequence[tuple[OffsetRange, int]]) -> Sequence[RangeSize]:
    """Stand for brokers that nobody may ask for bytes."""
    raise AssertionError(f"nobody needs the bytes of {asked}")
