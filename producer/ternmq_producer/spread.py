"""Sharing many messages of one topic out to its queues. Pure."""

from collections.abc import Sequence

from ternmq_model.message import Message
from ternmq_producer.bulk import Bulk, BulkSlice
from ternmq_producer.queue_picker import QueuePicker


def spread(
    bulk: Bulk,
    picker: QueuePicker,
    part: Sequence[Message],
    properties: Sequence[bytes],
    record_bytes: Sequence[int],
    *,
    first: int,
    start: int,
    started_ms: int,
    deadline_ms: int,
) -> list[tuple[int, BulkSlice]]:
    """Give the messages of `part` to the queues in turn; return a slice for each broker.

    Args:
        bulk: Takes the answers.
        picker: The topic's queues.
        part: Messages of that topic, without sharding keys.
        properties: Of each, encoded.
        record_bytes: Of each, at most.
        first: Index of the queue of the first one.
        start: Its place in `bulk`.
        started_ms: When they were sent; monotonic time.
        deadline_ms: Monotonic time.

    Returns:
        Each slice with the index of a queue of its broker.
    """
    queues = picker.queues
    count = len(part)
    turns = queues[first:] + queues[:first]
    chosen = list((turns * (count // len(turns) + 1))[:count])
    topic = part[0].topic.encode()
    brokers = dict.fromkeys(queue.broker_name for queue in queues)
    if len(brokers) == 1:
        whole = BulkSlice(
            bulk,
            topic,
            range(start, start + count),
            [message.body for message in part],
            list(properties),
            [message.flag for message in part],
            chosen,
            list(record_bytes),
            started_ms,
            deadline_ms,
        )
        return [(first, whole)]
    slices: list[tuple[int, BulkSlice]] = []
    for broker_name in brokers:
        mine = [index for index, queue in enumerate(chosen) if queue.broker_name == broker_name]
        if not mine:
            continue
        one = BulkSlice(
            bulk,
            topic,
            [start + index for index in mine],
            [part[index].body for index in mine],
            [properties[index] for index in mine],
            [part[index].flag for index in mine],
            [chosen[index] for index in mine],
            [record_bytes[index] for index in mine],
            started_ms,
            deadline_ms,
        )
        slices.append((queues.index(chosen[mine[0]]), one))
    return slices
